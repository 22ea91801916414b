"""Tags put around the words of a translation that were written from the words they stood around.

Whatever the alignment says, each element comes out once, with its own children inside: an alignment that is wrong moves tags, it
does not lose them.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from regard.serving.html_markup import Element, Segment

UNIT = re.compile(r"\w+|[^\w\s]")  # what is aligned: words, and signs by themselves
Span = tuple[int, int]
Sources = Sequence[int | None]  # of each unit of the translation, the unit of the source that it was written from


def units_of(text: str) -> list[Span]:
    return [found.span() for found in UNIT.finditer(text)]


def in_step(source: int, target: int) -> list[int | None]:
    """Where nothing is known of the alignment: the first words from the first, the last from the last."""
    return [j * source // target if source else None for j in range(target)]


def placed(segment: Segment, text: str, sources: Sources, begins: Sequence[Span] = ((0, 0),)) -> str:
    """A translation of a segment with its tags. `sources`: see above, units being those of `units_of`.

    `begins` are the first units of each sentence, of the source and of the translation.
    """
    return segment.lead + _Placing(segment, text, sources, begins).written() + segment.trail


class _Placing:
    def __init__(self, segment: Segment, text: str, sources: Sources, begins: Sequence[Span]):
        self.segment, self.text, self.sources, self.sentences = segment, text, sources, begins
        self.units, self.source_units = units_of(text), units_of(segment.text)
        self.ends = [end for _, end in self.source_units]
        self.begins = [begin for begin, _ in self.source_units]
        self.middles = [(begin + end) / 2 for begin, end in self.source_units]

    def written(self) -> str:
        return self._between(self.segment.elements, 0, len(self.units), 0, len(self.text))

    def _between(self, elements: list[Element], first: int, last: int, begin: int, end: int) -> str:
        """The characters begin .. end of the translation, which hold its units first .. last, with elements among them."""
        taken = self._intervals(elements, first, last)
        items: list[tuple[int, int, int, Element, Span | None]] = []
        for number, element in enumerate(elements):
            span = taken.get(number)
            place = span[0] if span else self._gap(element, first, last, list(taken.values()))
            items.append((place, 0 if span is None else 1, number, element, span))
        items.sort(key=lambda item: item[:3])
        written: list[str] = []
        at = begin
        for place, _, _, element, span in items:
            if span is None:
                where = max(at, self._character(element, place, first, last, begin, end))
                written += [self._escaped(at, where), self._empty(element, where)]
                at = where
                continue
            low, high = self.units[span[0]][0], self.units[span[1] - 1][1]
            written.append(self._escaped(at, low))
            if element.untouched:
                written.append(element.open)
            else:
                inner = self._between(element.children, span[0], span[1], low, high)
                written += [element.open, inner, element.close]
            at = high
        return "".join([*written, self._escaped(at, end)])

    def _escaped(self, begin: int, end: int) -> str:
        return html.escape(self.text[begin:end], quote=False)

    def _empty(self, element: Element, where: int) -> str:
        """An element around no word of the translation."""
        after = where < len(self.text) and not self.text[where].isspace()
        gap = " " if element.spaced and after else ""
        if not element.untouched:
            inner = "".join(self._empty(child, where) for child in element.children)
            return element.open + inner + element.close + gap
        if element.begin == element.end:
            return element.open + gap
        before = where > 0 and not self.text[where - 1].isspace()
        source = self.segment.text
        spaced = (element.begin == 0 or source[element.begin - 1].isspace()) and before
        return (" " if spaced else "") + element.open + (" " if after and self._space_after(element) else "")

    def _space_after(self, element: Element) -> bool:
        source = self.segment.text
        return element.end < len(source) and source[element.end].isspace()

    def _own(self, element: Element) -> range:
        """The units of the source that an element is around: those whose middle is in it, else the one it is in."""
        first, last = bisect_right(self.middles, element.begin), bisect_left(self.middles, element.end)
        if first < last or element.begin == element.end:
            return range(first, last)
        inside = bisect_right(self.begins, element.begin) - 1
        if inside >= 0 and self.ends[inside] > element.begin:
            return range(inside, inside + 1)
        return range(0)

    def _intervals(self, elements: list[Element], first: int, last: int) -> dict[int, Span]:
        """Which units of the translation each element goes around: a run with many of its own and few of others."""
        wishes: list[tuple[int, int, range | None, Span | None]] = []
        for number, element in enumerate(elements):
            own = self._own(element)
            found = self._verbatim(element, first, last) if element.untouched else None
            count = sum(s is not None and s in own for s in self.sources[first:last])
            if found or count:
                wishes.append((-(1 << 30) if found else -count, number, own, found))
        taken: dict[int, Span] = {}
        free = [True] * (last - first)
        for _, number, own, found in sorted(wishes, key=lambda wish: wish[:2]):
            assert own is not None
            span = found if found and all(free[found[0] - first : found[1] - first]) else None
            span = span or self._best_run(own, free, first, last)
            if span is not None:
                taken[number] = span
                free[span[0] - first : span[1] - first] = [False] * (span[1] - span[0])
        return taken

    def _best_run(self, own: range, free: list[bool], first: int, last: int) -> Span | None:
        best, best_sum = None, 0
        begin, total = None, 0
        for j in range(first, last):
            source = self.sources[j]
            if not free[j - first]:
                begin, total = None, 0
                continue
            if source is not None and source in own:
                if begin is None or total <= 0:
                    begin, total = j, 0
                total += 1
                if total > best_sum:
                    best, best_sum = (begin, j + 1), total
            elif begin is not None:
                total -= source is not None
        return best

    def _verbatim(self, element: Element, first: int, last: int) -> Span | None:
        """The units that are exactly what the model was shown of an untouched part, where that is so once."""
        shown = self.segment.text[element.begin : element.end]
        if not shown or first == last:
            return None
        low, high = self.units[first][0], self.units[last - 1][1]
        place = self.text.find(shown, low, high)
        if place < 0 or self.text.find(shown, place + 1, high) >= 0:
            return None
        inside = [j for j in range(first, last) if place <= self.units[j][0] and self.units[j][1] <= place + len(shown)]
        if not inside:
            return None
        exact = self.units[inside[0]][0] == place and self.units[inside[-1]][1] == place + len(shown)
        return (inside[0], inside[-1] + 1) if exact else None

    def _gap(self, element: Element, first: int, last: int, taken: list[Span]) -> int:
        """Before which unit an element goes that is around none: behind what was written from the words before it."""
        before = bisect_right(self.ends, element.begin)  # source units that end before it
        low, high, first, last = self._sentence(element, before, first, last)
        within = [(self.sources[j], j) for j in range(first, last)]
        earlier = [(s, j) for s, j in within if s is not None and s < before]
        later = [(s, j) for s, j in within if s is not None and s >= before]
        if before in (low, high):  # where its sentence begins or ends
            place = first if before == low else last
        elif earlier and (not later or before - max(earlier)[0] <= min(later)[0] - before + 1):
            place = max(earlier)[1] + 1
        elif later:
            place = min(later)[1]
        else:
            place = last if before else first
        for low, high in taken:
            if low < place < high:
                place = high if element.begin > 0 else low
        return place

    def _sentence(self, element: Element, before: int, first: int, last: int) -> tuple[int, int, int, int]:
        """The units of the source that are the element's sentence; and those of some units of the translation."""
        behind = element.begin > 0 and not self.segment.text[element.begin - 1].isspace()  # it follows a word at once
        unit = before - 1 if behind and before else before
        number = max(0, bisect_right([source for source, _ in self.sentences], unit) - 1)
        whole = [*self.sentences, (len(self.source_units), len(self.units))]
        (source, begin), (source_end, end) = whole[number], whole[number + 1]
        begin = min(max(first, begin), last)
        return source, source_end, begin, min(max(begin, end), last)

    def _character(self, element: Element, place: int, first: int, last: int, begin: int, end: int) -> int:
        """Where in the text: right behind the word before, or right before the next, as in the source."""
        source = self.segment.text
        after_space = element.begin == 0 or source[element.begin - 1].isspace()
        if after_space and place < last:
            return max(begin, self.units[place][0])
        if place > first:
            return min(end, self.units[place - 1][1])
        return begin if place <= first else end
