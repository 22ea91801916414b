"""Finds lines that are damaged or do not belong: what a corpus is like, and which of its pairs are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from regard.data.checks.block import Block, PairBlock, blocks_of
from regard.data.checks.characters import COMPOSED, LETTER, MARKUP, SCRIPT_SHIFT
from regard.data.checks.encoding import encoding_flags
from regard.data.checks.foreign_words import ForeignWords
from regard.data.checks.function_words import FUNCTION_WORDS, code_of
from regard.data.checks.grams import SideTable, learn_tables
from regard.data.checks.languages import Recognised, recognise
from regard.data.checks.markup import markup_agrees, tags_balance
from regard.data.checks.numbers import numbers_agree
from regard.data.checks.scripts import DENSE, OTHER, UNSPACED, name_of, number_of, written_with
from regard.data.split import Pairs

LONG_WORDS, LONG_CHARACTERS = 1_000, 10_000
_TOO_FAR = np.log(3.0)  # a pair's length ratio from the usual one
_FEW_CHARACTERS = 10.0  # added to both lengths, since those of short lines differ more
_LEAST_LETTERS = 4  # of other scripts, to call a line's script wrong
_DENSE_NUMBERS = tuple(number_of(script) for script in DENSE)
_DENSE = 3.0  # letters of an alphabet that one of a dense script counts for
_LETTERS_OF_A_WORD = 6.0  # and more: words are not divided by spaces
_COPY_WORDS, _COPY_LETTERS = 3, 12  # a shorter line may well be the same in both languages: names, titles

LINE_FINDINGS = (
    "empty-side",
    "empty-pairs",
    "copied-source",
    "not-utf8",
    "mojibake",
    "replacement-characters",
    "lone-surrogates",
    "null-characters",
    "byte-order-marks",
    "crlf",
    "line-separators",
    "mixed-normal-forms",
    "control-characters",
    "invisible-characters",
    "soft-hyphens",
    "special-spaces",
    "wrong-script",
    "wrong-language",
    "foreign-language",
    "long-lines",
    "length-ratio",
    "unbalanced-markup",
    "different-markup",
    "different-numbers",
)


@dataclass(frozen=True)
class SideProfile:
    """What the lines of one side are usually like."""

    script: str  # of most letters, "" where there are none
    unspaced: bool  # words are not divided by spaces
    composed: bool  # letters with marks are single characters, as nearly everywhere
    language: Recognised
    claimed: str  # the code of the language that it is said to be in, "" where nothing is said
    scripts: tuple[int, ...]  # the numbers of the scripts that it is written with
    table: SideTable | None
    foreign_words: ForeignWords | None  # where the language is known
    other_language: str  # of the other side


@dataclass(frozen=True)
class Profile:
    """What a corpus is like, learned from a sample of it."""

    source: SideProfile
    target: SideProfile
    ratio: float  # target characters for one source character

    @classmethod
    def learn(cls, sample: Pairs, languages: tuple[str, str] = ("", "")) -> Profile:
        """Learns from pairs that should come from all over the corpus. `languages` are what the sides are said to be."""
        blocks = list(blocks_of(sample))
        sources, targets = [block.source for block in blocks], [block.target for block in blocks]
        tables = learn_tables(sources, targets) or (None, None)
        lengths = [float(sum(int(block.characters.sum()) for block in side)) for side in (sources, targets)]
        source = _learn_side(sources, code_of(languages[0]), tables[0])
        target = _learn_side(targets, code_of(languages[1]), tables[1])
        return cls(
            source=replace(source, other_language=target.language.code),
            target=replace(target, other_language=source.language.code),
            ratio=lengths[1] / lengths[0] if min(lengths) else 1.0,
        )


class Flags(NamedTuple):
    """For each finding, the lines of a block that have it: on one side, or as a pair. Findings without any are left out."""

    source: dict[str, np.ndarray]
    target: dict[str, np.ndarray]
    pair: dict[str, np.ndarray]

    def of(self, name: str) -> list[np.ndarray]:
        return [side[name] for side in self if name in side]


def flag_lines(chunk: Pairs, profile: Profile) -> dict[str, np.ndarray]:
    """For each finding about single lines, which pairs of a chunk have it on either side."""
    every = [(len(block), flag_block(block, profile)) for block in blocks_of(chunk)]
    masks = {}
    for name in LINE_FINDINGS:
        parts = [np.logical_or.reduce([np.zeros(size, dtype=bool), *flags.of(name)]) for size, flags in every]
        masks[name] = np.concatenate(parts) if parts else np.zeros(0, dtype=bool)
    return masks


def flag_block(block: PairBlock, profile: Profile) -> Flags:
    """Finds all lines of a block that have any finding."""
    source, target = block.source, block.target
    flags = Flags(_flag_side(source, profile.source), _flag_side(target, profile.target), {})
    flags.pair["empty-pairs"] = source.empty & target.empty
    flags.source["empty-side"] = source.empty & ~target.empty
    flags.target["empty-side"] = target.empty & ~source.empty
    copied = block.whole & (source.keys == target.keys) & (source.letters >= _COPY_LETTERS)
    copied &= (source.words >= _COPY_WORDS) | profile.source.unspaced
    flags.pair["copied-source"] = copied
    for side in (flags.source, flags.target):
        if "wrong-language" in side:
            side["wrong-language"] &= ~copied
    far = np.log((target.characters / profile.ratio + _FEW_CHARACTERS) / (source.characters + _FEW_CHARACTERS))
    flags.pair["length-ratio"] = block.whole & (np.abs(far) > _TOO_FAR)
    flags.pair["different-numbers"] = _differing(block, block.digits & block.whole, numbers_agree)
    flags.pair["different-markup"] = _differing(
        block, (source.having(MARKUP) | target.having(MARKUP)) & block.whole, markup_agrees
    )
    for side in flags:
        for name in [name for name, mask in side.items() if not mask.any()]:
            del side[name]
    return flags


def _flag_side(block: Block, profile: SideProfile) -> dict[str, np.ndarray]:
    flags = encoding_flags(block, profile.script)
    flags["mixed-normal-forms"] = block.decomposed if profile.composed else block.having(COMPOSED) & ~block.decomposed
    flags["long-lines"] = (block.characters > LONG_CHARACTERS) | (block.words > LONG_WORDS)
    flags["wrong-script"] = _wrong_script(block, profile)
    rows = np.flatnonzero(block.having(MARKUP)).tolist()
    flags["unbalanced-markup"] = block.mask([row for row in rows if not tags_balance(block.lines[row])])
    like_other, like_neither = np.zeros(len(block), dtype=bool), np.zeros(len(block), dtype=bool)
    if profile.table is not None:
        like_other, like_neither = profile.table.judge(block)
    if profile.foreign_words is not None:
        for row, code in profile.foreign_words.find(block).items():
            like_other[row] |= code == profile.other_language
            like_neither[row] |= code != profile.other_language and not like_other[row]
    flags["wrong-language"] = like_other & ~flags["wrong-script"]
    flags["foreign-language"] = like_neither & ~like_other & ~flags["wrong-script"]
    return flags


def _wrong_script(block: Block, profile: SideProfile) -> np.ndarray:
    """True for the lines most of whose letters are of other scripts than the side's."""
    scripts = block.kinds >> np.uint32(SCRIPT_SHIFT)
    foreign = scripts != number_of(OTHER)
    for script in profile.scripts:
        foreign &= scripts != script
    places = np.flatnonzero(foreign)
    if not len(places) or not profile.script:
        return np.zeros(len(block), dtype=bool)
    rows = block.line_at(places)
    weights = np.where(np.isin(scripts[places], _DENSE_NUMBERS), _DENSE, 1.0)
    foreign = np.bincount(rows, weights=weights, minlength=len(block))
    own = block.letters - np.bincount(rows, minlength=len(block))
    return (foreign >= _LEAST_LETTERS) & (foreign > own * (_DENSE if profile.script in DENSE else 1.0))


