"""Which engine a translator uses, for which requests, and that the answers are the same."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

import regard
from regard.core import accelerators
from regard.core.errors import CheckpointError, ConfigError, ModelError
from regard.core.files import read_json, write_json, write_manifest
from regard.core.search_config import SearchConfig
from regard.layers import int8_linear
from regard.tasks import converted_run, fast_translation
from regard.tasks.pretrained import bundled_model
from regard.tasks.translation import Translator

pytest.importorskip("ctranslate2")

TEXTS = [
    "Where is the nearest bank?",
    "",
    "I have never seen it. Have you?",
    "  He laughed.",
    "The dog sleeps.\nIt is old.",
]


@pytest.fixture
def bundled(tmp_path: Path) -> Path:
    """The bundled model in a folder of one's own."""
    return Path(shutil.copytree(bundled_model(), tmp_path / "model"))


@pytest.fixture(scope="module")
def exact() -> Translator:
    return regard.load(device="cpu", compute="float32")


@pytest.fixture(scope="module")
def by_torch() -> Translator:
    return regard.load(device="cpu", engine="torch")


def test_texts_are_those_of_torch(exact: Translator, by_torch: Translator) -> None:
    assert (exact.engine, by_torch.engine) == ("ctranslate2", "torch")
    assert exact.translate(TEXTS) == by_torch.translate(TEXTS)
    assert exact.translate(TEXTS[0], beam=1) == by_torch.translate(TEXTS[0], beam=1)
    assert exact.engine == "ctranslate2"
    assert exact.engine_note == ""


def test_hypotheses_have_all_that_those_of_torch_have(exact: Translator, by_torch: Translator) -> None:
    settings = dataclasses.replace(exact.search, nbest=3)
    for many, wanted in zip(
        exact.hypotheses(TEXTS, search=settings), by_torch.hypotheses(TEXTS, search=settings), strict=True
    ):
        for one, own in zip(many, wanted, strict=True):
            assert (one.text, one.tokens, one.finished) == (own.text, own.tokens, own.finished)
            assert one.source_tokens == own.source_tokens
            assert one.score == pytest.approx(own.score, abs=1e-4)
            assert one.log_prob == pytest.approx(own.log_prob, abs=1e-4)
            assert one.token_log_probs == pytest.approx(own.token_log_probs, abs=1e-4)
    assert exact.engine == "ctranslate2"


def test_progress_counts_sentences(exact: Translator) -> None:
    heard: list[int] = []
    exact.hypotheses(TEXTS, progress=heard.append, batch_tokens=1)
    assert heard == list(range(1, 7))


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        (SearchConfig(method="sample"), "sampled"),
        (SearchConfig(coverage=0.1), "coverage"),
        (SearchConfig(stop="exact"), "exact"),
    ],
)
def test_requests_for_torch_go_to_torch(
    exact: Translator, by_torch: Translator, settings: SearchConfig, note: str
) -> None:
    assert exact.translate(TEXTS, search=settings) == by_torch.translate(TEXTS, search=settings)
    assert exact.engine == "torch"
    assert note in exact.engine_note
    exact.translate(TEXTS[0])
    assert (exact.engine, exact.engine_note) == ("ctranslate2", "")


def test_attention_prefixes_and_scores_come_from_torch(exact: Translator, by_torch: Translator) -> None:
    assert exact.hypotheses(TEXTS[:1], attention=True)[0][0].attention
    assert "attention" in exact.engine_note
    forced = exact.hypotheses(TEXTS[:1], prefixes=["Die"])[0][0].text
    assert forced.startswith("Die")
    assert "beginning" in exact.engine_note
    assert exact.score(TEXTS[:1], ["Wo ist sie?"]) == by_torch.score(TEXTS[:1], ["Wo ist sie?"])


def test_what_cannot_be_taken_is_searched_again(exact: Translator, by_torch: Translator) -> None:
    settings = dataclasses.replace(exact.search, min_length=6)
    assert exact.translate(TEXTS, search=settings) == by_torch.translate(TEXTS, search=settings)
    assert exact.engine == "ctranslate2"
    assert "left to torch" in exact.engine_note
    heard: list[int] = []
    exact.hypotheses(TEXTS, search=settings, progress=heard.append)
    assert heard[-1] == 6
    assert heard == sorted(heard)


