"""Writes a repaired and filtered copy of a corpus, with the list of every line that was left out and why."""

from __future__ import annotations

import difflib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard import __version__
from regard.core.errors import ConfigError, DataError
from regard.data.checks.alignment import AlignmentVerdict, Misaligned, Piece, judge, repair
from regard.data.checks.alignment_features import AlignmentFeatures
from regard.data.checks.clean_folder import CHANGES, DROPPED, REPORT, CleanFolder, check_place, escaped, output_names
from regard.data.checks.duplicates import HeldOutPairs, SeenPairs
from regard.data.checks.json_text import json_text
from regard.data.checks.lines import Profile, flag_lines
from regard.data.checks.mend import MENDS, UNLISTED, mend_lines, on_one_line
from regard.data.reading import PairReader
from regard.data.reading.standard_input import NAME as INPUT
from regard.data.split import Pairs

# Lines are dropped for these findings, in this order: the first that fits is the reason. True: unless they are kept.
FILTERS: dict[str, bool] = {
    "misaligned": True,
    "not-utf8": True,
    "lone-surrogates": True,
    "empty-pairs": True,
    "empty-side": True,
    "mojibake": True,
    "replacement-characters": True,
    "null-characters": True,
    "control-characters": True,
    "copied-source": True,
    "wrong-script": True,
    "wrong-language": True,
    "foreign-language": True,
    "long-lines": True,
    "length-ratio": True,
    "unbalanced-markup": True,
    "different-markup": True,
    "different-numbers": False,
    "byte-order-marks": False,
    "crlf": False,
    "line-separators": False,
    "mixed-normal-forms": False,
    "invisible-characters": False,
    "soft-hyphens": False,
    "special-spaces": False,
    "leaked-pairs": True,
    "leaked-sources": True,
    "duplicates": True,
    "near-duplicates": False,
}
_REPAIRED = ("misaligned", "unrelated", "line-counts")
_CUT_OFF = 50  # so many more lines at the end of one side were not lost on the way: it goes on where the other ends
_NEVER_KEPT = ("not-utf8", "lone-surrogates")  # the clean text is UTF-8
_CHUNK = 10_000
_SAMPLE = 20_000
Progress = Callable[[str, int], None]


@dataclass(frozen=True, kw_only=True)
class CleanResult:
    """What was written and what was left out. A dropped line of one side only counts like a dropped pair."""

    folder: Path
    files: tuple[str, str]  # names in the folder
    source_lines: int
    target_lines: int
    kept: int
    dropped: dict[str, int]  # by the reason
    mended: dict[str, int]  # lines of either side, by the mend
    misaligned: tuple[Misaligned, ...]  # stretches that were put right
    seconds: float

    def to_plain(self) -> dict[str, Any]:
        return {
            "files": list(self.files),
            "read": {"source_lines": self.source_lines, "target_lines": self.target_lines},
            "kept": self.kept,
            "dropped": self.dropped,
            "mended": self.mended,
            "misaligned": [
                {"begin": m.begin + 1, "end": m.end, "shift": m.shift, "nats": round(m.nats, 1)}
                for m in self.misaligned
            ],
            "seconds": round(self.seconds, 2),
        }


