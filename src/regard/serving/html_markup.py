"""HTML and XML cut into what is translated and what is not, so that putting all parts together gives the document back.

Tags are kept as they were written: nothing here takes attributes apart, but to see whether one says `translate="no"`.
"""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Iterator, Sequence
from typing import Literal

TokenKind = Literal["text", "open", "close", "void", "raw"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


VOID = _names("area base br col embed hr img input link meta param source track wbr")
# Text stops at these; all others stand within a sentence.
BLOCKS = _names(
    "html head body title meta link base address article aside blockquote center dd details dialog dir div dl dt "
    "fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 header hgroup hr legend li main menu nav "
    "noscript ol p section summary table caption colgroup col tbody td tfoot th thead tr ul br option optgroup select "
    "datalist template iframe video audio object marquee search pre textarea script style svg math"
)
RAW = _names("script style textarea xmp iframe noembed noframes")  # what stands in them is no markup
UNTOUCHED = RAW | _names("code pre kbd samp var svg math")  # not translated
MOST_INLINE = 200  # tags within one sentence; where there are more, text stops at each
MOST_SHOWN = 60  # characters of an untouched part that the model is shown, so that the sentence around it is whole
ROUNDS = 3

_NAME = r"[A-Za-z_:][^\s/>\"'=<]*+"
_OPEN = re.compile(rf"<({_NAME})(?:[^\"'>]|\"[^\"]*\"|'[^']*')*+>")
_LOOSE = re.compile(rf"<({_NAME})[^>]*+>")  # with a quote that does not end
_CLOSE = re.compile(rf"</({_NAME})[^>]*+>")
_MARK = re.compile(r"<!--|<!\[CDATA\[|<!|<\?")
_ENDS = {"<!--": "-->", "<![CDATA[": "]]>", "<!": ">", "<?": ">"}
_ATTRIBUTE = re.compile(r"([^\s\"'>/=]++)(?:\s*+=\s*+(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]++)))?+")
_SPACE = re.compile(r"[ \t\r\n\f]+")


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """A piece of a document: text, a tag, or something that stays as it is."""

    kind: TokenKind
    raw: str
    name: str = ""  # of a tag; in HTML in small letters
    shown: str = ""  # of something that stays: what the model is shown of it
    ends_text: bool = False


@dataclasses.dataclass(slots=True)
class Element:
    """A tag pair, a single tag or an untouched part within a sentence, and which characters of its text it is around."""

    open: str
    close: str
    begin: int
    end: int = 0
    untouched: bool = False  # `open` is all of it; begin .. end is what the model is shown of it
    spaced: bool = False  # around nothing, and white space stands on both sides of it
    children: list[Element] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Segment:
    """Text that is translated as a whole, with the elements in it. `lead` and `trail` are white space around it."""

    text: str
    elements: list[Element]
    lead: str = ""
    trail: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """How markup is read. Of XML, tags with text beside them are inline, and others end a text, unless they are named here."""

    xml: bool = False
    outline: bool = True  # of XML: find out which tags end a text; else all are inline
    splitting: frozenset[str] = frozenset()
    inline: frozenset[str] = frozenset()
    untouched: frozenset[str] = frozenset()


HTML = Rules()


def tokens_of(text: str, rules: Rules = HTML) -> list[Token]:
    """The pieces of a document; their `raw` in a row is the document."""
    return _with_untouched(list(_plain_tokens(text, rules)), rules)


def _plain_tokens(text: str, rules: Rules) -> Iterator[Token]:
    last_end = text.rfind(">")  # behind it, nothing is a tag
    begin = place = 0
    while (place := text.find("<", place)) >= 0 and place < last_end:
        token = _token_at(text, place, rules)
        if token is None:
            place += 1
            continue
        if begin < place:
            yield Token("text", text[begin:place])
        yield token
        begin = place = place + len(token.raw)
        if token.kind == "open" and not rules.xml and token.name in RAW | {"title"}:
            ended = re.compile(rf"</{re.escape(token.name)}(?=[\s/>])", re.IGNORECASE).search(text, begin)
            if ended and ended.start() > begin:
                yield Token("text" if token.name == "title" else "raw", text[begin : ended.start()])
                begin = place = ended.start()
    if begin < len(text):
        yield Token("text", text[begin:])


def _token_at(text: str, place: int, rules: Rules) -> Token | None:
    mark = _MARK.match(text, place)
    if mark:
        ending = _ENDS[mark[0]]
        end = text.find(ending, mark.end())
        if end < 0:
            return None
        return Token("raw", text[place : end + len(ending)], ends_text=mark[0] != "<!--")
    found = _CLOSE.match(text, place)
    if found:
        return Token("close", found[0], _named(found[1], rules))
    found = _OPEN.match(text, place) or _LOOSE.match(text, place)
    if not found:
        return None
    name = _named(found[1], rules)
    single = found[0].endswith("/>") or (not rules.xml and name in VOID)
    return Token("void" if single else "open", found[0], name)


def _named(name: str, rules: Rules) -> str:
    return name if rules.xml else name.lower()


def _with_untouched(tokens: list[Token], rules: Rules) -> list[Token]:
    """Elements that are not translated as single pieces; and of each piece whether text ends at it."""
    ends = _matches(tokens)
    blocks = _outline(tokens, ends) if rules.xml and rules.outline else set()
    found: list[Token] = []
    place = 0
    while place < len(tokens):
        token = tokens[place]
        stops = token.ends_text or _ends_text(token, place in blocks, rules)
        if token.kind == "open" and place in ends and _is_untouched(token, rules):
            last = ends[place]
            inside = "".join(t.raw for t in tokens[place + 1 : last] if t.kind == "text")
            shown = _SPACE.sub(" ", html.unescape(inside)).strip(" ")
            whole = "".join(t.raw for t in tokens[place : last + 1])
            found.append(Token("raw", whole, token.name, shown if len(shown) <= MOST_SHOWN else "", stops))
            place = last + 1
            continue
        found.append(dataclasses.replace(token, ends_text=stops))
        place += 1
    return found


def _matches(tokens: Sequence[Token]) -> dict[int, int]:
    """The place of the tag that closes each one, whatever stands between."""
    waiting: dict[str, list[int]] = {}
    found: dict[int, int] = {}
    for place, token in enumerate(tokens):
        if token.kind == "open":
            waiting.setdefault(token.name, []).append(place)
        elif token.kind == "close" and waiting.get(token.name):
            found[waiting[token.name].pop()] = place
    return found


def _outline(tokens: Sequence[Token], ends: dict[int, int]) -> set[int]:
    """The places of the tags of XML beside which no text stands."""
    has_text: list[bool] = [False]
    inside: list[list[int]] = [[]]
    blocks: set[int] = set()

    def leave() -> None:
        if not has_text[-1]:
            blocks.update(inside[-1])

    for place, token in enumerate(tokens):
        if token.kind == "text":
            has_text[-1] = has_text[-1] or bool(token.raw.strip())
        elif token.kind in ("open", "void"):
            inside[-1].append(place)
            if place in ends:
                inside[-1].append(ends[place])
                has_text.append(False)
                inside.append([])
        elif token.kind == "close" and len(inside) > 1:
            leave()
            has_text.pop()
            inside.pop()
    while inside:
        leave()
        has_text.pop()
        inside.pop()
    return blocks


def _ends_text(token: Token, block: bool, rules: Rules) -> bool:
    if token.kind in ("text", "raw") or token.name in rules.inline:
        return False
    return token.name in rules.splitting or (block if rules.xml else token.name in BLOCKS)


def _is_untouched(token: Token, rules: Rules) -> bool:
    if token.name in rules.untouched or (not rules.xml and token.name in UNTOUCHED):
        return True
    lowered = token.raw.lower()
    if "translate" not in lowered:
        return False
    for name, double, single, bare in _ATTRIBUTE.findall(lowered[1 + len(token.name) : -1]):
        value = double or single or bare
        if (name == "translate" and value == "no") or (name == "class" and "notranslate" in value.split()):
            return True
    return False


def parts_of(text: str, rules: Rules = HTML) -> list[str | Segment]:
    """A document as what stays and what is translated, in its order."""
    parts: list[str | Segment] = []
    waiting: list[Token] = []
    for token in tokens_of(text, rules):
        if token.ends_text:
            parts += _segments(waiting)
            parts.append(token.raw)
            waiting = []
        else:
            waiting.append(token)
    return [*parts, *_segments(waiting)]


def _segments(tokens: list[Token], rounds: int = 0) -> Iterator[str | Segment]:
    """What stands between two ends of text. A tag without its other half ends the text, too: where it stands, it stays."""
    if not any(token.kind == "text" and token.raw.strip() for token in tokens):
        yield "".join(token.raw for token in tokens)
        return
    all_of_them = rounds >= ROUNDS or sum(token.kind != "text" for token in tokens) > MOST_INLINE
    cuts = {p for p, t in enumerate(tokens) if t.kind != "text"} if all_of_them else _unmatched(tokens)
    if not cuts:
        yield _segment(tokens)
        return
    begin = 0
    for place in [*sorted(cuts), len(tokens)]:
        if begin < place:
            yield from _segments(tokens[begin:place], rounds + 1)
        if place < len(tokens):
            yield tokens[place].raw
        begin = place + 1


def _unmatched(tokens: Sequence[Token]) -> set[int]:
    waiting: list[int] = []
    found: set[int] = set()
    for place, token in enumerate(tokens):
        if token.kind == "open":
            waiting.append(place)
        elif token.kind == "close":
            if waiting and tokens[waiting[-1]].name == token.name:
                waiting.pop()
            else:
                found.add(place)
    return found | set(waiting)


def _segment(tokens: Sequence[Token]) -> Segment:
    """Text with white space as a browser shows it, and the elements in it by places in that text."""
    text: list[str] = []
    length = 0
    lead, pending = "", ""  # white space before everything; and that which is not written yet
    root = Element("", "", 0)
    path = [root]
    recent: list[Element] = []  # those around nothing since the last word, with white space before them

    def write(more: str) -> None:
        nonlocal length, pending
        recent.clear()
        if pending and length:
            text.append(" ")
            length += 1
        pending = ""
        text.append(more)
        length += len(more)

    for token in tokens:
        if token.kind == "text":
            words = _SPACE.split(html.unescape(token.raw))
            for number, word in enumerate(words):
                if number:
                    pending = " "
                    for element in recent:
                        element.spaced = True
                if word:
                    if not length:
                        lead = " " if pending else ""
                    write(word)
        elif token.kind == "open":
            path[-1].children.append(Element(token.raw, "", length + bool(pending and length)))
            path.append(path[-1].children[-1])
        elif token.kind == "close":
            element = path.pop()
            element.close, element.end = token.raw, max(length, element.begin)
            if element.begin == element.end and pending:
                recent.append(element)
        elif token.shown:
            begin = length + bool(pending and length)
            write(token.shown)
            path[-1].children.append(Element(token.raw, "", begin, length, untouched=True))
        else:
            begin = length + bool(pending and length)
            path[-1].children.append(Element(token.raw, "", begin, begin, untouched=True))
            if pending:
                recent.append(path[-1].children[-1])
    for element in _all(root):
        element.begin, element.end = min(element.begin, length), min(element.end, length)
    first, last = tokens[0], tokens[-1]
    found = Segment("".join(text), root.children)
    if first.kind == "text" and lead:
        found.lead = first.raw[: len(first.raw) - len(first.raw.lstrip(" \t\r\n\f"))]
    if last.kind == "text":
        found.trail = last.raw[len(last.raw.rstrip(" \t\r\n\f")) :]
    elif pending:
        found.trail = " "
    return found


def _all(element: Element) -> Iterator[Element]:
    waiting = list(element.children)
    while waiting:
        one = waiting.pop()
        yield one
        waiting += one.children
