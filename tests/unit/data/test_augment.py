"""Augmentation: a pure function of (seed, epoch, row, copy), and pairs that must stay as they are do."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from regard.core.config import build
from regard.core.errors import ConfigError
from regard.core.types import UNK
from regard.data.augment import AugmentConfig, Augmenter
from regard.data.split import Pairs
from regard.data.tokenizers import TokenizerConfig, TokenizerPair

SOURCES = [
    "The old miller has three red barrels.",
    "Where did NATO meet in 1984?",
    "My sister bakes bread, cake and pies.",
    "Nobody knows the road to Berlin!",
    "We sleep under the green tree.",
    "A quick answer is not a good answer.",
]
TARGETS = [
    "Der alte Müller hat drei rote Fässer.",
    "Wo tagte die NATO 1984?",
    "Meine Schwester backt Brot, Kuchen und Torten.",
    "Niemand kennt die Straße nach Berlin!",
    "Wir schlafen unter dem grünen Baum.",
    "Eine schnelle Antwort ist keine gute Antwort.",
]
EVERYTHING = {"bpe_dropout": 0.2, "upper": 0.2, "lower": 0.2, "title": 0.2, "typos": 0.2, "swap_words": 0.1}
COUNT = 60  # rows


def trained(**settings) -> TokenizerPair:
    """Knows every letter of the text in both cases."""
    both = [case(text) for text in [*SOURCES, *TARGETS] for case in (str, str.upper, str.lower)]
    text = Pairs(both * 2, both * 2)
    return TokenizerPair.train_on(text, TokenizerConfig(**{"size": 400, **settings}), ["<2de>"])


@pytest.fixture(scope="module")
def tokenizers():
    return trained()


def rows_of(tokenizers: TokenizerPair) -> tuple[list[list[int]], list[list[int]]]:
    return tokenizers.source.encode(SOURCES * (COUNT // 6)), tokenizers.target.encode(TARGETS * (COUNT // 6))


def augmented(tokenizers, *, epoch: Any = 0, copy: Any = 0, seed: Any = 1, **settings):
    sources, targets = rows_of(tokenizers)
    augment = Augmenter(AugmentConfig(**settings), tokenizers, seed)
    return augment(sources, targets, range(COUNT), [copy] * COUNT, epoch)


def texts_of(tokenizers, **settings) -> list[tuple[str, str]]:
    sources, targets = augmented(tokenizers, **settings)
    return [*zip(tokenizers.source.decode(sources), tokenizers.target.decode(targets), strict=True)]


PLAIN = [*zip(SOURCES, TARGETS, strict=True)] * (COUNT // 6)


# Settings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERYTHING)
@pytest.mark.parametrize("value", [-0.01, 1.01, float("nan")])
def test_shares_are_checked(name, value):
    with pytest.raises(ConfigError) as caught:
        AugmentConfig(**{name: value})
    assert str(caught.value) == f"setting augment.{name}: it is {value}. Use a share from 0 to 1."


def test_a_pair_has_one_case():
    AugmentConfig(upper=0.33, lower=0.56, title=0.11)  # their sum is just above 1 in floating point
    with pytest.raises(ConfigError, match=r"setting augment\.upper: .* more than 1 \(0\.5 \+ 0\.4 \+ 0\.2\)"):
        AugmentConfig(upper=0.5, lower=0.4, title=0.2)


@pytest.mark.parametrize("name", EVERYTHING)
def test_active(name):
    assert not AugmentConfig().active
    assert AugmentConfig(**{name: 0.01}).active
    assert build(AugmentConfig, {name: 1}, "augment").active


@pytest.mark.parametrize("case", ["upper", "lower", "title"])
def test_case_needs_a_tokenizer_with_case(case):
    with pytest.raises(ConfigError) as caught:
        Augmenter(AugmentConfig(**{case: 0.1}), trained(lowercase=True), 1)
    assert str(caught.value) == (
        f"setting augment.{case}: it is 0.1, but the tokenizer writes everything in small letters. "
        f"Set augment.{case}=0 or tokenizer.lowercase=false."
    )
    Augmenter(AugmentConfig(typos=0.1, bpe_dropout=0.1), trained(lowercase=True), 1)


def test_typos_need_more_than_words():
    with pytest.raises(ConfigError, match=r"setting augment\.typos: it is 0\.1, but the tokenizer knows whole words"):
        Augmenter(AugmentConfig(typos=0.1), trained(kind="word"), 1)
    Augmenter(AugmentConfig(swap_words=0.1), trained(kind="word"), 1)


def test_dropout_needs_merges_on_both_sides(tokenizers):
    with pytest.raises(ConfigError, match=r"augment\.bpe_dropout"):
        Augmenter(AugmentConfig(bpe_dropout=0.1), trained(kind="char"), 1)
    mixed = TokenizerPair(tokenizers.source, trained(kind="unigram").target, False)
    with pytest.raises(ConfigError, match=r"augment\.bpe_dropout"):
        Augmenter(AugmentConfig(bpe_dropout=0.1), mixed, 1)


# A pure function ------------------------------------------------------------------------------------------------------


def test_nothing_asked_nothing_done(tokenizers):
    assert augmented(tokenizers) == rows_of(tokenizers)


@pytest.mark.parametrize("settings", [EVERYTHING, *({name: 0.3} for name in EVERYTHING)])
def test_any_order_any_batch_any_thread(tokenizers, settings):
    sources, targets = rows_of(tokenizers)
    expected = augmented(tokenizers, epoch=3, **settings)
    assert expected != (sources, targets)
    other = Augmenter(AugmentConfig(**settings), tokenizers, 1)

    def batch(rows):
        drawn = other([sources[i] for i in rows], [targets[i] for i in rows], rows, [0] * len(rows), 3)
        return rows, drawn

    batches = [[*range(begin, COUNT, 7)][::-1] for begin in range(7)]
    with ThreadPoolExecutor(4) as pool:
        parts = [*pool.map(batch, batches * 3)]
    assert len(parts) == 21
    for rows, drawn in parts:
        assert drawn == tuple([side[i] for i in rows] for side in expected)
    assert (sources, targets) == rows_of(tokenizers)  # what was given is left alone


@pytest.mark.parametrize("name", EVERYTHING)
def test_epoch_copy_and_seed_all_matter(tokenizers, name):
    base = augmented(tokenizers, **{name: 0.5})
    for change in ({"epoch": 1}, {"copy": 1}, {"seed": 2}):
        assert augmented(tokenizers, **{name: 0.5}, **change) != base
    assert augmented(tokenizers, **{name: 0.5}) == base


def test_sides_are_cut_independently(tokenizers):
    sources, _ = rows_of(tokenizers)
    augment = Augmenter(AugmentConfig(bpe_dropout=0.5), tokenizers, 1)
    left, right = augment(sources, sources, range(COUNT), [0] * COUNT, 0)
    assert all(a != b for a, b in zip(left, right, strict=True))


def digest(tokenizers: TokenizerPair) -> str:
    return hashlib.sha256(json.dumps(augmented(tokenizers, **EVERYTHING)).encode()).hexdigest()


def test_another_process_draws_the_same(tokenizers, tmp_path):
    tokenizers.save(tmp_path)
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import test_augment as t;"
        "print(t.digest(t.TokenizerPair.load(Path(sys.argv[2]))))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, os.path.dirname(__file__), str(tmp_path)],
        env={**os.environ, "PYTHONHASHSEED": "123", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == digest(tokenizers)


# What is changed ------------------------------------------------------------------------------------------------------


def test_capitals_on_both_sides(tokenizers):
    assert texts_of(tokenizers, upper=1.0) == [(source.upper(), target.upper()) for source, target in PLAIN]
    some = texts_of(tokenizers, upper=0.3)
    assert set(some) <= {*PLAIN, *((source.upper(), target.upper()) for source, target in PLAIN)}
    assert 8 <= sum(pair != plain for pair, plain in zip(some, PLAIN, strict=True)) <= 28


@pytest.mark.parametrize(("name", "change"), [("lower", str.lower), ("title", lambda text: title(text))])
def test_other_cases_on_the_source_alone(tokenizers, name, change):
    assert texts_of(tokenizers, **{name: 1.0}) == [(change(source), target) for source, target in PLAIN]
    some = texts_of(tokenizers, **{name: 0.3})
    assert 8 <= sum(pair != plain for pair, plain in zip(some, PLAIN, strict=True)) <= 28


def title(text: str) -> str:
    return " ".join(word[:1].upper() + word[1:] for word in text.split())


def test_shares_of_cases_are_of_all_pairs(tokenizers):
    counts: Counter[str] = Counter()
    for epoch in range(10):
        for (source, _), (plain, _) in zip(
            texts_of(tokenizers, upper=0.2, lower=0.3, title=0.4, epoch=epoch), PLAIN, strict=True
        ):
            cases = {"upper": plain.upper(), "lower": plain.lower(), "title": title(plain), "plain": plain}
            counts[next(name for name, text in cases.items() if text == source)] += 1
    assert all(
        abs(counts[name] - 600 * share) < 50
        for name, share in {"upper": 0.2, "lower": 0.3, "title": 0.4, "plain": 0.1}.items()
    ), counts


def test_noise_on_the_source_alone(tokenizers):
    for settings in ({"typos": 0.5}, {"swap_words": 0.5}):
        texts = texts_of(tokenizers, **settings)
        assert [target for _, target in texts] == [target for _, target in PLAIN]
        assert sum(source != plain for (source, _), (plain, _) in zip(texts, PLAIN, strict=True)) > 50
    assert sorted("".join(source for source, _ in texts)) == sorted("".join(source for source, _ in PLAIN))


def test_noise_goes_over_case(tokenizers):
    texts = texts_of(tokenizers, upper=1.0, typos=0.5)
    assert [target for _, target in texts] == [target.upper() for _, target in PLAIN]
    assert all(source == source.upper() for source, _ in texts)
    assert sum(source != plain.upper() for (source, _), (plain, _) in zip(texts, PLAIN, strict=True)) > 50


def test_dropout_cuts_what_case_has_written(tokenizers):
    sources, targets = augmented(tokenizers, upper=1.0, bpe_dropout=1.0)
    assert tokenizers.source.decode(sources) == [source.upper() for source, _ in PLAIN]
    assert tokenizers.target.decode(targets) == [target.upper() for _, target in PLAIN]
    assert all(len(piece) == 1 for row in (*sources, *targets) for piece in tokenizers.source.pieces(row))


def test_two_tokenizers():
    apart = trained(joint=False)
    assert texts_of(apart, upper=1.0, bpe_dropout=0.5) == [(a.upper(), b.upper()) for a, b in PLAIN]


@pytest.mark.parametrize("kind", ["unigram", "char", "byte"])
def test_text_is_changed_with_every_kind_of_pieces(kind):
    tokenizers = trained(kind=kind)
    assert texts_of(tokenizers, lower=1.0) == [(source.lower(), target) for source, target in PLAIN]
    assert texts_of(tokenizers, typos=0.5) != PLAIN


# What stays -----------------------------------------------------------------------------------------------------------


def one(
    tokenizers, source: list[int], target: list[int], max_length: Any = 0, **settings
) -> tuple[list[int], list[int]]:
    augment = Augmenter(AugmentConfig(**settings), tokenizers, 1, max_length)
    (new_source,), (new_target,) = augment([source], [target], [0], [0], 0)
    return new_source, new_target


def test_tags_stay_in_front(tokenizers):
    tag = tokenizers.source.tags["<2de>"]
    (source,), (target,) = tokenizers.source.encode(SOURCES[:1]), tokenizers.target.encode(TARGETS[:1])
    new, _ = one(tokenizers, [tag, *source], target, lower=1.0, bpe_dropout=0.5)
    assert new[0] == tag
    assert tokenizers.source.decode([new[1:]]) == [SOURCES[0].lower()]
    misplaced = [*source[:2], tag, *source[2:]]
    assert one(tokenizers, misplaced, target, lower=1.0) == (misplaced, target)


def test_unknown_characters_keep_a_text(tokenizers):
    (known, unknown), (target,) = tokenizers.source.encode(["The tree.", "The ☃ tree."]), [[UNK]]
    assert UNK in unknown
    for settings in ({"lower": 1.0}, {"typos": 1.0}, {"swap_words": 1.0}, {"upper": 1.0}):
        assert one(tokenizers, unknown, known, **settings) == (unknown, known)
    assert one(tokenizers, known, target, upper=1.0) == (known, target)  # neither side is changed without the other
    assert one(tokenizers, known, target, lower=1.0)[0] != known  # the target's text is not needed
    assert one(tokenizers, unknown, known, bpe_dropout=1.0)[0].count(UNK) == 1


def test_unknown_capitals_keep_a_pair():
    small = [text.lower() for text in [*SOURCES, *TARGETS]]
    tokenizers = TokenizerPair.train(small, small, TokenizerConfig(size=300))
    source, target = tokenizers.source.encode([small[0], small[6]])
    assert UNK in tokenizers.source.encode([small[0].upper()])[0]
    assert one(tokenizers, source, target, upper=1.0) == (source, target)


def test_tokens_that_are_not_those_of_their_text_stay(tokenizers):
    (source, target) = tokenizers.source.encode(["The tree.", "Der Baum."])
    (letters,) = Augmenter(AugmentConfig(bpe_dropout=1.0), tokenizers, 1)([source], [target], [0], [0], 0)[0]
    assert letters != source
    assert tokenizers.source.decode([letters]) == ["The tree."]
    assert one(tokenizers, letters, target, upper=1.0) == (letters, target)
    assert one(tokenizers, source, letters, upper=1.0) == (source, letters)


def test_a_source_without_case_keeps_its_target(tokenizers):
    source, target, plain = tokenizers.source.encode(["1984?", "Der Baum.", "THE TREE."])
    assert one(tokenizers, source, target, upper=1.0) == (source, target)
    capitals = one(tokenizers, plain, target, upper=1.0)  # is in capitals already
    assert capitals[0] == plain
    assert tokenizers.target.decode([capitals[1]]) == ["DER BAUM."]


def test_too_long_rows_are_not_cut(tokenizers):
    (source,), (target,) = tokenizers.source.encode(SOURCES[4:5]), tokenizers.target.encode(TARGETS[4:5])
    short, long = one(tokenizers, source, target, bpe_dropout=1.0)
    assert len(source) < len(short) < len(long)
    assert one(tokenizers, source, target, len(long), bpe_dropout=1.0) == (short, long)
    assert one(tokenizers, source, target, len(long) - 1, bpe_dropout=1.0) == (short, target)
    assert one(tokenizers, source, target, len(short) - 1, bpe_dropout=1.0) == (source, target)


def test_too_long_texts_are_not_changed():
    tokenizers = trained(kind="char")
    source, target = tokenizers.source.encode(["The long road!", "Die Straße!"])
    assert tokenizers.source.decode(one(tokenizers, source, target, upper=1.0)) == ["THE LONG ROAD!", "DIE STRASSE!"]
    assert one(tokenizers, target, target, len(target) + 1, upper=1.0)[0] != target
    assert one(tokenizers, target, target, len(target), upper=1.0) == (target, target)
    short = tokenizers.source.encode(["the"])[0]
    assert one(tokenizers, short, target, len(target), upper=1.0) == (short, target)  # the target is what is too long
    assert one(tokenizers, target, short, len(target), upper=1.0) == (target, short)
    tag = tokenizers.source.tags["<2de>"]  # counts as a token
    assert one(tokenizers, [tag, *target], short, len(target) + 2, upper=1.0)[0] != [tag, *target]
    assert one(tokenizers, [tag, *target], short, len(target) + 1, upper=1.0)[0] == [tag, *target]


def test_empty_rows_and_empty_batches(tokenizers):
    augment = Augmenter(AugmentConfig(**EVERYTHING), tokenizers, 1)
    assert augment([], [], [], [], 0) == ([], [])
    assert augment([[]], [[]], [5], [0], 0) == ([[]], [[]])
