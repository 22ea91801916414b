"""BPE dropout: the paper's distribution, the tokenizer's own tokens without it, the same cut for the same key."""

import collections
import functools
import itertools
import json

import numpy as np
import pytest
import tokenizers as hf

from regard.core.errors import ConfigError
from regard.core.types import UNK
from regard.data.bpe_dropout import BpeDropout, _Ranks
from regard.data.draws import row_keys
from regard.data.tokenizers import Tokenizer, TokenizerConfig

TEXTS = [
    "the newest lower widest tests showed the slowest lowest banana bandana bananas",
    "Where's the 1984 model, the one (with 25 keys) that they tested?",
    "Größere Bananen – süße! – wachsen langsamer , sagte er .",
    "もっと 大きな バナナ を ください 。 大きな バナナ",
]
TAG = "(25)"  # all its characters are in the text: it must not be cut for all that
# Unknown characters inside, before and after words, alone, as punctuation and as digits; marks; long and short units.
HARD = [
    "Ω theΩnewest Ωshowed, ¿bananas¿ Ω , ٣ a٣b",
    "the",
    "Where's 1984?—(25) widestwidestwidestwidestwidestwidest ...",
    "cafe\u0301 u\u0308ber  もっと大きなバナナ。",
    "slowest , lowest . the  -5,3-",
    "",
]


def trained(**settings) -> Tokenizer:
    return Tokenizer.train(TEXTS * 4, TokenizerConfig(**{"size": 200, **settings}), [TAG])


@pytest.fixture(scope="module")
def tokenizer():
    return trained()


@pytest.fixture(scope="module")
def dropout(tokenizer):
    return BpeDropout(tokenizer)


def keys(count: int, seed: int = 3) -> np.ndarray:
    return row_keys(seed, 0, 0, np.arange(count), np.zeros(count, dtype=np.int64))


def algorithm_1(ranks: dict[tuple[str, str], int], unit: str, p: float) -> dict[tuple[str, ...], float]:
    """The probability of every outcome of the paper's Algorithm 1, over all ways to drop merges at every step."""

    @functools.cache
    def outcomes(split: tuple[str, ...]) -> dict[tuple[str, ...], float]:
        merges = [(ranks[pair], i) for i, pair in enumerate(itertools.pairwise(split)) if pair in ranks]
        total: dict[tuple[str, ...], float] = collections.defaultdict(float)
        for kept in itertools.chain.from_iterable(itertools.combinations(merges, n) for n in range(len(merges) + 1)):
            chance = p ** (len(merges) - len(kept)) * (1 - p) ** len(kept)
            if not kept:
                total[split] += chance
                continue
            _, i = min(kept)
            for outcome, rest in outcomes((*split[:i], split[i] + split[i + 1], *split[i + 2 :])).items():
                total[outcome] += chance * rest
        return total

    return outcomes(tuple(unit))


def ranks_of(tokenizer: Tokenizer) -> dict[tuple[str, str], int]:
    return {tuple(pair): i for i, pair in enumerate(json.loads(tokenizer.to_json())["model"]["merges"])}


def distance(counts: collections.Counter, exact: dict) -> float:
    """The total variation between what was counted and what is expected."""
    return sum(abs(counts[split] / counts.total() - exact.get(split, 0.0)) for split in {*counts, *exact}) / 2


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("word", ["newest", "bananas", "slowest", "tests"])
def test_distribution_is_that_of_the_paper(tokenizer, dropout, word, p):
    exact = algorithm_1(ranks_of(tokenizer), "▁" + word, p)
    assert len(exact) > 8
    count = 20_000
    (ids,) = tokenizer.encode([word])
    counts = collections.Counter(tuple(tokenizer.pieces(row)) for row in dropout([ids] * count, p, keys(count)))
    assert counts.keys() <= exact.keys()
    likely = [split for split, chance in exact.items() if chance * count >= 10]
    square = sum((counts[split] - exact[split] * count) ** 2 / (exact[split] * count) for split in likely)
    freedom = len(likely)
    assert square < freedom + 5 * (2 * freedom) ** 0.5, (square, freedom)
    assert distance(counts, exact) < 0.02


