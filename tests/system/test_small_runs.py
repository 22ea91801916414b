"""Runs at the edges: few pairs, every tokenizer, learned positions, BLEU for early stopping, averages, other languages."""

from __future__ import annotations

from pathlib import Path

import pytest

import regard
from regard.core.errors import ConfigError
from regard.core.files import read_json
from regard.training.progress import Reporter

WORDS = ["the", "dog", "cat", "sees", "a", "man", "who", "sleeps", "in", "house", "and", "big", "tree"]


def write(folder: Path, count: int, text=None) -> dict[str, str]:
    lines = text or [" ".join(WORDS[(i * k + k) % len(WORDS)] for k in range(1, 4 + i % 5)) + "." for i in range(count)]
    (folder / "a.src").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    (folder / "a.tgt").write_text("".join(line[::-1].strip(".") + ".\n" for line in lines), encoding="utf-8")
    return {"src": str(folder / "a.src"), "tgt": str(folder / "a.tgt")}


def run(folder: Path, files: dict[str, str], *settings: str, name: str = "run") -> regard.Translator:
    small = ["model.width=16", "model.heads=2", "model.layers=1", "train.threads=1", "train.batch_tokens=300"]
    steps = ["train.steps=6", "train.save_every=3"]
    regard.train(out=folder / name, settings=[*small, *steps, *settings], report=Reporter(quiet=True), **files)
    return regard.load(folder / name, device="cpu")


@pytest.mark.parametrize("count", [1, 5, 30])
def test_a_handful_of_pairs_is_enough_to_start(tmp_path, count):
    assert isinstance(run(tmp_path, write(tmp_path, count)).translate("the dog sleeps."), str)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "char", "byte"])
def test_every_tokenizer_from_files_to_text(tmp_path, kind):
    settings = [f"tokenizer.kind={kind}", "tokenizer.joint=false", "tokenizer.size=60", "model.positions=learned"]
    translator = run(tmp_path, write(tmp_path, 60), *settings, "model.max_length=64")
    assert not translator.tokenizers.joint
    long = "the dog sees a cat and the man sleeps in a big house " * 12
    assert isinstance(translator.translate(long), str)


def test_learned_positions_bound_what_is_trained_on(tmp_path):
    translator = run(
        tmp_path, write(tmp_path, 80), "model.positions=learned", "model.max_length=9", "tokenizer.kind=word"
    )
    assert translator.model.limits.source == 9


def test_early_stopping_on_bleu_of_decoded_text(tmp_path):
    files = write(tmp_path, 120)
    settings = ["train.best_by=bleu", "train.valid_sentences=8", "train.patience=1", "train.lr=0.0", "train.steps=60"]
    run(tmp_path, files, *settings)
    from regard.training.log import read_metrics

    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "valid_bleu" in row]
    assert [row["step"] for row in rows] == [3, 6], "nothing is learnt, so the second validation is no better"


def test_the_best_weights_by_a_metric_of_errors(tmp_path):
    """train.best_by=ter: the fewest errors are the best, and the run says so with the metrics it was asked for."""
    from regard.training.log import read_metrics

    run(tmp_path, write(tmp_path, 120), "train.best_by=ter", "train.metrics=chrf", "train.steps=12", "train.lr=0.02")
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "valid_ter" in row]
    values = [row["valid_ter"] for row in rows]
    assert len(set(values)) > 1, "nothing to choose from"
    assert rows[-1]["best_step"] == rows[values.index(min(values))]["step"]
    assert set(read_json(tmp_path / "run" / "scores.json")["scores"]) == {"ter", "chrf"}
    with pytest.raises(ConfigError, match=r"train\.best_by: there is no 'blue'.*'bleu'.*loss, accuracy, f1, bleu"):
        run(tmp_path / "other", {}, "train.best_by=blue")


def test_scores_of_training_and_of_evaluation_have_one_flavour(tmp_path):
    lines = ["我 喜欢 你 。"[: 3 + i % 4] + "狗猫人家树"[i % 5] for i in range(60)]
    files = write(tmp_path, 60, lines)
    run(tmp_path, files, "data.target_language=zh", "tokenizer.kind=char")
    signature = read_json(tmp_path / "run" / "scores.json")["scores"]["bleu"]["signature"]
    assert "tok:zh" in signature
    again = regard.evaluate(tmp_path / "run", src=files["src"], ref=files["tgt"], device="cpu")
    assert again.system.scores["bleu"].signature == signature


