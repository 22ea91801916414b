"""The benchmark of networks over texts: how the files are prepared and divided, what a row says, and that it goes on."""

import importlib.util
import json
import random
from pathlib import Path

import pytest

PLACE = Path(__file__).parents[2] / "benchmarks" / "textclass.py"
SMALL = [
    "train.steps=4",
    "train.warmup=0",
    "train.threads=1",
    "train.device=cpu",
    "train.save_every=2",
    "train.validate_every=2",
]


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("textclass", PLACE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text(count: int, labels: int, seed: int) -> str:
    draw = random.Random(seed)
    words = ("red", "blue", "tree", "house", "goes", "by", "now", "then")
    return "".join(
        f"{i % labels} text {i} {' '.join(draw.choice(words) for _ in range(draw.randint(1, 9)))} \n"
        for i in range(count)
    )


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for part, seed in (("train", 1), ("test", 2)):
        (folder / f"TREC.{part}.all").write_text(text(600 if part == "train" else 20, 6, seed))
    latin = "1 a caf\xe9 \x96 it's fine(ly), isn't it ? \n0 so it\x92s \x85 over \n".encode("latin-1")
    (folder / "rt-polarity.all").write_bytes(latin + text(1300, 2, 3).encode())
    return folder


def test_files_are_utf_8_and_endings_are_words(benchmark, data, tmp_path):
    benchmark.prepare(data, tmp_path / "out")
    lines = (tmp_path / "out" / "mr.txt").read_text(encoding="utf-8").split("\n")
    assert lines[:2] == ["1\ta café – it 's fine ( ly ) , is n't it ?", "0\tso it’s … over"]
    assert (tmp_path / "out" / "trec.test.txt").read_text().startswith("0\ttext 0 ")
    assert not (tmp_path / "out" / "sst2.dev.txt").exists()


def test_folds_are_parts_of_the_whole_and_the_order_of_lines_does_not_matter(benchmark, data, tmp_path):
    benchmark.prepare(data, tmp_path / "out")
    whole = sorted((tmp_path / "out" / "mr.txt").read_text(encoding="utf-8").splitlines())
    tests = []
    for fold in range(10):
        train, test = (
            (tmp_path / "out" / f"mr.{fold}.{part}.txt").read_text(encoding="utf-8").splitlines()
            for part in ("train", "test")
        )
        assert sorted(train + test) == whole
        assert 130 <= len(test) <= 131
        tests += test
    assert sorted(tests) == whole
    content = (data / "rt-polarity.all").read_bytes().split(b"\n")[:-1]
    (data / "rt-polarity.all").write_bytes(b"\n".join(reversed(content)) + b"\n")
    benchmark.prepare(data, tmp_path / "again")
    for name in ("mr.0.test.txt", "mr.3.train.txt"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize(
    ("recipe", "fold", "sizes"),
    [("trec-dcnn", None, []), ("mr-kim", 4, ["model.width=4", "model.maps=3"])],
)
def test_a_row_is_made_once(benchmark, data, tmp_path, recipe, fold, sizes):
    out = tmp_path / "out"
    benchmark.prepare(data, out / "data")
    row = benchmark.one(recipe, 2, fold, out, [*SMALL, *sizes])
    assert (row["recipe"], row["seed"], row["fold"], row["steps"]) == (recipe, 2, fold, 4)
    assert row["test_texts"] == (
        20 if fold is None else len((out / "data" / f"mr.{fold}.test.txt").read_text().splitlines())
    )
    assert 0 <= row["test_accuracy"] <= 100
    assert 0 <= row["valid_accuracy"] <= 100
    assert [path.name for path in out.iterdir() if path.name != "data"] == [
        f"{recipe}-2{'' if fold is None else '-4'}.json"
    ]
    kept = next(out.glob("*.json"))
    kept.write_text(json.dumps({**row, "test_accuracy": 1.5}))
    assert benchmark.one(recipe, 2, fold, out, [*SMALL, *sizes])["test_accuracy"] == 1.5  # it was read
    with pytest.raises(SystemExit, match="other settings"):
        benchmark.one(recipe, 2, fold, out, [*SMALL, "train.lr=1"])


def test_the_table_is_over_seeds_and_folds(benchmark):
    def row(recipe, seed, fold, accuracy, texts):
        return {
            "recipe": recipe,
            "seed": seed,
            "fold": fold,
            "test_accuracy": accuracy,
            "test_texts": texts,
            "valid_accuracy": 80.0,
        }

    rows = [
        row("mr-kim", 1, 0, 70.0, 100),
        row("mr-kim", 1, 1, 80.0, 300),
        row("mr-kim", 2, 0, 79.5, 100),
        row("new", 1, None, 9, 1),
    ]
    lines = benchmark.table(rows).splitlines()
    assert lines[1].split() == ["mr-kim", "2", "2", "80.00", "78.50", "1.41", "76.1", "75.9"]
    assert lines[2].split() == ["new", "1", "-", "80.00", "9.00", "-", "-", "-"]