def _differing(block: PairBlock, candidates: np.ndarray, agree) -> np.ndarray:
    rows = np.flatnonzero(candidates).tolist()
    sources, targets = block.source.lines, block.target.lines
    return block.source.mask([row for row in rows if not agree(sources[row], targets[row])])


def _learn_side(blocks: Sequence[Block], claimed: str, table: SideTable | None) -> SideProfile:
    letters = np.zeros(256)
    words = decomposed = composed = 0
    for block in blocks:
        scripts = block.kinds[(block.kinds & np.uint32(LETTER)) != 0] >> np.uint32(SCRIPT_SHIFT)
        letters += np.bincount(scripts, minlength=256)
        words += int(block.words.sum())
        decomposed += int(block.decomposed.sum())
        composed += int((block.having(COMPOSED) & ~block.decomposed).sum())
    letters[number_of(OTHER)] = 0
    script = name_of(int(letters.argmax())) if letters.any() else ""
    shares = {name_of(i): letters[i] / letters.sum() for i in np.flatnonzero(letters).tolist()}
    language = recognise([line for block in blocks for line in block.lines], shares)
    return SideProfile(
        script=script,
        unspaced=script in UNSPACED and letters.sum() / max(words, 1) >= _LETTERS_OF_A_WORD,
        composed=composed >= decomposed,
        language=language,
        claimed=claimed,
        scripts=tuple(number_of(name) for name in sorted(written_with(script))) if script else (),
        table=table,
        foreign_words=ForeignWords(language.code) if language.code in FUNCTION_WORDS else None,
        other_language="",
    )
