"""Checks a corpus in one pass: lines, duplicates, leaks, languages and alignment, and says what is damaged."""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np

from regard.core.errors import DataError
from regard.data.checks import whole_text
from regard.data.checks.alignment import AlignmentFeatures, AlignmentVerdict, judge
from regard.data.checks.block import PairBlock, blocks_of
from regard.data.checks.collecting import Gathered, Gathering, example
from regard.data.checks.duplicates import HeldOutPairs, SeenPairs, SimilarPairs
from regard.data.checks.findings import FINDINGS, ORDER, known_names
from regard.data.checks.languages import claimed_by_names
from regard.data.checks.lines import Profile, flag_block
from regard.data.checks.places import Places
from regard.data.checks.report import Finding, Report
from regard.data.checks.statistics import Tally
from regard.data.split import Pairs

__all__ = ["FINDINGS", "PairSource", "check_pairs", "known_names", "profile_of"]

_SAMPLE = 20_000
_SHOWN = 3  # stretches of lines that an example is shown of
_MARK = "\ufeff"
_SEVERITIES = ("damage", "warning", "note")


class PairSource(Protocol):
    """What is checked: `regard.data.reading.PairReader`, or anything that has these two."""

    @property
    def names(self) -> tuple[str, ...]: ...
    def chunks(self, size: int = 10_000, raw: bool = False) -> Iterator[Pairs]: ...


