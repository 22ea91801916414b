"""Steps made of few kernels find what the plain steps find: by the kernels' references, by Triton's interpreter, and on a GPU."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import counted_steps
import pytest
import torch
from fast_cases import MODEL_SETTINGS, OTHERS, SEARCHES, SMALL, compare, make, plainly, same, texts
from tape import Tape

from regard.core.errors import ModelError
from regard.core.types import pad_rows
from regard.layers.decoding import decoder, kernel_choice, looking_logits, rotary, triton_here
from regard.layers.decoding.kernel_choice import Kernels
from regard.layers.decoding.vocabulary import Logits
from regard.models import decoder_parts
from regard.search import SearchConfig, fast_steps, fused_reading, recordings, replay, search, search_many
from regard.search.beam import BeamSearch
from regard.search.constraints import Constraints

torch.set_num_threads(1)
HERE = Path(__file__).parent
MANY = {**SEARCHES, **OTHERS}
FEW, MANY_ROWS = (
    (64, False),
    (0, True),
)  # up to how many rows products are in kernels, and whether texts have beginnings
# every model with two searches, and every search with several models
CASES = [
    *(
        (name, list(SEARCHES)[(i + j) % len(SEARCHES)], *how)
        for i, name in enumerate(MODEL_SETTINGS)
        for j, how in ((0, FEW), (2, MANY_ROWS))
    ),
    *((name, other, *how) for name in ("pre", "gpt") for other in OTHERS for how in (FEW, MANY_ROWS)),
]


@pytest.fixture(autouse=True)
def _in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sub-layers are taken in several kernels: see test_whole_steps for the others."""
    fast_steps._warn.cache_clear()
    monkeypatch.setitem(kernel_choice.FORCED, "whole", False)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_steps, "DEVICES", {"cpu"})


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(("name", "method", "few", "forced"), CASES)
def test_the_same_is_found(monkeypatch, name: str, method: str, few: int, forced: bool) -> None:
    monkeypatch.setattr(fast_steps, "FEW_ROWS", few)
    compare(make(name), MANY[method], rows=3, forced=forced)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(("name", "method"), [("pre", "beam"), ("post", "greedy"), ("gpt", "beam, exact")])
def test_recorded_steps_and_slots(monkeypatch, name: str, method: str) -> None:
    """Sentences enter and leave, with forced prefixes, while steps are replayed."""
    monkeypatch.setitem(replay.CAPTURES, "cpu", Tape)
    Tape.recorded = Tape.replayed = 0
    model, config, sources = make(name), SEARCHES[method], texts(9, 3)
    forced = [[4 + i % 5] * (i % 3) for i in range(9)]
    expected = [search(model, pad_rows([s]), plainly(config), [f])[0] for s, f in zip(sources, forced, strict=True)]
    found = dict(search_many(model, sources, config, forced, rows=4))
    same([found[i] for i in range(9)], expected)
    assert Tape.replayed
    assert not recordings._kept(model).refused


MANY_ROWS_CASES = [("pre", "beam"), ("post", "greedy"), ("gpt", "beam, exact"), ("gpt, few biases", "greedy, long")]


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(("name", "method"), MANY_ROWS_CASES)
def test_logits_in_round_rows(monkeypatch, name: str, method: str) -> None:
    """Of 150 tokens, 144 are in the product. Weights change between searches whose steps are replayed, as in training."""
    monkeypatch.setattr(fast_steps, "FEW_ROWS", 0)
    monkeypatch.setitem(kernel_choice.FORCED, "aligned", True)
    monkeypatch.setitem(replay.CAPTURES, "cpu", Tape)
    strides, usual = set(), fast_steps.many_logits

    def many_logits(*arguments):
        found = usual(*arguments)
        strides.add(found.values.stride(0))
        return found

    monkeypatch.setattr(fast_steps, "many_logits", many_logits)
    model = make(name)
    for seed in range(3):
        compare(model, SEARCHES[method], rows=3)
        with torch.no_grad():
            model.output.weight.copy_(make(name, seed + 1).output.weight)
    assert strides == {192}