def clean_pairs(
    reader: PairReader,
    out: Path,
    *,
    filters: Collection[str] | None = None,
    mends: bool | Collection[str] = True,
    held_out: Mapping[str, PairReader] | None = None,
    languages: tuple[str, str] = ("", ""),
    command: str = "",
    progress: Progress | None = None,
) -> CleanResult:
    """Reads a corpus twice, to judge it and to write it: the folder `out` appears when all is done.

    In it are the clean text of both sides, `dropped.tsv` with all that was left out, `changes.tsv` with the lines whose
    letters were mended, and `report.json`. `filters` are names of FILTERS (those that are on, by default), `mends` names
    of MENDS. Files whose numbers of lines differ are taken if the places of the missing lines can be found.
    """
    began = time.monotonic()
    chosen = _names("filter", FILTERS, filters if filters is not None else [n for n, on in FILTERS.items() if on])
    chosen |= set(_NEVER_KEPT)
    mending = _names("mend", MENDS, MENDS if mends is True else mends or ())
    final = check_place(out, [file.place for file in reader.files])
    names = output_names(["pairs" if file.name == INPUT else file.place for file in reader.files], languages)
    survey = _Survey.of(reader, "misaligned" in chosen, mending, languages, progress)
    pieces = _pieces(reader, survey, "misaligned" in chosen)
    held = [HeldOutPairs(other.chunks()) for other in (held_out or {}).values()]
    with CleanFolder(final, [*names, DROPPED, CHANGES, REPORT]) as folder:
        folder.begin()
        writer = _Writer(folder, names, _Sieve(chosen, survey.profile, held), mending)
        for step in _steps(reader, pieces, survey.lines):
            writer.write(step)
            if progress is not None:
                progress("Writing", step.source_begin + len(step.sources))
        result = CleanResult(
            folder=final,
            files=names,
            source_lines=survey.lines[0],
            target_lines=survey.lines[1],
            kept=writer.kept,
            dropped={name: writer.dropped[name] for name in FILTERS if writer.dropped[name]},
            mended={name: writer.mended[name] for name in MENDS if writer.mended[name]},
            misaligned=survey.verdict.damage if survey.verdict is not None else (),
            seconds=time.monotonic() - began,
        )
        if not result.kept:
            most = max(result.dropped, key=lambda name: result.dropped[name], default="misaligned")
            raise DataError(
                " and ".join(reader.names),
                f"no pair is left, most are dropped for {most}",
                f"`regard data check` says more; --keep {most} keeps them, unless they are not text at all",
            )
        folder.write(REPORT, json_text(_report(result, reader, chosen, mending, held_out or {}, command)))
        folder.finish()
    return result


def what_it_does(name: str) -> str:
    """What `clean_pairs` does about a finding, in a word or two."""
    if name in _REPAIRED:
        return "repairs"
    if name in MENDS:
        return "mends, drops" if FILTERS.get(name) else "mends"
    return "drops" if FILTERS.get(name) else "with --drop" if name in FILTERS else ""


def _names(kind: str, known: Iterable[str], given: Iterable[str]) -> set[str]:
    known, given = list(known), list(given)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            todo = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}"
            raise ConfigError(f"{kind} {name!r}", "there is none of this name", todo)
    return set(given)


def _report(
    result: CleanResult,
    reader: PairReader,
    filters: Collection[str],
    mends: Collection[str],
    held_out: Mapping[str, PairReader],
    command: str,
) -> dict[str, Any]:
    return {
        "regard": __version__,
        "command": command,
        "inputs": {"files": list(reader.names), "sha256": reader.content_hash(), "skipped_rows": reader.skipped},
        "held_out": {name: list(other.names) for name, other in held_out.items()},
        "filters": [name for name in FILTERS if name in filters],
        "mends": [name for name in MENDS if name in mends],
        **result.to_plain(),
    }


# The first reading: what the corpus is like ---------------------------------------------------------------------------


class _Sample:
    """Pairs from all over a corpus of unknown length: every k-th one, where k doubles when there are too many."""

    def __init__(self, most: int):
        self.most, self.every, self.seen = most, 1, 0
        self.pairs: list[tuple[str, str]] = []

    def add(self, chunk: Pairs) -> None:
        together = min(len(chunk.sources), len(chunk.targets))
        first = -self.seen % self.every
        self.pairs += [(chunk.sources[i], chunk.targets[i]) for i in range(first, together, self.every)]
        self.seen += together
        while len(self.pairs) > self.most:
            self.pairs = self.pairs[::2]
            self.every *= 2


