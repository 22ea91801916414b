"""Steps with one kernel for each sub-layer find what plain steps find: by references, by Triton's interpreter, and on a GPU."""

from __future__ import annotations

import dataclasses
from typing import Any

import counted_steps
import pytest
import torch
from fast_cases import MODEL_SETTINGS, OTHERS, SEARCHES, compare, make, plainly, same, texts
from tape import Tape
from test_fast_steps import interpreted

from regard.core.types import pad_rows
from regard.layers.decoding import kernel_choice, triton_here, whole_layers
from regard.layers.decoding.kernel_choice import Kernels, chosen
from regard.search import fast_steps, replay, search, search_many

torch.set_num_threads(1)
CASES = [
    (name, list(SEARCHES)[(i + j) % len(SEARCHES)], bool(j)) for i, name in enumerate(MODEL_SETTINGS) for j in (0, 2)
]  # every model with two searches, and every search with several models
WITHOUT = ("rotary", "gpt, rotary")  # models that these kernels are not for


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows steps had that were taken so."""
    found: list[int] = []
    usual = whole_layers.whole_layers

    def counted(decoder: Any, x: Any, source: Any, state: Any) -> Any:
        found.append(len(x))
        return usual(decoder, x, source, state)

    fast_steps._warn.cache_clear()
    monkeypatch.setattr(whole_layers, "whole_layers", counted)
    monkeypatch.setitem(kernel_choice.FORCED, "whole", True)
    monkeypatch.setattr(fast_steps, "DEVICES", {"cpu", "cuda"})
    return found


@pytest.mark.parametrize(("name", "method", "forced"), CASES)
def test_the_same_is_found(taken, name: str, method: str, forced: bool) -> None:
    compare(make(name), SEARCHES[method], rows=2, forced=forced)
    assert bool(taken) == (name not in WITHOUT)


@pytest.mark.parametrize("other", OTHERS)
def test_rules_that_take_only_the_decoder(taken, other: str) -> None:
    compare(make("pre"), OTHERS[other], rows=2)
    assert taken


def test_a_model_without_residual_connections(taken, monkeypatch) -> None:
    for norm in ("pre", "post"):
        monkeypatch.setitem(MODEL_SETTINGS, "bare", MODEL_SETTINGS["pre"] | {"residual": False, "norm": norm})
        compare(make("bare"), SEARCHES["greedy"], rows=3)
    assert taken


def test_recorded_steps_and_slots(taken, monkeypatch) -> None:
    monkeypatch.setitem(replay.CAPTURES, "cpu", Tape)
    Tape.replayed = 0
    model, config, sources = make("post"), SEARCHES["beam"], texts(5, 3)
    expected = [search(model, pad_rows([s]), plainly(config))[0] for s in sources]
    found = dict(search_many(model, sources, config, rows=2))
    same([found[i] for i in range(5)], expected)
    assert Tape.replayed
    assert taken


def test_it_is_for_few_rows_and_small_shapes(taken, monkeypatch) -> None:
    """Otherwise steps are those of few kernels, and right as well."""
    monkeypatch.setattr(whole_layers, "MOST_ROWS", 4)
    for method, most in (
        ("greedy", 4),
        ("beam", 3),
    ):  # four sentences, and two with three hypotheses, of which one ends sooner
        taken.clear()
        compare(make("pre"), SEARCHES[method], rows=4 if method == "greedy" else 2, ways=("batch",))
        assert max(taken, default=0) == most
    limits = {"MOST_HEADS": 1, "MOST_WIDTH": 8, "MOST_INNER": 19, "MOST_HEAD": 31}
    for name, limit in limits.items():
        taken.clear()
        with monkeypatch.context() as patch:
            patch.setattr(whole_layers, name, limit)
            compare(make("pre"), SEARCHES["greedy"], rows=3, ways=("batch",))
        assert not taken


def test_long_texts_and_sources_are_for_others(taken, monkeypatch) -> None:
    model, source = make("pre"), pad_rows([[5, 6], [7]])
    config = dataclasses.replace(SEARCHES["greedy"], min_length=8)
    counts = []
    for most in (2048, 6):  # the first steps see few places
        monkeypatch.setattr(whole_layers, "MOST_PLACES", most)
        taken.clear()
        same(search(model, source, config), search(model, source, plainly(config)))
        counts.append(len(taken))
    assert 0 < counts[1] < counts[0]
    monkeypatch.setattr(whole_layers, "MOST_PLACES", 20)
    model, config = make("pre"), SEARCHES["greedy"]
    for length, fits in ((20, True), (21, False)):
        taken.clear()
        search(model, pad_rows([[5] * length]), config)
        assert bool(taken) == fits


def test_by_default_it_is_for_a_few_rows_with_a_source(taken, monkeypatch) -> None:
    """Not for one row, nor for language models; the trial and the steps after it are taken the same way."""
    monkeypatch.delitem(kernel_choice.FORCED, "whole")
    for name, rows, so in (("pre", 3, True), ("pre", 1, False), ("gpt", 3, False)):
        taken.clear()
        model = make(name)
        search(model, pad_rows(texts(rows, 1)), SEARCHES["greedy"], [[5]] * rows)
        assert fast_steps.works(model)
        assert ({2, 3} & set(taken) != set()) == so
        assert 1 not in taken


@pytest.mark.parametrize("kind", ["wrong", "fails", "fails later"])
def test_kernels_that_do_not_work_are_left_out(taken, monkeypatch, caplog, kind: str) -> None:
    """Those of few rows are taken then."""
    usual, calls = whole_layers.feed, []

    def faulty(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if kind == "fails" or (kind == "fails later" and len(calls) > 13):
            raise RuntimeError("no compiler")
        found = usual(*arguments, **named)
        assert found.parts is not None
        return found._replace(parts=found.parts * (1.5 if kind == "wrong" else 1.0))

    monkeypatch.setattr(whole_layers, "feed", faulty)
    model, source, config = make("pre"), pad_rows(texts(2, 1)), SEARCHES["beam"]
    for _ in range(2):
        same(search(model, source, config), search(model, source, plainly(config)))
    assert fast_steps.works(model)
    assert not fast_steps.failed(model)
    assert fast_steps.left_out(model) == {"whole"}
    (record,) = caplog.records
    assert ("do not find here" if kind == "wrong" else "no compiler") in record.getMessage()
    assert "sub-layers are taken in several kernels" in record.getMessage()
    before = len(taken)
    search(model, source, config)
    assert len(taken) == before
    fast_steps.forget(model)
    monkeypatch.setattr(whole_layers, "feed", usual)
    same(search(model, source, config), search(model, source, plainly(config)))
    assert len(taken) > before


@pytest.mark.parametrize("kind", ["wrong", "fails"])
def test_early_starts_that_do_not_work_are_left_out(taken, monkeypatch, caplog, kind: str) -> None:
    """After whole sub-layers, which may be the cause as well; kernels that wait for each other are taken then."""
    usual, seen = fast_steps.logits, []

    def faulty(*arguments: Any) -> Any:
        seen.append(chosen())
        if chosen().early and kind == "fails":
            raise RuntimeError("no early starts")
        found = usual(*arguments)
        return found._replace(values=found.values * 2) if chosen().early else found

    monkeypatch.setattr(kernel_choice, "starts_early", lambda device: True)
    monkeypatch.setattr(fast_steps, "logits", faulty)
    model, source, config = make("pre"), pad_rows(texts(2, 1)), SEARCHES["greedy"]
    for _ in range(2):
        same(search(model, source, config), search(model, source, plainly(config)))
    assert fast_steps.works(model)
    assert fast_steps.left_out(model) == {"whole", "early"}
    assert [(one.whole, one.early) for one in seen[:3]] == [(True, True), (False, True), (False, False)]
    assert len(caplog.records) == 2
    assert "kernels wait for each other" in caplog.records[1].getMessage()


def test_what_is_wrong_elsewhere_ends_all_kernels(monkeypatch, caplog) -> None:
    def fails(*arguments: Any) -> Any:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(fast_steps, "logits", fails)
    model, source, config = make("pre"), pad_rows(texts(2, 1)), SEARCHES["beam"]
    same(search(model, source, config), search(model, source, plainly(config)))
    assert fast_steps.failed(model)
    assert fast_steps.left_out(model) == {"whole", "tiles"}
    assert len(caplog.records) == 3


# 51, 52 and 63 with the products in kernels of their own
@pytest.mark.parametrize(
    ("shape", "rows", "beam", "most"), [("base", 1, 1, 22), ("base", 1, 4, 23), ("base", 8, 1, 22), ("gpt2", 1, 1, 28)]
)
def test_a_step_is_so_many_operations(shape: str, rows: int, beam: int, most: int) -> None:
    found = counted_steps.count(shape, rows, beam, kernels=Kernels(whole=True), min_length=3)
    assert found.total() <= most, dict(found)


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
@pytest.mark.parametrize("pair", ["pre/beam", "post/greedy", "odd sizes/greedy", "gpt, few biases/beam, no loops"])
def test_whole_searches_by_tritons_interpreter(pair: str) -> None:
    assert interpreted("fast_cases.py", "--whole", pair) == "same"


@pytest.mark.skipif(triton_here.triton is None or triton_here.INTERPRETED, reason="needs Triton's compiler")
@pytest.mark.parametrize("early", [False, True])
def test_every_kernel_of_whole_sub_layers_compiles_for_a_gpu(early: bool) -> None:
    """Without a stack, and in what memory a program has. Ahead of states, matrices are asked for. Early: as by default."""
    from compiled_for import compile_steps, resources

    few, types = [("base", 1, 1, 32), ("gpt2", 1, 1, 512)], (torch.bfloat16, torch.float32)
    for dtype in types[:1] if early else types:
        kernels = None if early else Kernels(whole=True, ahead=True)
        launches = compile_steps([("base", 1, 4, 512), *([] if early else few)], dtype, kernels)
        assert {"_attend_text", "_attend_source", "_feed", "_settle"} <= set(launches.count)
        for what, (compiled, _) in launches.done.items():
            assert ("griddepcontrol.wait" in compiled.asm["ptx"]) == early, what
            assert resources(compiled.asm["cubin"])["STACK"] == 0, what
            assert compiled.metadata.shared <= 200 << 10, what
            if what[0] in ("_attend_text", "_attend_source", "_feed"):
                assert "cp.async.bulk.prefetch" in compiled.asm["ptx"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("name", "method", "_forced"), CASES)
def test_the_same_is_found_on_a_gpu(taken, monkeypatch, name: str, method: str, _forced: bool) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    model, config, sources = make(name).cuda(), SEARCHES[method], texts(5, 3)
    off = dataclasses.replace(config, fused=False)
    expected = [search(model, pad_rows([s]).to("cuda"), off)[0] for s in sources]
    for _ in range(2):
        found = dict(search_many(model, sources, config, rows=2))
        same([found[i] for i in range(5)], expected, apart=1e-4)
    assert bool(taken) == (name not in WITHOUT)
    assert fast_steps.works(model)