def only(monkeypatch: pytest.MonkeyPatch, *parts: str) -> None:
    """Of what can be chosen, only these are."""
    for name in Kernels._fields:
        monkeypatch.setitem(kernel_choice.FORCED, name, name in parts)


@pytest.mark.usefixtures("on_cpu")
def test_what_is_wrong_for_the_last_sentences_alone_is_found(monkeypatch, caplog) -> None:
    """A trial looks at some sentences only: at the first and the last."""
    usual = decoder.Decoder.many_rows

    def wrong(self, x, source, state):
        found = usual(self, x, source, state)
        return torch.cat((found[:-3], -found[-3:]))

    only(monkeypatch)
    monkeypatch.setattr(fast_steps, "FEW_ROWS", 0)
    monkeypatch.setattr(decoder.Decoder, "many_rows", wrong)
    model, config, sources = make("pre"), SEARCHES["greedy"], texts(90, 1)
    expected = [search(model, pad_rows([s]), plainly(config))[0] for s in sources]
    same(search(model, pad_rows(sources), config), expected)
    assert fast_steps.failed(model)
    assert len(caplog.records) == 1


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("part", ["narrow", "aligned"])
def test_what_is_for_many_rows_is_left_out_where_it_fails(monkeypatch, caplog, part: str) -> None:
    usual = fast_steps.many_logits

    def faulty(*arguments):
        if getattr(kernel_choice.chosen(), part):
            raise RuntimeError("no compiler")
        return usual(*arguments)

    monkeypatch.setattr(fast_steps, "FEW_ROWS", 0)
    monkeypatch.setattr(kernel_choice, "FEWEST_NARROW", 1)
    only(monkeypatch, part)
    monkeypatch.setattr(fast_steps, "many_logits", faulty)
    model = make("pre")
    compare(model, SEARCHES["greedy"], rows=3)
    assert fast_steps.left_out(model) == {part}
    assert len(caplog.records) == 1


@pytest.mark.usefixtures("on_cpu")
def test_a_model_without_residual_connections() -> None:
    """Its texts tie too often for beams."""
    settings = MODEL_SETTINGS["pre"] | {"residual": False}
    for norm in ("pre", "post"):
        MODEL_SETTINGS["bare"] = settings | {"norm": norm}
        compare(make("bare"), SEARCHES["greedy"], rows=3)
        del MODEL_SETTINGS["bare"]


@pytest.mark.parametrize(
    "settings",
    [{"relative": "shaw"}, {"normalise": "batch"}, {"activation": "swiglu"}, {"positions": "fraction"}],
)
def test_other_models_go_their_own_way(monkeypatch, settings: dict) -> None:
    monkeypatch.setattr(fast_steps, "DEVICES", {"cpu"})
    monkeypatch.setitem(MODEL_SETTINGS, "other", MODEL_SETTINGS["pre"] | settings)
    model = make("other")
    assert decoder_parts.decoder_parts(model, 10) is None
    source = pad_rows(texts(2, 1))
    same(search(model, source, SEARCHES["beam"]), search(model, source, plainly(SEARCHES["beam"])))
    assert model not in fast_steps._TRIED
    assert decoder_parts.decoder_parts(make("pre"), 10) is not None
    assert decoder_parts.decoder_parts(make("pre"), 5000) is None  # more than there are positions tabled
    assert decoder_parts.decoder_parts(make("pre").train(), 10) is None


