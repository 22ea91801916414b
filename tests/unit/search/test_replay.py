"""Steps that are recorded and replayed find what the plain search finds, whoever was in the same tensors before."""

from __future__ import annotations

import dataclasses
import gc
import math
import weakref

import pytest
import torch
from tape import Tape

from regard.core import config as configuration
from regard.core.errors import ModelError
from regard.core.tree import State
from regard.core.types import EOS, pad_rows
from regard.models.base import MODELS, build_model
from regard.search import Hypothesis, SearchConfig, looks, recordings, replay, search, search_many, slots
from regard.search.greedy import GreedySearch

torch.set_num_threads(1)
V = 23
SMALL = {
    "transformer": {"width": 16, "layers": 2, "heads": 2, "inner": 20},
    "universal": {"width": 16, "heads": 2, "inner": 20, "steps": 2},
    "gpt": {"width": 16, "layers": 2, "heads": 2, "context": 40},
    "bahdanau": {"embedding": 10, "width": 16},
    "luong": {"width": 12, "layers": 2},
    "gnmt": {"embedding": 10, "width": 12, "layers": 3},
    "convs2s": {"embedding": 10, "width": 12, "layers": 2, "max_length": 40},
    "sutskever": {"width": 12},
    "cho": {"embedding": 10, "width": 16},
    "rctm1": {"width": 12},
    "rctm2": {"width": 12},
    "lstmlm": {"width": 12},
    "nplm": {"order": 4, "embedding": 7, "width": 9},
}
METHODS = {
    "greedy": SearchConfig(beam=1, max_ratio=1.0, max_extra=6, max_length=14),
    "beam": SearchConfig(beam=3, nbest=3, max_ratio=1.0, max_extra=6, max_length=14, no_repeat_ngram=3, min_length=2),
    "sample": SearchConfig(method="sample", nbest=2, top_p=0.9, max_ratio=1.0, max_extra=6, max_length=14),
}


@pytest.fixture(autouse=True)
def tape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(replay.CAPTURES, "cpu", Tape)
    Tape.recorded = Tape.replayed = 0


def make(name: str, seed: int = 0):
    torch.manual_seed(seed)
    config = configuration.build(MODELS.get(name).Config, {"name": name, **SMALL[name]}, "model")
    model = build_model(name, config, source_vocabulary=V, target_vocabulary=V, shared=False)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return model.eval()


def texts(count: int, seed: int, longest: int = 8) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest, (count,), generator=generator).tolist()
    return [[*torch.randint(4, V, (n,), generator=generator).tolist(), EOS] for n in lengths]


def alike(count: int) -> list[list[int]]:
    """Sources so near in length that they share the places of a batch."""
    return [[*range(4 + i % 5, 10 + i % 5 + i % 3 * 2), EOS] for i in range(count)]


def at_different_steps(method: str) -> SearchConfig:
    """Texts are cut, some looks after each other, by their sources' lengths."""
    return dataclasses.replace(METHODS[method], max_ratio=3.0, max_extra=0, min_length=36, max_length=36)


def plainly(config: SearchConfig) -> SearchConfig:
    return dataclasses.replace(config, capture=False)


