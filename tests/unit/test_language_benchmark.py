"""The benchmark of language models: how Brown is prepared, and what a row says."""

import importlib.util
import io
import math
import tarfile
from pathlib import Path

import pytest

PLACE = Path(__file__).parents[2] / "benchmarks" / "language_models.py"
SMALL = ["train.steps=2", "train.warmup=0", "train.threads=1", "train.device=cpu", "train.save_every=2"]


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("language_models", PLACE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def brown(folder: Path) -> Path:
    """A tagged corpus: `ca01` has 400 words, `cb01` 100, in which `late` first occurs; `rare` occurs three times in all."""
    folder.mkdir()
    first = ["the/at", "dog/nn", "ran/vbd", "1/2/cd"] * 99 + ["rare/jj"] * 3 + ["./."]
    second = ["the/at", "late/jj", "dog/nn", "./."] * 25
    with tarfile.open(folder / "brown.tar.xz", "w:xz") as archive:
        for name, words in (("cb01", second), ("ca01", first), ("README", ["no/nn", "text/nn"])):
            data = ("\n\t" + " ".join(words) + "\n").encode("latin-1")
            member = tarfile.TarInfo(f"brown/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return folder


@pytest.fixture
def small_parts(benchmark, monkeypatch):
    monkeypatch.setattr(benchmark, "BROWN_TRAIN", 400)
    monkeypatch.setattr(benchmark, "BROWN_VALID", 50)


@pytest.mark.usefixtures("small_parts")
def test_brown_is_divided_in_the_order_of_its_files(benchmark, tmp_path):
    benchmark.prepare_brown(brown(tmp_path / "brown"), tmp_path / "out")
    parts = {name: (tmp_path / "out" / f"{name}.txt").read_text().split() for name in ("train", "valid", "test")}
    assert [len(part) for part in parts.values()] == [400, 50, 50]
    assert parts["train"][:4] == ["the", "dog", "ran", "1/2"]
    assert parts["train"][-4:] == ["<unk>", "<unk>", "<unk>", "."]
    assert "late" not in parts["train"]
    assert (tmp_path / "out" / "words.txt").read_text().split() == [".", "1/2", "<unk>", "dog", "late", "ran", "the"]


@pytest.mark.usefixtures("small_parts")
def test_words_of_held_out_parts_belong_to_the_vocabulary(benchmark, tmp_path):
    brown(tmp_path / "brown")
    settings = [*SMALL, "model.width=8", "model.embedding=8", "train.batch_tokens=64", "train.window=8"]
    row = benchmark.one("brown-nplm", tmp_path, tmp_path / "out", 1, settings)
    assert row["vocabulary"] == 4 + 6
    assert [row[f"{part}_words"] for part in ("train", "valid", "test")] == [401, 51, 51]
    assert [row[f"{part}_unknown"] for part in ("train", "valid", "test")] == [round(3 / 401, 5), 0, 0]
    assert row["published"] == 252.0
    assert row["test_perplexity_of_trigram"] > 1
    assert row["test_perplexity_with_trigram"] < max(row["test_perplexity"], row["test_perplexity_of_trigram"])


def test_shakespeare_needs_no_folder(benchmark, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("".join(f"{i} and so on\n" for i in range(400)))
    settings = [*SMALL, f"data.text={tmp_path / 'text.txt'}", "train.batch_tokens=64"]
    settings += ["model.width=16", "model.heads=2", "model.layers=1", "model.context=16"]
    row = benchmark.one("shakespeare-gpt", None, tmp_path / "out", 1, settings)
    names = ("valid_nats_per_byte", "valid_nats_per_byte_half_stride")
    assert all(4 < row[name] < math.log(260) + 1 for name in names)
    assert row[names[0]] != row[names[1]]
    assert (row["published"], "test_perplexity" in row) == (1.4697, False)
    benchmark.table([row])
    assert capsys.readouterr().out.splitlines()[-1].split()[-3:] == [*(f"{row[name]:.4f}" for name in names), "1.4697"]


def test_runs_without_a_published_figure(benchmark, tmp_path, capsys):
    assert {"wikitext2-gpt", "shakespeare-gpt", "ptb-lstm-small", "brown-nplm"} <= set(benchmark.RUNS)
    with pytest.raises(SystemExit, match="wikitext2-gpt needs --data DIR"):
        benchmark.settings_of("wikitext2-gpt", None, tmp_path)
    (tmp_path / "wikitext2").mkdir()
    (tmp_path / "wikitext2" / "wiki.test.tokens").write_text("x")
    settings = benchmark.settings_of("wikitext2-gpt", tmp_path, tmp_path)
    assert settings[1:] == [
        "data.text=wiki.train.tokens.xz",
        "data.valid_text=wiki.valid.tokens.xz",
        "data.test_text=wiki.test.tokens",
    ]
    row = {"recipe": "wikitext2-gpt", "parameters": 5, "published": None}
    benchmark.table([{**row, "valid_perplexity": 3.0, "test_perplexity": 2.0}])
    assert capsys.readouterr().out.splitlines()[-1].split() == ["wikitext2-gpt", "1", "5", "3.00", "2.00", "-"]