@pytest.mark.usefixtures("on_cpu")
def test_it_can_be_switched_off_and_is_off_on_a_cpu(monkeypatch) -> None:
    model, source = make("pre"), pad_rows(texts(2, 1))
    config = SEARCHES["beam"]
    search(model, source, dataclasses.replace(config, fused=False))
    search(model, source, dataclasses.replace(config, coverage=0.2))  # needs the weights of attention
    with torch.autocast("cpu", torch.bfloat16, enabled=False):
        search(model, source, dataclasses.replace(config, fused=False))
    assert model not in fast_steps._TRIED
    monkeypatch.setattr(fast_steps, "DEVICES", {"cuda"})
    search(model, source, config)
    assert model not in fast_steps._TRIED
    monkeypatch.setattr(fast_steps, "DEVICES", {"cpu"})
    search(model, source, config)
    assert fast_steps.works(model)
    fast_steps.forget(model)
    search(model, source, dataclasses.replace(config, fused="auto"))
    assert fast_steps.works(model)
    fast_steps.forget(model)
    assert model not in fast_steps._TRIED


def faulty(function, after: int = 0, factor: float = 1.0):
    """A function that raises from some call on, or whose result is wrong."""
    calls = []

    def called(*arguments, **named):
        calls.append(1)
        if after and len(calls) >= after:
            raise RuntimeError("no compiler")
        found = function(*arguments, **named)
        return found._replace(values=found.values * factor) if isinstance(found, Logits) else found * factor

    return called


FAULTS = {
    "does not run": (decoder, "attend_cache", {"after": 1}),
    "does not run later": (decoder, "attend_cache", {"after": 13}),
    "logits do not run": (fast_steps, "logits", {"after": 4}),
    "wrong states": (decoder, "attend_cache", {"factor": 1.5}),
    "wrong logits": (fast_steps, "logits", {"factor": 1.2}),
}


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("method", ["beam", "greedy"])
def test_kernels_that_do_not_work_are_left_out(monkeypatch, caplog, fault: str, method: str) -> None:
    model, source, config = make("pre"), pad_rows(texts(3, 1)), SEARCHES[method]
    only(monkeypatch)
    where, name, how = FAULTS[fault]
    monkeypatch.setattr(where, name, faulty(getattr(where, name), **how))
    for _ in range(2):
        same(search(model, source, config), search(model, source, plainly(config)))
    assert fast_steps.failed(model)
    assert not fast_steps.works(model)
    (record,) = caplog.records
    assert ("no compiler" if "run" in fault else "do not find here") in record.getMessage()


@pytest.mark.usefixtures("on_cpu")
def test_rotary_positions_that_are_wrong_further_on_are_found_at_the_first_step(monkeypatch, caplog) -> None:
    only(monkeypatch)
    monkeypatch.setattr(rotary.Turned, "__call__", lambda self, projected, *_: projected)  # right at the first place
    model, source, config = make("rotary"), pad_rows(texts(3, 1)), SEARCHES["beam"]
    same(search(model, source, config), search(model, source, plainly(config)))
    assert fast_steps.failed(model)
    assert "do not find here" in caplog.text


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("fault", ["bans", "sums", "places", "masks"])
def test_kernels_that_write_wrong_things_are_left_out(monkeypatch, caplog, fault: str) -> None:
    model, source, config = make("pre"), pad_rows(texts(3, 1)), SEARCHES["beam"]
    extend, read = fast_steps.FastSteps.extend_plainly, fused_reading.read

    def faulty_extend(self, work, found, state):
        new, state = extend(self, work, found, state)
        if fault == "sums":
            new.live.total[:, 0] -= 0.1
        if fault == "places":
            new.at[0] += 1
        if fault == "masks":
            state.hidden[0, 1, 0] = -torch.inf
        return new, state

    def faulty_read(*arguments):
        x, bans = read(*arguments)
        return x, bans if fault != "bans" else bans + 9

    monkeypatch.setattr(fast_steps.FastSteps, "extend", faulty_extend)
    monkeypatch.setattr(fused_reading, "read", faulty_read)
    monkeypatch.setattr(triton_here, "runs_on", lambda tensor: True)  # what is written is compared where kernels do it
    same(search(model, source, config), search(model, source, plainly(config)))
    assert fast_steps.failed(model)
    assert "do not find here" in caplog.text


