"""Findings about a whole text: its files, their languages, their alignment, and what it shares with held-out text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from regard.data.checks.alignment import AlignmentVerdict, Misaligned
from regard.data.checks.collecting import Gathered, Gathering, make_finding
from regard.data.checks.duplicates import HeldOutPairs
from regard.data.checks.findings import severity_of
from regard.data.checks.function_words import name_of
from regard.data.checks.lines import Profile
from regard.data.checks.report import Finding, Severity
from regard.data.checks.wording import numbered, percent, stretch

_SAME_FILE = 0.95  # of all pairs have the same text on both sides
_LEAST_PAIRS = 3
_MOST_STRETCHES = 3


def line_counts(names: Sequence[str], counts: tuple[int, int], verdict: AlignmentVerdict) -> list[Finding]:
    """Whether both sides have as many lines; if not, near which line one was lost."""
    if counts[0] == counts[1]:
        return []
    files = names if len(names) == 2 else ("the source", "the target")
    what = f"{files[0]} has {counts[0]:,} lines and {files[1]} has {counts[1]:,}"
    todo = "Give files in which line n of one is the translation of line n of the other"
    shifted = [found for found in verdict.damage if found.shift is not None]
    if shifted:
        what += f"; they part at {_near(shifted[0])}"
        todo = f"{_what_to_look_for(shifted[0])}; `regard data clean` pairs the lines anew"
    difference = abs(counts[0] - counts[1])
    return [make_finding("line-counts", "damage", difference, difference / max(counts), what + ".", (), todo)]


def alignment(verdict: AlignmentVerdict, pairs: int) -> list[Finding]:
    """Stretches of lines that belong to other lines, and those that belong to none."""
    findings: list[Finding] = []
    levels: tuple[tuple[Severity, tuple[Misaligned, ...]], ...] = (
        ("damage", verdict.damage),
        ("warning", verdict.doubtful),
    )
    for severity, stretches in levels:
        shifted = [found for found in stretches if found.shift is not None]
        borders = {border for found in shifted for border in (found.begin, found.end)}
        # lines without a partner between shifted stretches are part of the same damage
        alone = [found for found in stretches if found.shift is None and not {found.begin, found.end} & borders]
        for name, some in (("misaligned", shifted), ("unrelated", alone)):
            if some and not any(found.name == name for found in findings):
                findings.append(_misaligned(name, severity, some, pairs))
    return findings


def _misaligned(name: str, severity: Severity, stretches: Sequence[Misaligned], pairs: int) -> Finding:
    count = sum(found.end - found.begin for found in stretches)
    shown = _described(stretches)
    more = f"; and {len(shown) - _MOST_STRETCHES:,} more such places" if len(shown) > _MOST_STRETCHES else ""
    first = stretches[0]
    if severity == "damage" and first.shift is not None:
        todo = f"{_what_to_look_for(first)}; `regard data clean` pairs the lines anew"
    else:
        todo = f"Compare both sides at {stretch(first.begin, first.end)}"
        todo += "; `regard data clean` drops these lines" if severity == "damage" else ""
    what = f"Source {'; '.join(shown[:_MOST_STRETCHES])}{more}."
    return make_finding(name, severity, count, count / max(1, pairs), what, (), todo)


def _described(stretches: Sequence[Misaligned]) -> list[str]:
    parts, rest = [], list(stretches)
    while rest:
        found = rest.pop(0)
        if (
            rest
            and (found.shift, rest[0].shift) == (1, -1)
            and found.end - found.begin == 1
            and rest[0].begin == found.end
        ):
            rest.pop(0)
            parts.append(
                f"lines {found.begin + 1:,} and {found.begin + 2:,} seem to be swapped ({found.nats:,.0f} nats)"
            )
        else:
            parts.append(_describe(found))
    return parts


def _describe(found: Misaligned) -> str:
    fit, their = ("fits", "its") if found.end - found.begin == 1 else ("fit", "their")
    lines = stretch(found.begin, found.end)
    if found.shift is None:
        return f"{lines} {fit} neither {their} target nor those near it ({found.nats:,.0f} nats)"
    far = f"{abs(found.shift)} {'line' if abs(found.shift) == 1 else 'lines'}"
    far += " further on" if found.shift > 0 else " further back"
    return f"{lines} {fit} the target {far} better than {their} own ({found.nats:,.0f} nats)"


def _near(found: Misaligned) -> str:
    first, last = found.begin_range
    return f"line {first + 1:,}" if first == last else f"lines {first + 1:,} to {last + 1:,}"


def _what_to_look_for(found: Misaligned) -> str:
    """Where a line was lost or added, and on which side."""
    shift = found.shift or 0
    many = "a line is" if abs(shift) == 1 else f"{abs(shift)} lines are"
    lost, added = ("source", "target") if shift > 0 else ("target", "source")
    return f"Look at {_near(found)}: {many} missing in the {lost} there, or too many in the {added}"


def same_file(gathering: Gathering, same: int) -> list[Finding]:
    """Whether the two sides are one text."""
    share = same / gathering.pairs
    if share < _SAME_FILE or same < _LEAST_PAIRS:
        return []
    what = f"{same:,} of {gathering.pairs:,} pairs ({percent(share)}) have the same text on both sides."
    return [make_finding("same-file", "damage", same, share, what)]


def line_ends(gathering: Gathering) -> list[Finding]:
    """Whether lines end as on Windows, and whether all of them do."""
    if "crlf" not in gathering.found:
        return []
    sides = gathering.found["crlf"].sides
    mixed = any(0 < side < gathering.pairs - 1 for side in sides)  # the end of the last line may be missing
    return [gathering.finding("mixed-line-ends" if mixed else "crlf", of="crlf")]


def order_marks(gathering: Gathering, at_beginning: int) -> list[Finding]:
    """Byte order marks inside the text, and those at the beginning of a file, which do no harm."""
    if "byte-order-marks" in gathering.found:
        return [gathering.finding("byte-order-marks")]
    if not at_beginning:
        return []
    what = f"{'A file begins' if at_beginning == 1 else 'Both files begin'} with a byte order mark."
    todo = "Nothing: it is taken off when the file is read"
    return [make_finding("byte-order-marks", "note", at_beginning, at_beginning / gathering.pairs, what, (), todo)]


def languages(profile: Profile, names: Sequence[str], pairs: int) -> list[Finding]:
    """Whether the sides are in the languages that they are said to be in."""
    source, target = profile.source, profile.target
    wrong = [side.language.contradicts(side.claimed) for side in (source, target)]
    if all(wrong) and source.language.code == target.claimed and target.language.code == source.claimed:
        what = (
            f"The source should be {name_of(source.claimed)} and the target {name_of(target.claimed)}, "
            "but it is the other way round."
        )
        return [make_finding("swapped-languages", "damage", pairs, 1.0, what)]
    findings = []
    for i, (side, role) in enumerate(((source, "source"), (target, "target"))):
        if wrong[i]:
            file = f" ({names[i]})" if len(names) == 2 else ""
            is_, should = name_of(side.language.code), name_of(side.claimed)
            what = f"The {role}{file} should be {should}, but most of it looks like {is_}."
            findings.append(make_finding("unexpected-language", "damage", pairs, 1.0, what))
    return findings


def held_out_texts(
    parts: Mapping[str, HeldOutPairs], gathered: Mapping[str, Mapping[str, Gathered]]
) -> Iterator[Finding]:
    """What is wrong with the held-out texts; `gathered` are the training lines that are in each of them."""
    for place, (name, part) in enumerate(parts.items()):
        if part.counts[0] != part.counts[1]:
            what = f"The {name} text has {part.counts[0]:,} source lines and {part.counts[1]:,} target lines."
            difference = abs(part.counts[0] - part.counts[1])
            todo = "Give files in which line n of one is the translation of line n of the other"
            yield make_finding("line-counts", "damage", difference, difference / max(part.counts), what, (), todo)
        if part.lines:
            yield from _leaks(name, part, gathered[name])
            for other in list(parts)[:place]:
                if shared := part.shared(parts[other]):
                    share = shared / part.lines
                    what = f"{_so_many(shared, part, 'pairs', name)} {_are(shared)} also in the {other} text."
                    todo = "Use one of the two texts to choose a model, and another one to judge it"
                    yield make_finding("leaked-pairs", "warning", shared, share, what, (), todo)


def _leaks(part: str, held_out: HeldOutPairs, gathered: Mapping[str, Gathered]) -> Iterator[Finding]:
    counts = held_out.leaked()
    for name, things in (("leaked-pairs", "pairs"), ("leaked-sources", "sources")):
        count = counts[name]
        if not count or (name == "leaked-sources" and count == counts["leaked-pairs"]):
            continue
        lines = gathered[name]
        where = numbered(lines.lines, lines.count)
        what = f"{_so_many(count, held_out, things, part)} {_are(count)} also in the training text, {where}."
        todo = f"`regard data clean` with the {part} text drops them from the training text"
        share = count / held_out.lines
        yield make_finding(name, severity_of(name, count, share), count, share, what, tuple(lines.examples), todo)


def _so_many(count: int, held_out: HeldOutPairs, things: str, part: str) -> str:
    return f"{count:,} of the {held_out.lines:,} {things} of the {part} text ({percent(count / held_out.lines)})"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