def test_an_average_and_a_moving_average_exclude_each_other(tmp_path):
    with pytest.raises(ConfigError, match=r"train\.average"):
        run(tmp_path, write(tmp_path, 30), "train.average=3", "train.ema=0.9")
    assert not (tmp_path / "run").exists()


def test_settings_may_be_text_dotted_or_nested(tmp_path):
    files = write(tmp_path, 30)
    common = {"model": {"width": 16, "heads": 2, "layers": 1}, "train": {"threads": 1, "steps": 2, "save_every": 2}}
    as_text = "model.width=16 model.heads=2 model.layers=1 train.threads=1 train.steps=2 train.save_every=2"
    dotted = {f"{section}.{key}": value for section, part in common.items() for key, value in part.items()}
    configs = []
    for i, settings in enumerate((as_text, dotted, common)):
        regard.train(out=tmp_path / str(i), settings=settings, report=Reporter(quiet=True), **files)
        configs.append(read_json(tmp_path / str(i) / "config.json"))
    assert configs[0] == configs[1] == configs[2]


def test_nothing_need_be_held_out(tmp_path):
    run(tmp_path, write(tmp_path, 200), "data.valid_size=-1", "data.test_size=-1")
    pairs = read_json(tmp_path / "run" / "data.json")["pairs"]
    assert pairs["valid"] == pairs["test"] == 0


def test_fine_tuning_by_a_recipe_takes_its_training_and_leaves_its_model(tmp_path):
    files = write(tmp_path, 40)
    run(tmp_path, files)
    settings = ["train.steps=3", "train.save_every=3", "train.threads=1"]
    regard.train(
        "demo",
        out=tmp_path / "tuned",
        start_from=tmp_path / "run",
        settings=settings,
        report=Reporter(quiet=True),
        **files,
    )
    config = read_json(tmp_path / "tuned" / "config.json")
    assert config["model"]["width"] == 16
    assert config["train"]["lr"] == 4e-3, "the recipe's"
    regard.train(
        out=tmp_path / "own", start_from=tmp_path / "run", settings=settings, report=Reporter(quiet=True), **files
    )
    assert read_json(tmp_path / "own" / "config.json")["train"]["lr"] == 3e-4, "gentle"
    settings = [*settings, "model.layers=2"]
    regard.train(
        out=tmp_path / "deep", start_from=tmp_path / "run", settings=settings, report=Reporter(quiet=True), **files
    )
    deep = read_json(tmp_path / "deep" / "config.json")
    assert (deep["model"]["layers"], deep["train"]["lr"]) == (2, 1e-3), "half of a new model's"


def test_depths_of_a_recipe_for_students(tmp_path):
    """A recipe whose point are its depths is not taken without them in silence; `layers` is of all stacks."""
    files = write(tmp_path, 40)
    run(tmp_path, files, "model.encoder_layers=2", "model.decoder_layers=3")
    words = ["train.steps=1", "train.save_every=1", "train.threads=1", "train.batch_tokens=128"]
    both = {"start_from": tmp_path / "run", "report": Reporter(quiet=True), **files}
    with pytest.raises(
        ConfigError, match=r"Add model.encoder_layers=6 model.decoder_layers=2, or model.encoder_layers=2"
    ):
        regard.train("multi30k-6-2", out=tmp_path / "student", settings=words, **both)
    assert not (tmp_path / "student").exists()
    settings = [*words, "model.encoder_layers=2", "model.decoder_layers=1"]
    regard.train("multi30k-6-2", out=tmp_path / "student", settings=settings, **both)
    assert read_json(tmp_path / "student" / "config.json")["model"]["decoder_layers"] == 1
    settings = [*words, "model.layers=1", "train.optimizer=muon"]
    regard.train(out=tmp_path / "shallow", settings=settings, **both)
    config = read_json(tmp_path / "shallow" / "config.json")
    assert [config["model"][name] for name in ("layers", "encoder_layers", "decoder_layers")] == [1, 0, 0]
    assert (config["train"]["lr"], config["train"]["matrix_lr"]) == (1e-3, 0.01)
