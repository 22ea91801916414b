"""Texts that must have terms: against all texts there are, and never worse than beam search where there are none."""

from __future__ import annotations

import itertools

import pytest
import torch
from tape import Tape

from regard.core.errors import ModelError
from regard.core.types import EOS, pad_rows
from regard.models.base import MODELS, build_model
from regard.search import SearchConfig, recordings, replay, search, search_many
from regard.search.forcing import score_pairs
from regard.search.scoring import normalised
from regard.search.terms import Letters, TermSize, TermTable, _automaton, forbid

torch.set_num_threads(1)
SIZES = {
    "transformer": {"width": 8, "layers": 1, "heads": 2, "inner": 12},
    "bahdanau": {"embedding": 8, "width": 6},
    "convs2s": {"embedding": 8, "width": 8, "layers": 2},
}


def make(name: str = "transformer", vocabulary: int = 7, seed: int = 0):
    torch.manual_seed(seed)
    config = MODELS.get(name).Config(name=name, **SIZES[name])
    model = build_model(name, config, source_vocabulary=vocabulary, target_vocabulary=vocabulary, shared=True).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.6)
    return model


def has(text, phrase) -> bool:
    return any(tuple(text[i : i + len(phrase)]) == tuple(phrase) for i in range(len(text)))


def satisfied(text, terms) -> bool:
    return all(any(has(text, phrase) for phrase in term) for term in terms)


@pytest.mark.parametrize("phrase", [(4, 4, 5), (4, 5, 4, 5, 6), (4,), (4, 4, 4), (5, 4, 5, 5, 4, 5, 6)])
def test_what_is_written_of_a_phrase(phrase):
    table = _automaton(phrase)
    generator = torch.Generator().manual_seed(3)
    text: list[int] = []
    state = 0
    for token in torch.randint(4, 7, (300,), generator=generator).tolist():
        text.append(token)
        i = phrase.index(token) if token in phrase else None
        state = 0 if i is None else table[state][i]
        plain = max(n for n in range(len(phrase) + 1) if n == 0 or tuple(text[-n:]) == phrase[:n])
        assert state == plain
        if state == len(phrase):
            text, state = [], 0


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize(
    "terms",
    [(((5, 4, 5),),), (((4, 4),), ((5, 5),)), (((5, 5, 5), (4, 5, 4)),), (((4, 5), (4, 4)), ((5, 5),))],
    ids=["phrase", "two", "forms", "forms and a word"],
)
def test_of_all_texts_with_the_terms_the_best_is_found(name, terms):
    model = make(name, 6)
    source = pad_rows([[5, 4, 4, EOS]])
    config = SearchConfig(
        beam=64, nbest=3, stop="exact", max_length=4, max_repeat=0
    )  # 16 texts x 3 tokens: all are seen
    found = search(model, source, config, terms=[terms])[0]
    texts = [t for n in range(5) for t in itertools.product((4, 5), repeat=n) if satisfied(t, terms)]
    many = pad_rows([[5, 4, 4, EOS]] * len(texts))
    scored = [
        float(normalised(config, torch.tensor(total, dtype=torch.float64), torch.tensor(len(text) + 1)))
        for text, (total, _) in zip(texts, score_pairs(model, many, texts), strict=True)
    ]
    best = sorted(scored, reverse=True)[:3]
    assert [h.score for h in found if h.finished] == pytest.approx(best, abs=1e-5)
    assert all(satisfied(h.tokens, terms) for h in found if h.finished)
    free = search(model, source, config)[0]
    assert free[0].score > best[0] + 1e-4  # the terms cost something: the test could fail


@pytest.mark.parametrize("name", SIZES)
def test_without_terms_it_is_beam_search(name):
    model = make(name, 30)
    generator = torch.Generator().manual_seed(1)
    rows = [[*torch.randint(4, 30, (n,), generator=generator).tolist(), EOS] for n in (3, 7, 5, 2, 6)]
    config = SearchConfig(beam=4, nbest=4, max_length=12)
    plain = search(model, pad_rows(rows), config)
    wanted = [(), (((7, 9),), ((11,),)), (), (), (((20, 21, 22), (23,)),)]
    found = search(model, pad_rows(rows), config, terms=wanted)
    for i, (one, other) in enumerate(zip(plain, found, strict=True)):
        if not wanted[i]:
            assert [h.tokens for h in one] == [h.tokens for h in other]
            assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-9)
        else:
            assert satisfied(other[0].tokens, wanted[i])
            assert not satisfied(one[0].tokens, wanted[i])
            alone = search(model, pad_rows([rows[i]]), config, terms=[wanted[i]])[0]
            assert [h.tokens for h in alone] == [h.tokens for h in other]