@pytest.mark.usefixtures("on_cpu")
def test_what_cannot_be_compared_is_not_trusted() -> None:
    """Of a model whose states are no numbers, steps are plain, and the search says what is wrong."""
    model, source = make("pre"), pad_rows(texts(3, 1))
    with torch.no_grad():
        model.decoder_norm.weight[0] = float("nan")
    with pytest.raises(ModelError, match="not numbers"):
        search(model, source, SEARCHES["beam"])
    assert not fast_steps.works(model)
    assert not fast_steps.failed(model)


@pytest.mark.parametrize(
    ("device", "changes", "why"),
    [
        ("cuda", {}, "not for this device, cpu"),
        ("cpu", {"coverage": 0.2}, "which coverage needs"),
        ("cpu", {"model": "lstmlm"}, "no such kernels for this LSTMLM"),
        ("cpu", {"fused": False}, ""),
        ("cuda", {"fused": "auto"}, ""),  # which asks for nothing that is not there
        ("cpu", {"fused": "auto", "coverage": 0.2}, ""),
    ],
)
def test_one_warning_says_why_steps_are_plain(monkeypatch, caplog, device: str, changes: dict, why: str) -> None:
    monkeypatch.setattr(fast_steps, "DEVICES", {device})
    changes = dict(changes)
    name = changes.pop("model", "transformer")
    monkeypatch.setitem(MODEL_SETTINGS, "other", {"name": name, **({} if name == "lstmlm" else SMALL)})
    model, source = make("other"), pad_rows(texts(2, 1))
    config = dataclasses.replace(SEARCHES["beam"], **changes)
    for _ in range(2):
        search(model, source, config)
    assert [why in record.getMessage() for record in caplog.records] == ([True] if why else [])


def test_rules_that_kernels_know() -> None:
    """Of other rules, those made from beam search among them, kernels only do the decoder's part."""

    class Other(BeamSearch):
        pass

    model, device = make("pre"), torch.device("cpu")
    parts = decoder_parts.decoder_parts(model, 10)
    assert parts is not None
    for beam, rule, ranks in (
        (3, BeamSearch, True),
        (3, Other, False),
        (16, BeamSearch, True),
        (17, BeamSearch, False),
    ):
        config = SearchConfig(beam=beam, fused=True)
        steps = fast_steps.FastSteps(model, parts, rule(config, device, 10), Constraints(config, device))
        assert steps.ranks == ranks
    config = SearchConfig(beam=3, no_repeat_ngram=2)
    rule = BeamSearch(config, device, 10)
    assert not fast_steps.FastSteps(model, parts, rule, Constraints(config, device)).ranks


@pytest.mark.usefixtures("on_cpu")
def test_autocast_and_watched_modules_take_the_models_own_steps(caplog) -> None:
    model, source = make("pre"), pad_rows(texts(2, 1))
    with torch.autocast("cpu", torch.float16):
        assert fast_steps._missing(Constraints(SEARCHES["beam"], torch.device("cpu")), torch.device("cpu"))
    seen = []
    hook = model.decoder[0].feedforward.register_forward_hook(lambda *arguments: seen.append(1))
    search(model, source, SEARCHES["beam"])
    assert seen
    assert model not in fast_steps._TRIED
    hook.remove()
    search(model, source, SEARCHES["beam"])
    assert fast_steps.works(model)
    assert decoder_parts.decoder_parts(make("pre").double(), 10) is None


# the plain step of the base Transformer takes 173 operations, and 221 with a beam
@pytest.mark.parametrize(
    ("shape", "rows", "beam", "most"),
    [("base", 1, 1, 51), ("base", 1, 4, 52), ("base", 64, 1, 77), ("base", 512, 4, 78), ("gpt2", 1, 1, 63)],
)
def test_a_step_is_so_many_operations(shape: str, rows: int, beam: int, most: int) -> None:
    found = counted_steps.count(shape, rows, beam, kernels=Kernels(), min_length=3)
    assert found.total() <= most, dict(found)
    assert found.total() < counted_steps.count(shape, rows, beam, fused=False).total() / 2