def check_pairs(
    reader: PairSource,
    *,
    held_out: Mapping[str, PairSource] | None = None,
    allow: Iterable[str] = (),
    languages: tuple[str, str] = ("", ""),
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Looks for every kind of damage in FINDINGS, and says what was found.

    `held_out` are texts, by their names, whose sentences must not be in this one. `allow` names findings that are said
    but do not refuse the corpus. `languages` are what the sides should be, where their files' names do not say it.
    `progress` is called with the number of pairs that are done.
    """
    began = time.perf_counter()
    allowed = known_names(allow)
    parts = {name: HeldOutPairs(part.chunks(raw=True)) for name, part in (held_out or {}).items()}
    profile = profile_of(reader, languages)
    work = _Work(profile, parts)
    with ThreadPoolExecutor(1, thread_name_prefix="alignment") as pool:
        adding: Future[None] | None = None
        for chunk in reader.chunks(raw=True):
            if adding is not None:
                adding.result()
            adding = pool.submit(work.features.add, chunk)
            work.add(chunk)
            if progress is not None:
                progress(work.gathering.pairs)
        judging = pool.submit(judge, work.features)
        statistics = work.tally.statistics()
        work.add_similar()
        verdict = judging.result()
    if not work.gathering.pairs:
        raise DataError(" and ".join(reader.names), "it has no pairs of lines", "Give a file with some")
    found = [_with_examples(reader, one, verdict) for one in work.findings(reader.names, verdict)]
    findings = [dataclasses.replace(f, allowed=f.name in allowed) for f in found]
    findings.sort(key=lambda f: (_SEVERITIES.index(f.severity), ORDER[f.name]))
    extra = {
        "languages": [side.language.code for side in (profile.source, profile.target)],
        "ratio_unit": work.tally.ratio_unit,
        "alignment_nats": round(float(verdict.nats), 1),
        "alignment_judged": verdict.judged,
        "held_out": {name: {"lines": part.lines, **part.leaked()} for name, part in parts.items()},
        "places": work.places({finding.name for finding in findings}, verdict),
    }
    return Report(tuple(reader.names), statistics, tuple(findings), time.perf_counter() - began, extra)


def profile_of(reader: PairSource, languages: tuple[str, str] = ("", "")) -> Profile:
    """What a corpus is like, from an even sample of all of it: files may be sorted."""
    named = claimed_by_names(reader.names)
    claimed = (languages[0] or named[0], languages[1] or named[1])
    sample, step, begin = Pairs(), 1, 0
    for chunk in reader.chunks(raw=True):
        whole = min(len(chunk.sources), len(chunk.targets))
        places = slice(-begin % step, whole, step)
        sample.sources += chunk.sources[places]
        sample.targets += chunk.targets[places]
        begin += whole
        while len(sample) > _SAMPLE:
            sample = Pairs(sample.sources[::2], sample.targets[::2])
            step *= 2
    return Profile.learn(sample, claimed)


def _with_examples(reader: PairSource, found: Finding, verdict: AlignmentVerdict) -> Finding:
    """A finding about stretches of lines with pairs from the middle of the first of them, as they stand in the files."""
    if found.name not in ("misaligned", "unrelated") or found.examples:
        return found
    stretches = [s for s in verdict.damage or verdict.doubtful if (s.shift is None) == (found.name == "unrelated")]
    wanted = sorted({(s.begin + s.end) // 2 for s in stretches[:_SHOWN]})
    examples, begin = [], 0
    for chunk in reader.chunks(raw=True):
        whole = min(len(chunk.sources), len(chunk.targets))
        for place in wanted:
            if begin <= place < begin + whole:
                examples.append(example(place + 1, chunk.sources[place - begin], chunk.targets[place - begin]))
        begin += whole
        if not wanted or begin > wanted[-1] or whole < len(chunk.sources):
            break
    return dataclasses.replace(found, examples=tuple(examples))


class _Work:
    """All that is gathered in the pass over a corpus."""

    def __init__(self, profile: Profile, held_out: Mapping[str, HeldOutPairs]):
        self.profile, self.held_out = profile, held_out
        self.features = AlignmentFeatures()
        self.tally = Tally(profile)
        self.gathering = Gathering()
        self.seen = SeenPairs()
        self.similar = SimilarPairs(profile.source.unspaced, profile.target.unspaced)
        self.leaked = {name: defaultdict(Gathered) for name in held_out}
        self.counts = [0, 0]  # lines of the two sides
        self.marks = 0  # byte order marks at the beginning of a file
        self.same = 0  # pairs with the same text on both sides

    def add(self, chunk: Pairs) -> None:
        if not any(self.counts):
            chunk = self._without_marks(chunk)
        self.counts = [
            count + len(side) for count, side in zip(self.counts, (chunk.sources, chunk.targets), strict=True)
        ]
        for block in blocks_of(chunk):
            self._add_block(block)

    def _add_block(self, block: PairBlock) -> None:
        flags = flag_block(block, self.profile)
        repeated = self.seen.add_block(block)
        self.similar.add_block(block, repeated["duplicates"] | repeated["near-duplicates"])
        for name, part in self.held_out.items():
            for finding, mask in part.add_block(block).items():
                if mask.any():
                    self.leaked[name][finding].add(mask, block, self.gathering.pairs)
        self.tally.add(block)
        self.same += int((block.whole & (block.source.keys == block.target.keys)).sum())
        self.gathering.add(block, flags, repeated)

    def _without_marks(self, chunk: Pairs) -> Pairs:
        sides = []
        for lines in (chunk.sources, chunk.targets):
            marked = bool(lines) and lines[0].startswith(_MARK)
            self.marks += marked
            sides.append([lines[0].removeprefix(_MARK), *lines[1:]] if marked else lines)
        return Pairs(*sides)

    def add_similar(self) -> None:
        """Counts the pairs that are similar to earlier ones, which is known at the end only."""
        self.gathering.add_lines("similar-pairs", np.flatnonzero(self.similar.repeats()))

    def findings(self, names: tuple[str, ...], verdict: AlignmentVerdict) -> Iterator[Finding]:
        counts = (self.counts[0], self.counts[1])
        yield from whole_text.line_counts(names, counts, verdict)
        yield from whole_text.alignment(verdict, self.gathering.pairs)
        yield from whole_text.languages(self.profile, names, self.gathering.pairs)
        yield from whole_text.held_out_texts(self.held_out, self.leaked)
        yield from whole_text.line_ends(self.gathering)
        yield from whole_text.order_marks(self.gathering, self.marks)
        same = whole_text.same_file(self.gathering, self.same)
        yield from same
        told = {"crlf", "byte-order-marks"} | ({"copied-source"} if same else set())
        for name in self.gathering.found.keys() - told:
            yield self.gathering.finding(name, self._more(name))

    def places(self, names: Iterable[str], verdict: AlignmentVerdict) -> dict[str, list[int]]:
        """How many lines of each finding are in each of at most 200 equal parts of the corpus."""
        stretches: dict[str, Places] = defaultdict(Places)
        for one in (*verdict.damage, *verdict.doubtful):
            stretches["unrelated" if one.shift is None else "misaligned"].add_stretch(one.begin, one.end)
        found = {name: gathered.places for name, gathered in self.gathering.found.items()} | stretches
        found["mixed-line-ends"] = found.get("crlf", Places())
        for leaked in self.leaked.values():
            found |= {name: gathered.places for name, gathered in leaked.items()}
        return {name: found[name].parts(max(self.counts)) for name in sorted(names) if name in found}

    def _more(self, name: str) -> str:
        if name == "duplicates":
            different, most = self.seen.most_copies()
            many = f"{different:,} different pairs stand" if different != 1 else "one pair stands"
            return f"; {many} there up to {most:,} times"
        if name == "similar-pairs" and not self.similar.complete:
            return "; only the first 4 million pairs were compared"
        return ""