def test_a_request_that_is_for_torch_is_not_searched_twice(exact: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = exact.engines.fast
    assert engine is not None
    started, start = [], engine.start
    monkeypatch.setattr(
        engine, "start", lambda sources, settings: started.append(len(sources)) or start(sources, settings)
    )
    settings = dataclasses.replace(exact.search, beam=1, min_length=8)
    written = exact.hypotheses(["No."] * 100, search=settings, batch_tokens=30)
    assert len(written) == 100
    assert 32 <= sum(started) < 60


@pytest.mark.parametrize(("threads", "sizes"), [(1, [12]), (2, [6, 6]), (3, [4, 4, 4]), (50, [4, 4, 4])])
def test_no_thread_has_nothing_to_do(exact: Translator, monkeypatch: pytest.MonkeyPatch, threads: int, sizes) -> None:
    """Where threads take batches of their own; but a batch has four sentences at least."""
    engine = exact.engines.fast
    assert engine is not None
    started, start = [], engine.start
    monkeypatch.setattr(engine, "batches", threads)
    monkeypatch.setattr(
        engine, "start", lambda sources, settings: started.append(len(sources)) or start(sources, settings)
    )
    text = "Where is the station?"
    tokens = len(exact.hypotheses([text])[0][0].source_tokens) + 1
    started.clear()
    monkeypatch.setattr(fast_translation, "FEWEST_TOKENS", 4 * tokens)
    assert len(set(exact.translate([text] * 12))) == 1
    assert started == sizes


def test_one_who_has_the_model_may_change_it(bundled: Path) -> None:
    import torch

    translator = regard.load(bundled, device="cpu")
    before = translator.translate(TEXTS[0])
    with torch.no_grad():
        translator.model.target_embedding.weight.zero_()  # type: ignore[union-attr]
    assert translator.translate(TEXTS[0]) != before
    assert (translator.engine, translator.engine_note) == ("torch", "the model was taken in hand")
    assert translator.tagged("").translate(TEXTS[0]) != before


def test_insisting_makes_the_rest_an_error(bundled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = regard.load(bundled, engine="ctranslate2")
    assert translator.translate(TEXTS[0])
    with pytest.raises(ModelError, match="attention was asked for"):
        translator.hypotheses(TEXTS, attention=True)
    with pytest.raises(ConfigError, match="no such GPU"):
        regard.load(bundled, device="cuda", engine="ctranslate2")
    with pytest.raises(ConfigError, match="not one of auto"):
        regard.load(bundled, engine="fast")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="not one of auto, float32"):
        regard.load(bundled, compute="int4")  # type: ignore[call-overload]
    monkeypatch.setattr(converted_run, "installed", lambda: False)
    with pytest.raises(ModelError, match="not installed"):
        regard.load(bundled, engine="ctranslate2")
    without = regard.load(bundled)
    assert (without.engine, without.engine_note) == ("torch", "CTranslate2 is not installed")
    assert without.translate(TEXTS[0])
    assert without.engine_note == "CTranslate2 is not installed"


def test_measuring_is_by_torch(bundled: Path) -> None:
    assert Translator.load(bundled, "cpu").engine == "torch"


def test_a_converted_model_is_kept_beside_its_run(bundled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(bundled / "empty"))
    first = regard.load(bundled, device="cpu").translate(TEXTS)
    (entry,) = (bundled / "ctranslate2").iterdir()
    content = (entry / "model.bin").read_bytes()
    (entry / "model.bin").write_bytes(content[:-1000])
    assert regard.load(bundled, device="cpu").translate(TEXTS) == first
    assert (entry / "model.bin").read_bytes() == content
    regard.load(bundled, device="cpu", compute="float32")
    assert len(list((bundled / "ctranslate2").iterdir())) == 2


def test_nothing_is_written_into_the_package() -> None:
    regard.load(device="cpu")
    assert not (bundled_model() / "ctranslate2").exists()


def test_damaged_weights_are_an_error_although_a_converted_model_is_kept(bundled: Path) -> None:
    regard.load(bundled, device="cpu")
    weights = bundled / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CheckpointError, match="corrupted"):
        regard.load(bundled, device="cpu")


def test_a_machine_with_an_accelerator_asks_torch(bundled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(accelerators, "SIGNS", (str(bundled),))
    monkeypatch.setattr(accelerators.sys, "platform", "linux")
    assert accelerators.may_have_accelerator()
    assert not accelerators.is_cpu("auto")
    assert regard.load(bundled).engine in ("ctranslate2", "torch")  # as torch says: here is a GPU, or none
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert accelerators.is_cpu("auto")
    monkeypatch.setattr(accelerators.sys, "platform", "darwin")
    monkeypatch.setattr(accelerators.platform, "machine", lambda: "arm64")
    assert accelerators.may_have_accelerator()


def test_other_models_are_run_by_torch(bundled: Path) -> None:
    config = read_json(bundled / "config.json")
    config["model"]["normalise"] = "batch"
    write_json(bundled / "config.json", config)
    write_manifest(bundled, ["config.json", "tokenizer.json", "model.safetensors"])
    with pytest.raises(ModelError, match="normalise='batch'"):
        regard.load(bundled, device="cpu", engine="ctranslate2")
    with pytest.raises(
        CheckpointError, match="do not fit"
    ):  # torch's own words: the weights are of layer normalisation
        regard.load(bundled, device="cpu")


def test_weights_that_do_not_fit_are_refused_in_the_words_of_torch(bundled: Path) -> None:
    config = read_json(bundled / "config.json")
    config["model"]["inner"] = 512
    write_json(bundled / "config.json", config)
    write_manifest(bundled, ["config.json", "tokenizer.json", "model.safetensors"])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: the weights do not fit"):
        regard.load(bundled, device="cpu")
    with pytest.raises(ModelError, match="do not fit"):
        regard.load(bundled, device="cpu", engine="ctranslate2")


def test_int8_of_torch(by_torch: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8_linear, "SMALLEST", 1 << 10)  # the bundled model's matrices are small
    low = regard.load(engine="torch", compute="int8", device="cpu")
    assert any(isinstance(m.__dict__.get("weight"), int8_linear.Int8Matrix) for m in low.model.modules())
    one, other = (t.score(TEXTS, by_torch.translate(TEXTS)) for t in (low, by_torch))
    differences = [abs(a.log_prob - b.log_prob) for a, b in zip(one, other, strict=True)]
    assert 0 < max(differences) < 1.0
    assert low.translate("Where is the bank?")


def test_numbers_that_torch_has_not() -> None:
    with pytest.raises(ConfigError, match="of CTranslate2, not of torch"):
        regard.load(device="cpu", engine="torch", compute="int8_float32")