@pytest.mark.parametrize(("shape", "rows", "beam"), [("base", 512, 4), ("gpt2", 64, 1)])
def test_kernels_for_many_rows_are_as_many(shape: str, rows: int, beam: int) -> None:
    usual = counted_steps.count(shape, rows, beam, kernels=Kernels())
    assert counted_steps.count(shape, rows, beam, kernels=Kernels(narrow=True, aligned=True)).total() == usual.total()


@pytest.mark.parametrize(("shape", "rows", "beam"), [("base", 512, 4), ("gpt2", 64, 1)])
def test_a_product_that_looks_leaves_nothing_to_read(monkeypatch, shape: str, rows: int, beam: int) -> None:
    usual = counted_steps.count(shape, rows, beam, kernels=Kernels())
    monkeypatch.setattr(kernel_choice, "FEWEST_LOOKING", 1)
    monkeypatch.setattr(looking_logits, "WIDEST", 768)
    found = counted_steps.count(shape, rows, beam, kernels=Kernels(looks=True))
    assert found["_multiply_and_look"] == 1
    assert "_forbid_in_place" in usual
    assert "_forbid_in_place" not in found
    assert found.total() == usual.total() - 1


def interpreted(script: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, HERE / script, *words],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("Triton's interpreter does not get on with this numpy")
    return done.stdout.strip() or done.stderr


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
def test_the_kernels_of_search_by_tritons_interpreter() -> None:
    assert interpreted("fused_cases.py") == "equal"


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
@pytest.mark.parametrize(
    "words",
    [
        ["pre/beam"],
        ["post/greedy"],
        ["rotary/beam"],
        ["gpt, rotary/greedy"],
        ["gpt, few biases/beam, no loops"],
        ["--tiles", "pre/beam"],
        ["--many", "pre/beam"],
        ["--many", "gpt, few biases/greedy"],
        ["--looks", "post/beam"],
        ["--looks", "gpt, few biases/greedy"],
    ],
)
def test_whole_searches_by_tritons_interpreter(words: list[str]) -> None:
    assert interpreted("fast_cases.py", *words) == "same"


@pytest.mark.skipif(triton_here.triton is None or triton_here.INTERPRETED, reason="needs Triton's compiler")
@pytest.mark.parametrize("early", [False, True])
def test_every_kernel_compiles_for_a_gpu(early: bool) -> None:
    from compiled_for import compile_steps, resources

    cases = [("base", 1, 1, 32), ("base", 1, 4, 512), ("base", 4, 5, 48), ("base", 512, 4, 32), ("gpt2", 64, 1, 64)]
    cases += [("rotary", 1, 1, 32), ("rotary", 64, 1, 32)]
    launches = compile_steps(cases[1:2] if early else cases, kernels=Kernels(early=early))
    names = {"_read", "_join", "_one_by_one", "_attend_cache", "_attend_memory", "_likeliest", "_extend"}
    assert names | (set() if early else {"_tiles", "_turn", "_add_and_normalise", "_write_likeliest"}) <= set(
        launches.count
    )
    assert all(("griddepcontrol.wait" in compiled.asm["ptx"]) == early for compiled, _ in launches.done.values())
    for what, (compiled, _) in launches.done.items():
        # sines of very large angles; Triton 3.7 leaves two words of one kernel on the stack
        most = 32 if what[0] == "_turn" else 8
        assert resources(compiled.asm["cubin"])["STACK"] <= most, what


@pytest.mark.skipif(triton_here.triton is None or triton_here.INTERPRETED, reason="needs Triton's compiler")
def test_kernels_for_many_rows_compile_for_a_gpu() -> None:
    """So small that many programs run at once."""
    from compiled_for import compile_steps, resources

    cases = [("base", 512, 1, 32), ("gpt2", 64, 1, 64)]
    launches = compile_steps(cases, kernels=Kernels(narrow=True, aligned=True))
    registers = {"_looks_back": 96, "_looks_over": 96}
    assert set(registers) <= set(launches.count)
    for what, (compiled, _) in launches.done.items():
        used = resources(compiled.asm["cubin"])
        assert used["STACK"] == 0, what
        if what[0] in registers:
            assert used["REG"] <= registers[what[0]], what
            assert compiled.metadata.shared <= 16 << 10, what