@dataclass(frozen=True)
class _Survey:
    """What the first reading tells."""

    lines: tuple[int, int]
    profile: Profile
    verdict: AlignmentVerdict | None  # None where it is not asked for

    @classmethod
    def of(
        cls,
        reader: PairReader,
        aligned: bool,
        mends: Collection[str],
        languages: tuple[str, str],
        progress: Progress | None,
    ) -> _Survey:
        features, sample, lines = AlignmentFeatures(), _Sample(_SAMPLE), [0, 0]
        for chunk in reader.chunks(_CHUNK, raw=True):
            if aligned:
                features.add(chunk)
            sample.add(chunk)
            lines[0] += len(chunk.sources)
            lines[1] += len(chunk.targets)
            if progress is not None:
                progress("Reading", lines[0])
        sides = [mend_lines([pair[side] for pair in sample.pairs], mends)[0] for side in (0, 1)]
        return cls((lines[0], lines[1]), Profile.learn(Pairs(*sides), languages), judge(features) if aligned else None)


def _pieces(reader: PairReader, survey: _Survey, mend: bool) -> list[Piece]:
    """The stretches of pairs to keep, in their order."""
    sources, targets = survey.lines
    where = " and ".join(reader.names)
    pieces = [Piece(0, 0, min(sources, targets))]
    if survey.verdict is not None:
        pieces = _in_order(repair(survey.verdict, sources, targets))
    if not pieces:
        raise DataError(where, "no line of the two sides belongs to the other side", "Check that the files are a pair")
    last = pieces[-1]
    over = abs((sources - last.source_begin) - (targets - last.target_begin))  # lines at the end without a partner
    cut_off = (
        survey.verdict is not None
        and over >= _CUT_OFF
        and last.length == min(sources - last.source_begin, targets - last.target_begin)
    )
    if sources != targets and over and not cut_off:
        found = "and where lines are missing cannot be found" if mend else "and --keep misaligned leaves that"
        raise DataError(
            where,
            f"the first has {sources:,} lines and the second {targets:,}, {found}",
            "Give files in which line n of one is the translation of line n of the other",
        )
    return pieces


