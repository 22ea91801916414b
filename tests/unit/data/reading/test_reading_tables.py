"""Parquet files and Hugging Face datasets."""

import importlib
import json
import sys
import tracemalloc

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.core.errors import DataError
from regard.data.reading import open_pairs, parquet_pairs
from regard.data.split import Pairs

SOURCES = [f"sentence {i} of the table" for i in range(2500)]
TARGETS = [f"Satz {i} der Tabelle ß" for i in range(2500)]
MORE = [{"en": s, "de": t, "score": float(i)} for i, (s, t) in enumerate(zip(SOURCES, TARGETS, strict=True))]


def refusal(call, *arguments):
    """The sentence with which a call is refused."""
    with pytest.raises(DataError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    """Datasets are looked for on this machine only, and prepared in a folder of the test."""
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(importlib.import_module("huggingface_hub.constants"), "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def parquet(tmp_path, table, **settings):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(table) if isinstance(table, dict) else table, path, **settings)
    return path


@pytest.mark.parametrize(
    ("settings", "columns"),
    [
        ({}, ()),
        ({"row_group_size": 333}, ("translation.en", "translation.de")),
        ({"compression": "zstd", "use_dictionary": False}, ()),
        ({"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY", "compression": "none"}, ()),
        ({"use_dictionary": False, "column_encoding": "DELTA_LENGTH_BYTE_ARRAY"}, ()),
        ({"data_page_version": "2.0", "compression": "gzip"}, ()),
    ],
)
def test_parquet_of_many_kinds(tmp_path, settings, columns):
    if "column_encoding" in settings:
        settings = {
            **settings,
            "column_encoding": dict.fromkeys(("translation.en", "translation.de"), settings["column_encoding"]),
        }
    nested = [{"en": s, "de": t} for s, t in zip(SOURCES, TARGETS, strict=True)]
    path = parquet(tmp_path, {"id": list(range(2500)), "translation": nested}, **settings)
    reader = open_pairs([path], columns=columns)
    chunks = list(reader.chunks(size=1000))
    assert [len(chunk) for chunk in chunks] == [1000, 1000, 500]
    assert reader.read() == Pairs(SOURCES, TARGETS)


def test_parquet_columns(tmp_path):
    path = parquet(tmp_path, {"id": [1], "tgt": ["b"], "src": ["a\nc"], "kind": pa.array(["x"]).dictionary_encode()})
    assert open_pairs([path]).read() == Pairs(["a c"], ["b"])
    assert open_pairs([path], columns=("kind", "tgt")).read() == Pairs(["x"], ["b"])
    assert refusal(open_pairs([path], columns=("id", "tgt")).read) == (
        f"{path}: there is no text under id. Choose two of: tgt, src, kind."
    )
    path = parquet(tmp_path, {"a": ["1"], "b": ["2"], "translation": [{"en": "3", "de": "4", "fr": "5"}]})
    assert open_pairs([path]).read() == Pairs(["1"], ["2"])
    assert open_pairs([path], columns=("translation.fr", "a")).read() == Pairs(["5"], ["1"])
    path = parquet(tmp_path, {"a": pa.array(["1"], pa.large_string()), "b": pa.array(["2"], pa.large_string())})
    assert open_pairs([path]).read() == Pairs(["1"], ["2"])
    path = parquet(tmp_path, {"a": ["1"], "b": ["2"], "c": ["3"]})
    assert refusal(open_pairs([path]).read) == (
        f"{path}: which fields hold the two sides is unclear (known are src and tgt, source and target, "
        "or an object translation with two languages). Choose two with columns, from: a, b, c."
    )


def test_damaged_parquet(tmp_path):
    path = parquet(tmp_path, {"src": [*SOURCES[:9], None], "tgt": TARGETS[:10]}, row_group_size=4)
    assert refusal(open_pairs([path]).read) == (
        f"{path}, row 10: column src holds no text (null). Mend or remove that row."
    )
    path = parquet(tmp_path, {"translation": [{"en": "a", "de": "b"}, None, {"en": "a", "de": None}]})
    assert refusal(open_pairs([path]).read) == (
        f"{path}, row 2: column translation.en holds no text (null). Mend or remove that row."
    )
    path = parquet(tmp_path, pa.table({"src": ["a"], "tgt": ["b"]}).slice(0, 0))
    assert refusal(open_pairs([path]).read) == f"{path}: it holds no pairs of text. Give a file with some."
    path = parquet(tmp_path, {"src": SOURCES, "tgt": TARGETS}, compression="none")
    whole = path.read_bytes()
    for content in (whole[:-100], b"PAR1 and no more", whole[:3000] + bytes(3000) + whole[6000:]):
        path.write_bytes(content)
        said = refusal(open_pairs([path]).read)
        assert said.startswith(f"{path}: the file is not valid Parquet (")
        assert said.endswith("). Download or write it again.")
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    path = parquet(tmp_path, {"src": bad, "tgt": ["b"]})
    assert refusal(open_pairs([path]).read) == (
        f"{path}: a text of column src within rows 1 to 1 is not UTF-8 (invalid start byte). Write the file again."
    )


def test_parquet_bombs(tmp_path, monkeypatch):
    long = "x" * (4 << 20)
    shared = pa.array([long]).dictionary_encode().take(pa.array([0] * 2000, pa.int32()))
    path = parquet(tmp_path, {"src": shared, "tgt": ["y"] * 2000})  # 8 GB of text in a small file
    assert path.stat().st_size < 1 << 20
    chunks = open_pairs([path]).chunks(size=1000)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        first = next(chunks)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 1 <= len(first) < 100
    assert first.sources[0] == long
    assert peak + pa.default_memory_pool().max_memory() - before < 1 << 30
    chunks.close()
    monkeypatch.setattr(parquet_pairs, "MAX_LINE_BYTES", 1 << 20)
    assert refusal(open_pairs([path]).read) == (
        f"{path}, row 1: column src holds more than 1 MiB of text. Divide or remove that row."
    )
    monkeypatch.setattr(parquet_pairs, "BOMB_BYTES", 1 << 20)
    path = parquet(
        tmp_path, {"src": ["x" * 30_000] * 100, "tgt": ["y"] * 100}, use_dictionary=False, compression="zstd"
    )
    assert refusal(open_pairs([path]).read) == (
        f"{path}: column src grows to more than 250 times its size, as a bomb does. "
        "Write the file again without compression if you trust it."
    )


@pytest.mark.parametrize(("module", "named"), [("pyarrow", "Parquet"), ("datasets", "Hugging Face datasets")])
def test_missing_packages(tmp_path, monkeypatch, module, named):
    path = parquet(tmp_path, {"src": ["a"], "tgt": ["b"]})
    monkeypatch.setitem(sys.modules, module, None)
    where = str(path) if module == "pyarrow" else "hf:x"
    assert refusal(open_pairs, [where]) == (
        f'{where}: reading {named} needs the package {module}. Install it with pip install "regard[data]".'
    )


def test_a_saved_dataset(tmp_path):
    folder = tmp_path / "saved"
    nested = [{"en": s, "de": t} for s, t in zip(SOURCES, TARGETS, strict=True)]
    datasets.Dataset.from_dict({"id": list(range(2500)), "translation": nested}).save_to_disk(str(folder))
    for path, format in ((f"hf:{folder}", "auto"), (str(folder), "datasets")):
        reader = open_pairs([path], format)
        assert reader.names == (path,)
        assert [len(chunk) for chunk in reader.chunks(size=1100)] == [1100, 1100, 300]
        assert reader.read() == reader.read() == Pairs(SOURCES, TARGETS)
        assert reader.size_on_disk() == sum(file.stat().st_size for file in folder.glob("*.arrow"))
    swapped = open_pairs([f"hf:{folder}"], columns=("translation.de", "translation.en"))
    assert swapped.read() == Pairs(TARGETS, SOURCES)
    assert swapped.content_hash() == reader.content_hash() != ""
    assert refusal(open_pairs([f"hf:{folder}"], columns=("id", "translation.en")).read) == (
        f"hf:{folder}, row 1: the value of id is not a text but int. Mend or remove that row, or choose other columns."
    )
    assert refusal(open_pairs, [f"hf:{folder}:test"]) == (
        f"hf:{folder}:test: the folder holds one dataset without a split test. Leave the split away."
    )


def test_a_saved_dataset_with_splits(tmp_path):
    folder = tmp_path / "saved"
    parts = {
        name: datasets.Dataset.from_dict({"src": [f"{name} a", "c\nd"], "tgt": ["b", "e"]})
        for name in ("train", "validation")
    }
    datasets.DatasetDict(parts).save_to_disk(str(folder))
    assert open_pairs([f"hf:{folder}"]).read() == Pairs(["train a", "c d"], ["b", "e"])
    other = open_pairs([f"hf:{folder}:validation"])
    assert other.read() == Pairs(["validation a", "c d"], ["b", "e"])
    assert other.content_hash() != open_pairs([f"hf:{folder}"]).content_hash()
    assert refusal(open_pairs, [f"hf:{folder}:test"]) == (
        f"hf:{folder}:test: there is no split test. Add one of these after a colon: train, validation."
    )


def test_the_hash_follows_the_text_of_a_dataset(tmp_path):
    found = set()
    for number, text in enumerate(("a", "b", "a")):
        folder = tmp_path / str(number)
        datasets.Dataset.from_dict({"src": [text], "tgt": ["x"]}).save_to_disk(str(folder))
        found.add(open_pairs([f"hf:{folder}"]).content_hash())
    assert len(found) == 2


def test_a_folder_of_files(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    rows = "".join(json.dumps({"src": s, "tgt": t}) + "\n" for s, t in zip(SOURCES, TARGETS, strict=True))
    (folder / "train.jsonl").write_text(rows)
    assert open_pairs([f"hf:{folder}"]).read() == Pairs(SOURCES, TARGETS)
    assert open_pairs([f"hf:{folder}:train[:2]"]).read() == Pairs(SOURCES[:2], TARGETS[:2])


def test_a_folder_with_code_never_runs_it(tmp_path):
    folder = tmp_path / "evil"
    folder.mkdir()
    trace = tmp_path / "trace"
    (folder / "evil.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    assert "the dataset cannot be loaded (" in refusal(open_pairs, [f"hf:{folder}"])
    assert not trace.exists()


def test_datasets_that_cannot_be_loaded(tmp_path):
    todo = "Check name, split and connection, or give a folder written by save_to_disk."
    said = refusal(open_pairs, ["hf:someone/some-corpus:train"])
    assert said.startswith("hf:someone/some-corpus:train: the dataset cannot be loaded (")
    assert said.endswith(todo)
    assert refusal(open_pairs, [f"hf:{tmp_path}/missing"]) == (
        f"hf:{tmp_path}/missing: there is no such folder. Name a folder written by save_to_disk, or a dataset."
    )
    assert refusal(open_pairs, ["hf:"]) == (
        "'hf:': it names no dataset. Write hf:FOLDER or hf:NAME, with :SPLIT after it."
    )
    assert "it names no dataset" in refusal(open_pairs, ["hf:a\0b"])
    folder = tmp_path / "saved"
    datasets.Dataset.from_dict({"src": ["a", None], "tgt": ["b", "c"]}).save_to_disk(str(folder))
    assert refusal(open_pairs([f"hf:{folder}"]).read).startswith(
        f"hf:{folder}, row 2: the value of src is not a text but null or missing."
    )
    (arrow,) = folder.glob("*.arrow")
    arrow.write_bytes(b"damaged")
    assert "the dataset cannot be loaded (" in refusal(open_pairs, [f"hf:{folder}"])
    (folder / "state.json").write_text("{")
    assert "the dataset cannot be loaded (" in refusal(open_pairs, [f"hf:{folder}"])