@pytest.mark.skipif(triton_here.triton is None or triton_here.INTERPRETED, reason="needs Triton's compiler")
def test_a_product_that_looks_compiles_for_a_gpu(monkeypatch) -> None:
    """By tensor cores, from tiles that the copy engine brings; two programs share a multiprocessor."""
    from compiled_for import compile_steps, resources

    monkeypatch.setattr(kernel_choice, "FEWEST_LOOKING", 1)
    monkeypatch.setattr(looking_logits, "WIDEST", 768)
    launches = compile_steps([("base", 512, 4, 32), ("gpt2", 64, 1, 64)], kernels=Kernels(looks=True))
    found = {what: compiled for what, (compiled, _) in launches.done.items() if what[0] == "_multiply_and_look"}
    assert len(found) == 2
    for what, compiled in found.items():
        assert "wgmma" in compiled.asm["ptx"]
        assert "cp.async.bulk.tensor" in compiled.asm["ptx"]
        used = resources(compiled.asm["cubin"])
        assert used["STACK"] == 0, what
        assert used["REG"] <= 255, what
        assert 2 * compiled.metadata.shared <= 227 << 10, what


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("name", "method"), MANY_ROWS_CASES)
def test_what_is_for_many_rows_on_a_gpu(monkeypatch, name: str, method: str) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(fast_steps, "FEW_ROWS", 0)
    monkeypatch.setattr(kernel_choice, "FEWEST_NARROW", 1)
    for part in ("narrow", "aligned"):
        monkeypatch.setitem(kernel_choice.FORCED, part, True)
    model, config, sources = make(name).cuda(), SEARCHES[method], texts(9, 3)
    off = dataclasses.replace(config, fused=False)
    expected = [search(model, pad_rows([s]).to("cuda"), off)[0] for s in sources]
    for _ in range(2):
        found = dict(search_many(model, sources, config, rows=4))
        same([found[i] for i in range(9)], expected, apart=1e-4)
    assert fast_steps.works(model)
    assert not fast_steps.left_out(model)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("name", "method", "few", "_forced"), CASES)
def test_the_same_is_found_on_a_gpu(monkeypatch, name: str, method: str, few: int, _forced: bool) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(fast_steps, "FEW_ROWS", few)
    model, config, sources = make(name).cuda(), MANY[method], texts(9, 3)
    forced = [[4 + i % 5] * (i % 3) for i in range(9)]
    off = dataclasses.replace(config, fused=False)
    expected = [search(model, pad_rows([s]).to("cuda"), off, [f])[0] for s, f in zip(sources, forced, strict=True)]
    for _ in range(2):
        found = dict(search_many(model, sources, config, forced, rows=4))
        same([found[i] for i in range(9)], expected, apart=1e-4)
    assert fast_steps.works(model)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("rows", [1, 9, 70])
def test_states_of_16_bits_on_a_gpu(monkeypatch, rows: int, beam: int, looks: bool) -> None:
    monkeypatch.setattr(kernel_choice, "FEWEST_LOOKING", 1 if looks else 1 << 30)
    model = make("pre").to("cuda", torch.bfloat16)
    config = SearchConfig(beam=beam, max_length=14, min_length=14, max_extra=20, fused=True)
    source = pad_rows(texts(rows, 3)).to("cuda")
    found, plain = (search(model, source, one) for one in (config, dataclasses.replace(config, fused=False)))
    assert fast_steps.works(model)
    assert not fast_steps.left_out(model)
    scores = [[lists[0].score for lists in both] for both in (found, plain)]
    torch.testing.assert_close(torch.tensor(scores[0]), torch.tensor(scores[1]), rtol=0.05, atol=0.3)