def test_recorded_steps_find_the_same(monkeypatch):
    model = make("transformer", 30)
    generator = torch.Generator().manual_seed(2)
    rows = [[*torch.randint(4, 30, (n,), generator=generator).tolist(), EOS] for n in (3, 7, 5, 2, 6, 4, 4, 3)]
    wanted = [(((4 + i, 9 + i), (20,)), ((8,),)) if i % 3 else () for i in range(len(rows))]
    config = SearchConfig(beam=4, nbest=2, max_length=12)
    prefix = [[5, 6] if i == 4 else [] for i in range(len(rows))]
    plain = search(model, pad_rows(rows), config, prefix, terms=wanted)
    monkeypatch.setitem(replay.CAPTURES, "cpu", Tape)
    Tape.recorded = Tape.replayed = 0
    for _ in range(2):
        found = dict(search_many(model, rows, config, prefix, rows=3, terms=wanted))
    assert Tape.replayed
    for i, one in enumerate(plain):
        assert [h.tokens for h in one] == [h.tokens for h in found[i]]
        assert satisfied(found[i][0].tokens, wanted[i])
    assert found[4][0].tokens[:2] == [5, 6]


def test_recordings_are_for_as_many_texts_and_for_whole_words_or_not(monkeypatch):
    """Both decide when a search stops, or what it may write."""
    model = make("transformer", 30, 1)
    source, wanted = pad_rows([[4, 5, 6, EOS], [9, 8, EOS], [12, EOS]]), [(((7, 9),),), (((11,),),), (((20, 21),),)]
    letters = Letters(torch.arange(30) >= 10, torch.arange(30) >= 4)
    asked = [
        (SearchConfig(beam=6, nbest=nbest, max_length=20), some) for nbest in (1, 6) for some in (None, letters, None)
    ]
    plain = [search(model, source, config, terms=wanted, letters=some) for config, some in asked]
    monkeypatch.setitem(replay.CAPTURES, "cpu", Tape)
    for (config, some), expected in zip(asked, plain, strict=True):
        found = search(model, source, config, terms=wanted, letters=some)
        assert [[h.tokens for h in one] for one in found] == [[h.tokens for h in one] for one in expected]
    assert len(recordings._kept(model).shapes) == 4


def test_terms_are_whole_words():
    """Tokens 10 and above go on with a word; a term is not found inside of a longer one."""
    letters = Letters(torch.arange(16) >= 10, torch.arange(16) >= 4)
    config, phrase, inside = SearchConfig(beam=6, max_length=12), (5, 12), 0
    for seed in range(6):
        model = make("transformer", 16, seed)
        rows = [[*range(4, 4 + n), EOS] for n in (3, 4, 5, 6)]
        terms = [((phrase,),)] * 4
        for (free,), (found,) in zip(
            search(model, pad_rows(rows), config, terms=terms),
            search(model, pad_rows(rows), config, terms=terms, letters=letters),
            strict=True,
        ):
            inside += not whole_word(free.tokens, phrase)
            assert whole_word(found.tokens, phrase) or not found.finished
    assert inside  # otherwise nothing was tested


def whole_word(text, phrase) -> bool:
    ends = [i + len(phrase) for i in range(len(text)) if tuple(text[i : i + len(phrase)]) == phrase]
    return any(end == len(text) or text[end] < 10 for end in ends)


def test_a_longer_form_may_follow():
    """The form (5,) ends a word, and so does (5, 12): 12 may follow 5, but 13 may not."""
    letters = Letters(torch.arange(30) >= 10, torch.arange(30) >= 4)
    terms = [(((5,), (5, 12)),)]
    table = TermTable.of(terms, TermSize.of(terms), torch.device("cpu"))
    state = table.write(table.begin(1), torch.tensor([[6]]), torch.tensor([[5]]), letters)
    assert bool(state.ends.all())
    assert not bool(table.missing(state).any())
    values = torch.zeros(1, 1, 30)
    forbid(values, table, state, torch.tensor([True]), letters)
    assert values[0, 0, [12, 13, 6]].tolist() == [0, float("-inf"), 0]


def test_what_cannot_be():
    model = make("transformer", 30)
    source = pad_rows([[5, EOS]])
    for terms, what in [
        ([], "terms for 0 of 1"),
        ([(((),),)], "no tokens"),
        ([(((EOS,),),)], "that no text has"),
        ([(((30,),),)], "that no text has"),
        ([tuple(((4 + i % 20,),) for i in range(65))], "65 forms"),
    ]:
        with pytest.raises(ModelError, match=what):
            search(model, source, SearchConfig(), terms=terms)
    with pytest.raises(ModelError, match="drawn at random"):
        search(model, source, SearchConfig(method="sample"), terms=[(((5,),),)])