def _in_order(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces that can be kept together where both sides are read from the beginning to the end: as much as can be."""
    pieces = sorted(pieces, key=lambda piece: piece.source_begin)
    begins, lengths = (np.array([getattr(p, name) for p in pieces]) for name in ("target_begin", "length"))
    total, before = lengths.copy(), np.full(len(pieces), -1)
    for i in range(len(pieces)):
        fits = np.flatnonzero(begins[:i] + lengths[:i] <= begins[i])
        if len(fits):
            before[i] = fits[np.argmax(total[fits])]
            total[i] += total[before[i]]
    chain, i = [], int(np.argmax(total)) if pieces else -1
    while i >= 0:
        chain.append(pieces[i])
        i = int(before[i])
    return chain[::-1]


# The second reading: what is kept and what is not ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Step:
    """Lines to be written: pairs, or what stands between pieces and belongs nowhere. Lines count from 0."""

    source_begin: int
    target_begin: int
    sources: list[str]
    targets: list[str]
    paired: bool


class _Sides:
    """The lines of both sides, each taken by itself."""

    def __init__(self, reader: PairReader):
        self._name = " and ".join(reader.names)
        self._chunks = reader.chunks(_CHUNK, raw=True)
        self._waiting: tuple[list[str], list[str]] = ([], [])

    def take(self, side: int, count: int) -> list[str]:
        waiting = self._waiting[side]
        while len(waiting) < count:
            chunk = next(self._chunks, None)
            if chunk is None:
                raise DataError(self._name, "the text has changed while it was read", "Start again")
            self._waiting[0].extend(chunk.sources)
            self._waiting[1].extend(chunk.targets)
        taken = waiting[:count]
        del waiting[:count]
        return taken


def _steps(reader: PairReader, pieces: Sequence[Piece], lines: tuple[int, int]) -> Iterator[_Step]:
    """All lines of both sides in their order, in steps of a size that fits into memory."""
    sides = _Sides(reader)
    source = target = 0
    for piece in [*pieces, Piece(lines[0], lines[1], 0)]:
        while source < piece.source_begin or target < piece.target_begin:
            counts = [min(piece.source_begin - source, _CHUNK), min(piece.target_begin - target, _CHUNK)]
            yield _Step(source, target, sides.take(0, counts[0]), sides.take(1, counts[1]), False)
            source, target = source + counts[0], target + counts[1]
        end = source + piece.length
        while source < end:
            count = min(end - source, _CHUNK)
            yield _Step(source, target, sides.take(0, count), sides.take(1, count), True)
            source, target = source + count, target + count


class _Sieve:
    """Says for each pair why it is dropped, or nothing."""

    def __init__(self, filters: Collection[str], profile: Profile, held_out: Sequence[HeldOutPairs]):
        self.filters = [name for name in FILTERS if name in filters]
        self.profile, self.held_out, self.seen = profile, held_out, SeenPairs()

    def reasons(self, chunk: Pairs) -> np.ndarray:
        reasons = np.full(len(chunk), "", dtype=object)
        masks = flag_lines(chunk, self.profile)
        self._apply(masks, reasons, np.arange(len(chunk)))
        for held in self.held_out:
            rows = np.flatnonzero(reasons == "")
            self._apply(held.add(chunk.take(rows.tolist())), reasons, rows)
        rows = np.flatnonzero(reasons == "")  # what was dropped otherwise is no first copy
        self._apply(self.seen.add(chunk.take(rows.tolist())), reasons, rows)
        return reasons

    def _apply(self, masks: Mapping[str, np.ndarray], reasons: np.ndarray, rows: np.ndarray) -> None:
        for name in self.filters:
            if name in masks:
                hit = rows[masks[name]]
                reasons[hit[reasons[hit] == ""]] = name


class _Writer:
    """Writes the lines of steps where they belong, and counts."""

    def __init__(self, folder: CleanFolder, names: tuple[str, str], sieve: _Sieve, mends: Collection[str]):
        self.folder, self.names, self.sieve, self.mends = folder, names, sieve, mends
        self.kept = 0
        self.dropped: Counter[str] = Counter()
        self.mended: Counter[str] = Counter()
        folder.write(DROPPED, "source_line\ttarget_line\treason\tsource\ttarget\n")
        folder.write(CHANGES, "side\tline\tmends\tbefore\tafter\n")

    def write(self, step: _Step) -> None:
        if not step.paired:
            self._drop_all(step)
            return
        chunk = Pairs(
            self._mend("source", step.source_begin, step.sources), self._mend("target", step.target_begin, step.targets)
        )
        reasons = self.sieve.reasons(chunk)
        for i in np.flatnonzero(reasons != "").tolist():
            numbers = (step.source_begin + i + 1, step.target_begin + i + 1)
            self._drop(numbers, str(reasons[i]), step.sources[i], step.targets[i])
        kept = np.flatnonzero(reasons == "").tolist()
        for name, lines in zip(self.names, (chunk.sources, chunk.targets), strict=True):
            self.folder.write(name, "".join(lines[i] + "\n" for i in kept))
        self.kept += len(kept)

    def _mend(self, side: str, begin: int, lines: list[str]) -> list[str]:
        mended, changed, counts = mend_lines(lines, self.mends)
        self.mended += counts
        for place, names in changed.items():
            if not UNLISTED.issuperset(names):
                cells = (side, str(begin + place + 1), ",".join(names), escaped(lines[place]), escaped(mended[place]))
                self.folder.write(CHANGES, "\t".join(cells) + "\n")
        return [on_one_line(line) for line in mended]

    def _drop_all(self, step: _Step) -> None:
        for i in range(max(len(step.sources), len(step.targets))):
            source, target = (lines[i] if i < len(lines) else None for lines in (step.sources, step.targets))
            self._drop((step.source_begin + i + 1, step.target_begin + i + 1), "misaligned", source, target)

    def _drop(self, numbers: tuple[int, int], reason: str, source: str | None, target: str | None) -> None:
        cells = [str(n) if text is not None else "" for n, text in zip(numbers, (source, target), strict=True)]
        cells += [reason, escaped(source or ""), escaped(target or "")]
        self.folder.write(DROPPED, "\t".join(cells) + "\n")
        self.dropped[reason] += 1
