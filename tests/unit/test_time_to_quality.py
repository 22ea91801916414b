"""The benchmark of quality after some time: which runs share a trial, how steps follow from it, what is timed, what Marian gets."""

import sys
from pathlib import Path

import pytest

PLACE = Path(__file__).parents[2] / "benchmarks"
TINY = ("model.width=16", "model.layers=1", "model.heads=2", "model.inner=16", "tokenizer.size=60", "train.batch_tokens=64",
        "train.threads=1", "train.device=cpu")  # fmt: skip
WORDS = ["tree", "house", "stone", "river", "bird", "cloud"]


@pytest.fixture
def timed(monkeypatch):
    monkeypatch.syspath_prepend(str(PLACE))
    import timed_training

    yield timed_training
    sys.modules.pop("timed_training", None)


@pytest.fixture
def job(timed, tmp_path):
    """A job on a text of its own, in which every word has its translation."""
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    out.mkdir()
    source = [f"{a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS[:2]]
    for ending, lines in (("en", source), ("de", [line.upper() for line in source])):
        for name, part in (("train-1", lines[:60]), ("dev", lines[60:64]), ("test", lines[64:])):
            (data / f"{name}.{ending}").write_text("".join(f"{line}\n" for line in part))
    files = ("data.src=train-1.en", "data.tgt=train-1.de")
    for ending, name in (("src", "en"), ("ref", "de")):
        (out / f"dev.{ending}").write_text((data / f"dev.{name}").read_text())

    def make(*settings, **more):
        common = {"name": "regard", "system": "regard", "seconds": 10.0, "data": data, "newstest": None, "out": out}
        return timed.Job(settings=(*files, *TINY, *settings), **{**common, **more})

    return make


def test_runs_of_one_speed_share_a_trial(job):
    base = job().trial_path()
    assert job("train.lr=1", "train.warmup=7", name="other").trial_path() == base
    assert job("model.width=32").trial_path() != base
    assert job("train.ema=0.5").trial_path() != base


def test_steps_leave_time_for_what_comes_before_and_after_them(timed):
    pace = timed.Pace(step=0.1, start=20.0, end=5.0)
    assert pace.steps(100.0) == int((100 * (1 - timed.MARGIN) - 25) / 0.1)
    assert pace.steps(1.0) == 1


def test_a_trial_ends_by_itself_and_a_run_is_timed_to_its_weights(timed, job, monkeypatch):
    monkeypatch.setattr(timed, "LONGEST_TRIAL", 0.1)
    one = job()
    pace = timed.Pace(**timed.regard_trial(one))
    assert 0 < pace.step < 1
    assert not list(one.out.glob("trial-*"))
    one.path("steps.json").write_text('{"steps": 6}')
    made = timed.regard_train(one)
    assert made["steps"] == 6
    assert 0 < made["seconds"] < 30
    assert made["dev"]["bleu"]["low"] <= made["dev"]["bleu"]["value"]
    assert timed.regard_translate(one)["decoding_seconds"].keys() == {"dev", "test"}
    assert len(one.path("test.txt").read_text().splitlines()) == 8


def test_ablations_are_named_lines(timed, tmp_path):
    import time_to_quality

    path = tmp_path / "list"
    path.write_text("# none\n\nbase |\nhigh rate | train.lr=1 train.warmup=2\n")
    assert time_to_quality.read_ablations(path) == [("base", []), ("high-rate", ["train.lr=1", "train.warmup=2"])]
    path.write_text("a | x=1\na | x=2\n")
    with pytest.raises(SystemExit, match="no name of its own"):
        time_to_quality.read_ablations(path)


def test_marian_reads_the_same_tokens_in_a_model_of_the_same_shape(timed, job):
    pytest.importorskip("transformers")
    from marian_training import collate
    from regard.core.specials import BOS, EOS, PAD
    from regard.training.text import model_for

    one = job(system="marian")
    model, data, peer = timed.marian_parts(one)
    config, tokenizers, store = timed.tokens_of(one)
    assert len(data) == len(store)
    assert data[3] == {"input_ids": [*store.source[3], EOS], "labels": [*store.target[3], EOS]}
    batch = collate([{"input_ids": [7, EOS], "labels": [8, 9, EOS]}, {"input_ids": [7, 5, 6, EOS], "labels": [EOS]}])
    assert {tuple(tensor.shape) for tensor in batch.values()} == {(2, 8)}  # rows are padded to a multiple of 8
    first = {name: tensor[:, :4].tolist() for name, tensor in batch.items()}
    assert first["input_ids"] == [[7, EOS, PAD, PAD], [7, 5, 6, EOS]]
    assert first["attention_mask"] == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert first["labels"] == [[8, 9, EOS, -100], [EOS, -100, -100, -100]]
    assert first["decoder_input_ids"] == [[BOS, 8, 9, EOS], [BOS, EOS, PAD, PAD]]  # no label asks what comes after EOS
    ours = model_for(config, tokenizers).parameters_count()
    theirs = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert ours - theirs == tokenizers.target.size + 4 * config.model.width  # a bias of the output, two last norms
    assert peer.rows % 8 == 0


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_marians_rate_goes_by_the_clock(timed, schedule):
    pytest.importorskip("transformers")
    from marian_training import Peer

    peer = Peer(rows=8, warmup=0.1, schedule=schedule)
    rates = [peer.rate(part, part) for part in (0.0, 0.05, 0.1, 0.55, 1.0, 1.2)]
    assert rates == pytest.approx([0.0, 0.5, 1.0, 0.5, 0.0, 0.0], abs=1e-9)
    assert peer.rate(0.2, 0.01) == pytest.approx(0.1)  # compiling took a fifth of the time, not the warm-up


def test_marian_is_trained_until_its_time_is_over(timed, job):
    pytest.importorskip("transformers")
    made = timed.marian_train(job(system="marian", name="marian", seconds=2.0))
    assert made["steps"] >= 1
    assert 1.5 < made["seconds"] < 60
    assert made["target_tokens_per_second_of_all"] > 0
    assert (job(name="marian").path("run") / "model.safetensors").exists()
