"""The verb `align`."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from regard.cli.line_progress import LineProgress
from regard.cli.outputs import check_outputs
from regard.core.errors import ConfigError, ModelError
from regard.core.files import whole_file
from regard.data.reading import PairReader, open_pairs
from regard.evaluation.aer import AlignmentScore, GoldFile
from regard.tasks.alignment import Aligner, LinkRule, Links
from regard.tasks.pretrained import load_translator
from regard.tasks.symmetrising import check_method, symmetrise
from regard.tasks.translation import Translator

CHUNK_LINES = 1024  # aligned at a time
USUAL_METHOD = "grow-diag-final-and"


def run_align(
    src: Path,
    tgt: Path,
    model: Path | None,
    out: Path | None,
    gold: Path | None,
    gold_from_one: bool,
    reverse: Path | None,
    method: str | None,
    rule: LinkRule,
    tag: str,
    reverse_tag: str,
    as_json: bool,
    device: str,
) -> None:
    _check_options(gold, gold_from_one, reverse, method, reverse_tag, as_json)
    check_outputs((out,), [src, tgt, *([gold] if gold is not None else [])])
    reader = open_pairs([src, tgt], "text")
    wanted = GoldFile(gold, from_one=gold_from_one) if gold is not None else None
    aligner = _Both(load_translator(model, device).tagged(tag), rule)
    if reverse is not None:
        aligner.add_reverse(load_translator(reverse, device).tagged(reverse_tag), rule, method or USUAL_METHOD)
    _check_text(reader, wanted)
    score = AlignmentScore()
    right = iter(wanted or ())
    done = 0
    with _writing(out, silent=wanted is not None) as write, _progress(out, wanted) as progress:
        for chunk in reader.chunks(CHUNK_LINES):
            found = aligner(chunk.sources, chunk.targets, done + 1)
            write("".join(pharaoh(links) + "\n" for links in found))
            for links, gold_links in zip(found, itertools.islice(right, len(found)), strict=wanted is not None):
                score.add(links, gold_links)
            done += len(found)
            progress(done)
    if aligner.skipped:
        first = f"the first at {aligner.first.where}: {aligner.first.what}" if aligner.first is not None else ""
        print(f"Warning: {aligner.skipped} of {done} pairs are too long and have no links, {first}.", file=sys.stderr)
    if wanted is not None:
        print(json.dumps(score.to_plain()) if as_json else score)


def pharaoh(links: Links) -> str:
    """Links as Moses and others write them: `0-0 1-2`, source word first, from 0."""
    return " ".join(f"{i}-{j}" for i, j in links)


class _Both:
    """Aligns with a model, and with one of the other direction where there is one."""

    def __init__(self, translator: Translator, rule: LinkRule):
        self._translator, self._forward = translator, Aligner(translator, rule)
        self._backward: Aligner | None = None
        self._method = ""
        self.skipped = 0  # pairs that are too long
        self.first: ModelError | None = None  # what is said of the first of them

    def add_reverse(self, translator: Translator, rule: LinkRule, method: str) -> None:
        check_method(method)
        _refuse_same_direction(self._translator, translator)
        self._backward, self._method = Aligner(translator, rule), method

    def __call__(self, sources: Sequence[str], targets: Sequence[str], first_line: int) -> list[Links]:
        long: dict[int, ModelError] = {}
        found = self._forward(sources, targets, too_long=long.__setitem__, first_line=first_line)
        if self._backward is not None:
            other = self._backward(targets, sources, too_long=long.__setitem__, first_line=first_line)
            turned = [[(i, j) for j, i in links] for links in other]
            found = [symmetrise(a, b, self._method) for a, b in zip(found, turned, strict=True)]
        for line in long:
            found[line - first_line] = []
        self.skipped += len(long)
        if long and self.first is None:
            self.first = long[min(long)]
        return found


def _check_options(
    gold: Path | None, gold_from_one: bool, reverse: Path | None, method: str | None, reverse_tag: str, as_json: bool
) -> None:
    """An option that would do nothing is a mistake."""
    for option, given, needed in (
        ("--json", as_json and gold is None, "--gold"),
        ("--gold-from-one", gold_from_one and gold is None, "--gold"),
        ("--symmetrise", method is not None and reverse is None, "--reverse"),
        ("--reverse-tag", reverse_tag and reverse is None, "--reverse"),
    ):
        if given:
            raise ConfigError(option, f"it does nothing without {needed}", f"Give {needed} too, or leave it out")
    if method is not None:
        check_method(method)


def _refuse_same_direction(forward: Translator, backward: Translator) -> None:
    def languages(translator: Translator) -> tuple[str, str]:
        data = translator.config.get("data", {})
        return data.get("source_language", ""), data.get("target_language", "")

    source, target = languages(forward)
    if source and target and source != target and languages(backward) == (source, target):
        raise ConfigError(
            "--reverse",
            f"both models translate from {source} to {target}",
            f"Give a model from {target} to {source}",
        )


def _check_text(reader: PairReader, gold: GoldFile | None) -> None:
    """Reads all text once before the long work: what is wrong with its last line is said now."""
    lengths = (
        (len(source.split()), len(target.split()))
        for chunk in reader.chunks()
        for source, target in zip(chunk.sources, chunk.targets, strict=True)
    )
    if gold is not None:
        gold.check(lengths)
    else:
        for _ in reader.chunks():
            pass


@contextlib.contextmanager
def _writing(out: Path | None, silent: bool) -> Iterator[Callable[[str], object]]:
    """Where alignments go: a file that appears when it is whole, or standard output, unless scores are printed there."""
    if out is None or str(out) == "-":
        yield (lambda text: None) if silent and out is None else sys.stdout.write
        return
    with whole_file(out) as file:
        yield lambda text: file.write(text.encode())


@contextlib.contextmanager
def _progress(out: Path | None, gold: GoldFile | None) -> Iterator[Callable[[int], None]]:
    """Says how far it is in a terminal to which nothing else is written meanwhile."""
    if out is None and gold is None and sys.stdout.isatty():
        yield lambda lines: None
        return
    with LineProgress("Aligning", every=math.inf) as progress:
        yield progress