def same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert [(h.tokens, h.finished) for h in ours] == [(h.tokens, h.finished) for h in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.score == pytest.approx(other.score, rel=5e-5, abs=1e-4)  # of up to 36 tokens, each as below
            assert one.token_log_probs == pytest.approx(other.token_log_probs, rel=1e-4, abs=1e-4)


CASES = [*((name, "beam") for name in SMALL), ("transformer", "greedy"), ("gnmt", "sample")]


@pytest.mark.parametrize(("name", "method"), CASES)
def test_a_recording_serves_one_batch_after_another(name: str, method: str) -> None:
    model, config = make(name), METHODS[method]
    for seed in (1, 2, 3):
        sources = texts(3, seed)
        prompts = [[5, 6], [7], [8, 9, 4]] if "continues" in model.capabilities else [[], [7], []]
        source = pad_rows(sources)
        same(search(model, source, config, prompts), search(model, source, plainly(config), prompts))
    (kept,) = {shape.rows: one for shape, one in recordings._kept(model).shapes.items()}.values()
    # the steps from the first batch on, and in the third the reading of sources, or of prompts as far as all have some
    assert Tape.replayed > Tape.recorded >= len(kept.recordings) > 0
    read = 1 if "continues" in model.capabilities else 0
    assert ("start", read) in kept.recordings or "plans" in model.capabilities
    assert not recordings._kept(model).refused


@pytest.mark.parametrize(
    ("name", "method"), [("transformer", "beam"), ("gpt", "sample"), ("gnmt", "greedy"), ("convs2s", "beam")]
)
def test_waiting_sentences_enter_where_others_are_done(name: str, method: str) -> None:
    model, config = make(name), METHODS[method]
    sources = texts(9, 3)
    forced = [[4 + i % 5] * (i % 3) for i in range(9)]
    expected = [search(model, pad_rows([s]), plainly(config), [f])[0] for s, f in zip(sources, forced, strict=True)]
    for rows in (2, 5):
        found = dict(search_many(model, sources, config, forced, rows=rows))
        same([found[i] for i in range(9)], expected)
    same([found for _, found in sorted(search_many(model, sources, plainly(config), forced))], expected)
    assert dict(search_many(model, [], config)) == {}


@pytest.mark.parametrize("whole", [1 << 16, 0])
@pytest.mark.parametrize(("name", "method"), [("transformer", "beam"), ("gnmt", "sample"), ("convs2s", "greedy")])
def test_groups_that_enter_are_recorded(name: str, method: str, whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In groups of 2 of 16 places, and one by one of 8; texts come with a look, or are fetched when they are done."""
    monkeypatch.setattr(looks, "WHOLE", whole)
    model, sources = make(name), alike(40)
    config = at_different_steps(method)
    expected = [search(model, pad_rows([source]), plainly(config))[0] for source in sources]
    for rows, group in ((16, 2), (8, 1)):
        for _ in range(2):
            found = dict(search_many(model, sources, config, rows=rows))
            same([found[i] for i in range(40)], expected)
        shapes = recordings._kept(model).shapes.items()
        joined = [one for shape, one in shapes if shape.rows == rows and ("join", group) in one.recordings]
        assert joined
        assert any(one.fetches for one in joined) == (whole == 0)


def test_groups_that_cannot_be_recorded_enter_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    model, config, sources = make("bahdanau"), METHODS["beam"], texts(12, 6)
    expected = search(model, pad_rows(sources), plainly(config))
    start = type(model).start

    def asks(self, source, **room):
        float(source.tokens.sum())  # waits for the device
        return start(self, source, **room)

    monkeypatch.setattr(type(model), "start", asks)
    found = dict(search_many(model, sources, config, rows=4))
    same([found[i] for i in range(12)], expected)
    assert not recordings._kept(model).refused
    assert any(("join", 1) in one.unrecorded for one in recordings._kept(model).shapes.values())


@pytest.mark.parametrize("most", [1 << 22, 0])
def test_texts_that_arrive_late(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, or some rows where the whole is too large: others are in their places when they come."""
    monkeypatch.setattr(looks, "WHOLE", 0)
    monkeypatch.setattr(slots, "MOST_FETCHED", most)
    for kind in (looks.Look, looks.Arriving):
        monkeypatch.setattr(kind, "arrived", lambda self: False)
    model, config, sources = (
        make("transformer"),
        dataclasses.replace(METHODS["beam"], min_length=30, max_length=30),
        alike(40),
    )
    expected = [search(model, pad_rows([source]), plainly(config))[0] for source in sources]
    found = dict(search_many(model, sources, config, rows=16))
    same([found[i] for i in range(40)], expected)


def test_texts_are_made_while_the_next_steps_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "WHOLE", 0)
    told: list[str] = []
    for where, name in ((replay.Replayed, "advance"), (replay.Replayed, "fetch"), (GreedySearch, "collect")):
        usual = getattr(where, name)
        monkeypatch.setattr(where, name, lambda *args, u=usual, n=name: (told.append(n), u(*args))[1])
    assert len(dict(search_many(make("transformer"), alike(40), at_different_steps("greedy"), rows=16))) == 40
    made = [i for i, name in enumerate(told) if name == "collect"]
    before = [[name for name in told[:i] if name != "collect"][-1] for i in made]
    assert before[:-1] == ["advance"] * (len(made) - 1)
    assert len(made) > 2


def test_fewer_sentences_at_a_time_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sources, asked = make("bahdanau"), texts(9, 4), []
    expected = search(model, pad_rows(sources), plainly(METHODS["greedy"]))
    start = type(model).start

    def short(self, source, **room):
        asked.append(len(source.tokens))
        if len(source.tokens) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return start(self, source, **room)

    monkeypatch.setattr(type(model), "start", short)
    found = dict(search_many(model, sources, METHODS["greedy"]))
    same([found[i] for i in range(9)], expected)
    assert max(asked) > 2
    monkeypatch.setattr(type(model), "start", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        dict(search_many(model, sources, METHODS["greedy"], rows=4))


def test_coverage_is_kept_where_steps_are_replayed() -> None:
    model, sources = make("transformer"), texts(5, 4)
    config = dataclasses.replace(METHODS["beam"], coverage=0.4)
    found = dict(search_many(model, sources, config, rows=2))
    expected = [search(model, pad_rows([source]), plainly(config))[0] for source in sources]
    same([found[i] for i in range(5)], expected)
    assert Tape.replayed


def test_a_long_text_reads_further_and_further() -> None:
    model = make("transformer")
    config = SearchConfig(beam=2, nbest=2, min_length=70, max_length=70, max_ratio=0.0, max_extra=70)
    source = pad_rows(texts(2, 5))
    same(search(model, source, config), search(model, source, plainly(config)))
    assert Tape.recorded == 5  # spans of 16, 32, 48, 64 and 80 positions


def test_recordings_are_dropped_with_their_weights_and_their_model() -> None:
    model, config = make("transformer"), METHODS["greedy"]
    source = pad_rows(texts(3, 1))
    search(model, source, config)
    assert len(recordings._kept(model).shapes) == 1
    with torch.no_grad():
        model.decoder[0].feedforward.inner.weight = torch.nn.Parameter(  # type: ignore[union-attr]
            model.decoder[0].feedforward.inner.weight * 1.5  # type: ignore[union-attr]
        )
    same(search(model, source, config), search(model, source, plainly(config)))
    for parameter in model.parameters():  # trained on, in place: the recordings read what is there
        parameter.data.mul_(1.1)
    recorded = Tape.recorded
    same(search(model, source, config), search(model, source, plainly(config)))
    assert Tape.recorded == recorded
    gone = weakref.ref(model)
    parameter = None
    del model
    gc.collect()
    assert gone() is None


def test_matrices_made_ready_are_those_of_the_weights_now() -> None:
    model, config = make("convs2s"), METHODS["greedy"]
    source = pad_rows(texts(3, 1))
    search(model, source, config)
    for parameter in model.parameters():
        parameter.data.mul_(-0.7)
    same(search(model, source, config), search(model, source, plainly(config)))


def test_few_recordings_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "MOST_SHAPES", 2)
    model = make("bahdanau")
    for rows in (1, 2, 4):
        search(model, pad_rows(texts(rows, 1)), METHODS["greedy"])
    assert [shape.rows for shape in recordings._kept(model).shapes] == [2, 4]
    monkeypatch.setattr(recordings, "MOST_BYTES", 1)
    search(model, pad_rows(texts(8, 1)), METHODS["greedy"])
    assert not recordings._kept(model).shapes
    monkeypatch.setattr(recordings, "MOST_BYTES", 1 << 30)
    search(model, pad_rows(texts(8, 1)), METHODS["greedy"])
    assert [shape.rows for shape in recordings._kept(model).shapes] == [8]
    recordings.forget(model)
    assert not recordings._kept(model).shapes


@dataclasses.dataclass
class Longer(State):
    """A state that grows by itself."""

    tokens: torch.Tensor
    last: State


def test_sources_that_cannot_be_read_in_a_recording_are_read_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    model, config = make("bahdanau"), METHODS["beam"]
    start = type(model).start

    def asks(self, source, **room):
        float(source.tokens.sum())  # waits for the device
        return start(self, source, **room)

    monkeypatch.setattr(type(model), "start", asks)
    for seed in (1, 2, 3, 4):
        source = pad_rows(texts(3, seed))
        same(search(model, source, config), search(model, source, plainly(config)))
    assert not recordings._kept(model).refused
    assert Tape.replayed


def test_a_model_that_cannot_be_recorded_is_searched_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    model, config = make("bahdanau"), METHODS["beam"]
    sources = texts(5, 2)
    expected = search(model, pad_rows(sources), plainly(config))
    advance = type(model).advance

    def asks(self, tokens, memory, state, record=None):
        float(tokens.sum())  # waits for the device
        return advance(self, tokens, memory, state, record)

    monkeypatch.setattr(type(model), "advance", asks)
    same(search(model, pad_rows(sources), config), expected)
    assert recordings._kept(model).refused
    other = make("bahdanau")
    found = dict(search_many(other, sources, config, rows=2))
    same([found[i] for i in range(5)], expected)

    start = type(model).start

    def begins(self, source, **room):
        memory, state = start(self, source, **room)
        return memory, Longer(torch.zeros(*state.s.shape[:2], 0), state)

    def grows(self, tokens, memory, state, record=None):
        hidden, last = advance(self, tokens, memory, state.last, record)
        return hidden, Longer(torch.cat([state.tokens, tokens], 2), last)

    monkeypatch.setattr(type(model), "start", begins)
    monkeypatch.setattr(type(model), "advance", grows)
    third = make("bahdanau")
    same(search(third, pad_rows(sources), config), expected)
    assert recordings._kept(third).refused


@pytest.mark.parametrize("method", METHODS)
def test_scores_that_are_not_numbers_are_an_error_and_leave_nothing(method: str) -> None:
    model, config = make("transformer"), METHODS[method]
    source = pad_rows(texts(3, 1))
    search(model, source, config)
    broken = model.output.weight
    kept = broken.detach().clone()
    broken.data[5] = math.nan
    with pytest.raises(ModelError, match="not numbers"):
        search(model, source, config)
    assert not recordings._kept(model).shapes  # the caches hold what is no number
    broken.data.copy_(kept)
    same(search(model, source, config), search(model, source, plainly(config)))


def test_settings_that_change_no_step_share_a_recording() -> None:
    model, source = make("bahdanau"), pad_rows(texts(3, 1))
    for settings in ({"seed": 1}, {"seed": 7}, {"max_length": 12}):
        config = dataclasses.replace(METHODS["sample"], **settings)  # type: ignore[arg-type]
        same(search(model, source, config), search(model, source, plainly(config)))
    assert len(recordings._kept(model).shapes) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", SMALL)
def test_cuda_graphs_find_the_same(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # else recurrent layers agree to three digits only
    model, config = make(name), METHODS[method]
    sources = texts(9, 3)
    forced = [[4 + i % 5] * (i % 3) for i in range(9)]
    expected = [search(model, pad_rows([s]), plainly(config), [f])[0] for s, f in zip(sources, forced, strict=True)]
    model = model.to("cuda")
    for _ in range(2):
        found = dict(search_many(model, sources, config, forced, rows=4))
        same([found[i] for i in range(9)], expected)
    if "plans" not in model.capabilities:
        assert not recordings._kept(model).refused
        assert recordings._kept(model).shapes
