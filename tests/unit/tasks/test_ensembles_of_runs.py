"""Runs of several folders as one translator."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import regard
from regard.core.errors import ConfigError, ModelError
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.tasks.pretrained import bundled_model

TEXTS = ["Where is the nearest bank?", "He laughed."]


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of German, with the bundled translator's tokens."""
    folder = tmp_path_factory.mktemp("fused")
    (folder / "text.txt").write_text("Wo ist die Bank?\nEr lachte laut.\nDas Haus ist alt.\n" * 30, encoding="utf-8")
    changes = [
        f"tokenizer.folder={bundled_model()}",
        "model.width=16",
        "model.layers=1",
        "train.steps=3",
        "train.batch_tokens=128",
        "train.window=16",
    ]
    regard.train(text=str(folder / "text.txt"), out=folder / "run", settings=[*changes, "train.device=cpu"])
    return folder / "run"


def test_one_with_itself_is_itself():
    alone = regard.load(engine="torch", device="cpu")
    together = regard.ensemble([bundled_model(), bundled_model()], device="cpu", mix="mean")
    assert together.translate(TEXTS) == alone.translate(TEXTS)
    one, other = (translator.score(TEXTS, ["Wo ist die Bank?", "Er lachte."]) for translator in (together, alone))
    assert [s.log_prob for s in one] == pytest.approx([s.log_prob for s in other], abs=1e-4)
    assert together.hypotheses(TEXTS[:1], attention=True)[0][0].attention


def test_a_language_model_beside_a_translator(language_model: Path):
    alone = regard.load(engine="torch", device="cpu")
    beside = regard.load(language_model)
    fused = regard.ensemble([bundled_model()], device="cpu", fuse=language_model, fusion=0.5)
    target = ["Wo ist die Bank?"]
    expected = alone.score(TEXTS[:1], target)[0].log_prob + 0.5 * beside.score(target)[0].log_prob
    assert fused.score(TEXTS[:1], target)[0].log_prob == pytest.approx(expected, abs=1e-3)
    assert fused.translate(TEXTS[0])


def test_the_tokenizer_of_another_run(language_model: Path):
    mine, own = TokenizerPair.load(language_model), TokenizerPair.load(bundled_model())
    assert mine.target.fingerprint == own.target.fingerprint
    with pytest.raises(regard.RegardError, match="holds no tokenizer"):
        TokenizerPair.train(["a"], ["b"], TokenizerConfig(folder=str(language_model.parent)))


def test_other_tokens_cannot_be_mixed(language_model: Path, tmp_path: Path):
    other = Path(shutil.copytree(language_model, tmp_path / "other"))
    TokenizerPair.train(["one two"], ["eins zwei"], TokenizerConfig(kind="char")).save(other)
    with pytest.raises(regard.RegardError):  # its manifest says so first
        regard.ensemble([bundled_model()], fuse=other)
    with pytest.raises(ModelError, match="model 2 does not translate"):
        regard.ensemble([bundled_model(), language_model])
    with pytest.raises(ModelError, match="17 models were given"):
        regard.ensemble([bundled_model()] * 17)
    with pytest.raises(ConfigError, match="not one of log, mean"):
        regard.ensemble([bundled_model()] * 2, mix="max")