def test_every_unit_of_a_row_has_the_distribution(tokenizer, dropout):
    """Not only the first: each place draws its own numbers."""
    (row,) = tokenizer.encode(["newest newest, newest"])
    cut = dropout([row] * 10_000, 0.3, keys(10_000))
    units = [tuple("".join(tokenizer.pieces(row)).split("▁")) for row in cut]
    assert set(units) == {("", "newest", "newest,", "newest")}
    splits = [" ".join(tokenizer.pieces(row)).replace(" ,", "").split("▁")[1:] for row in cut]
    exact = {" ".join(k): v for k, v in algorithm_1(ranks_of(tokenizer), "▁newest", 0.3).items()}
    for place in range(3):
        counts = collections.Counter(("▁" + split[place]).strip() for split in splits)
        assert distance(counts, exact) < 0.025
    first, second = ([split[place].strip() == "newest" for split in splits] for place in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.05


def test_library_agrees_where_it_follows_the_paper(tokenizer, dropout):
    """Its queue also holds merges that are no longer possible, and drawing one of these gives the dropped ones another
    chance: so it does in "bananas", where a pair comes twice, and not in "newest".
    """
    other = json.loads(tokenizer.to_json())
    other["model"]["dropout"] = 0.3
    inner = hf.Tokenizer.from_str(json.dumps(other))
    encodings = inner.encode_batch(["newest"] * 20_000, add_special_tokens=False)
    library = collections.Counter(tuple(encoding.tokens) for encoding in encodings)
    (ids,) = tokenizer.encode(["newest"])
    ours = collections.Counter(tuple(tokenizer.pieces(row)) for row in dropout([ids] * 20_000, 0.3, keys(20_000)))
    assert distance(ours, {split: count / library.total() for split, count in library.items()}) < 0.04


@pytest.mark.parametrize("split_digits", [True, False])
def test_merging_all_again_gives_the_tokenizers_own_tokens(split_digits):
    tokenizer = trained(split_digits=split_digits)
    dropout = BpeDropout(tokenizer)
    rows = tokenizer.encode([*TEXTS, *HARD])
    layout = dropout._lay_out(rows)
    merged = dropout._merge(layout.characters, layout.units[:-1], np.zeros(len(layout.characters), dtype=np.int64))
    assert merged[merged >= 0].tolist() == [*itertools.chain.from_iterable(rows)]
    assert dropout(rows, 0.0, keys(len(rows))) == rows


def test_units_are_those_of_the_tokenizer(tokenizer, dropout):
    """Where the tokenizer cuts, a unit begins. Merges between units do not exist, but draws are by unit."""
    cuts = hf.Tokenizer.from_str(tokenizer.to_json())
    text = "Where's the 1984 model, (with 25 keys) langsamer , sagte er ."
    layout = dropout._lay_out(tokenizer.encode([text]))
    begins = [begin for _, (begin, _) in cuts.pre_tokenizer.pre_tokenize_str("▁" + text.replace(" ", "▁"))]
    assert {*begins} <= {*layout.units[:-1].tolist()}
    assert len(layout.characters) == len(text) + 1 == layout.units[-1]


def test_everything_skipped_gives_characters(tokenizer, dropout):
    rows = tokenizer.encode([*TEXTS, *HARD])
    for row, cut in zip(rows, dropout(rows, 1.0, keys(len(rows))), strict=True):
        assert [piece for piece in tokenizer.pieces(cut) if piece != "<unk>" and len(piece) > 1] == []
        assert "".join(tokenizer.pieces(cut)) == "".join(tokenizer.pieces(row))


@pytest.mark.parametrize("p", [0.05, 0.3, 0.7])
def test_text_unknown_characters_and_tags_stay(tokenizer, dropout, p):
    tag = tokenizer.tags[TAG]
    rows = [[tag, *row] for row in tokenizer.encode([*TEXTS, *HARD])] * 20
    cut = dropout(rows, p, keys(len(rows)))
    assert cut != rows
    for old, new in zip(rows, cut, strict=True):
        assert new[0] == tag
        assert tag not in new[1:]
        assert new.count(UNK) == old.count(UNK)
        assert "".join(tokenizer.pieces(new)) == "".join(tokenizer.pieces(old))


def test_a_row_is_cut_alike_in_every_company(tokenizer, dropout):
    rows = tokenizer.encode([*TEXTS, *HARD])
    together = dropout(rows, 0.5, keys(len(rows)))
    for i, row in enumerate(rows):
        assert dropout([row], 0.5, keys(len(rows))[i : i + 1]) == [together[i]]
    backwards = dropout(rows[::-1], 0.5, keys(len(rows))[::-1])
    assert backwards[::-1] == together
    assert dropout(rows, 0.5, keys(len(rows), seed=4)) != together


def test_rows_do_not_run_into_each_other(tokenizer, dropout):
    """Not even where a row begins in the middle of a word."""
    rows = [tokenizer.encode(["the"])[0], *([number] for number in range(4, tokenizer.size))] * 3
    cut = dropout(rows, 0.2, keys(len(rows)))
    assert ["".join(tokenizer.pieces(row)) for row in cut] == ["".join(tokenizer.pieces(row)) for row in rows]


def test_rows_and_keys_are_left_alone(tokenizer, dropout):
    rows, own = tokenizer.encode(TEXTS), keys(len(TEXTS))
    before = ([[*row] for row in rows], own.copy())
    dropout(rows, 0.5, own)
    assert rows == before[0]
    assert (own == before[1]).all()


def test_nothing_to_cut(dropout):
    assert dropout([], 0.5, keys(0)) == []
    assert dropout([[], []], 0.5, keys(2)) == [[], []]
    assert dropout([[], [UNK], []], 1.0, keys(3)) == [[], [UNK], []]


def test_merges_written_as_one_text_each(tokenizer, dropout):
    """As older versions of the library wrote them."""
    old = json.loads(tokenizer.to_json())
    old["model"]["merges"] = [" ".join(pair) for pair in old["model"]["merges"]]
    rows = tokenizer.encode(TEXTS)
    assert BpeDropout(Tokenizer.from_json(json.dumps(old)))(rows, 0.5, keys(4)) == dropout(rows, 0.5, keys(4))


@pytest.mark.parametrize("kind", ["unigram", "word", "char", "byte"])
def test_other_tokenizers_have_no_merges(kind):
    with pytest.raises(ConfigError) as caught:
        BpeDropout(trained(kind=kind))
    assert str(caught.value) == (
        "setting augment.bpe_dropout: it skips merges, and this tokenizer has none. "
        "Set tokenizer.kind=bpe, or augment.bpe_dropout=0."
    )


def test_ranks_are_found_for_present_and_absent_codes():
    codes = np.unique(np.random.default_rng(1).integers(0, 1 << 40, 5000))
    np.random.default_rng(2).shuffle(codes)
    ranks = _Ranks(codes)
    assert ranks.of(codes).tolist() == [*range(len(codes))]
    others = np.setdiff1d(np.random.default_rng(3).integers(0, 1 << 40, 50_000), codes)
    assert (ranks.of(others) == -1).all()
    assert _Ranks(np.array([7])).of(np.array([7, 8, 0])).tolist() == [0, -1, -1]
