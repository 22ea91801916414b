"""Runs on several texts with weights, tags and filters, on prepared text, from standard input, and on text that is refused."""

import gzip
import json
import signal

import pytest
from runs import SETTINGS, digest, outcome

import regard
from regard.core.files import read_json

FILES = ["text.src", "text.tgt"]


@pytest.fixture
def texts(runs):
    """The language of `runs`, a second kind of it (each word twice), and a recipe for both."""
    sources, targets = ((runs.folder / name).read_text().splitlines() for name in FILES)
    with gzip.open(runs.folder / "more.jsonl.gz", "wt") as file:
        for source, target in zip(sources[::2], targets[::2], strict=True):
            double = " ".join(word + " " + word for word in target.split())
            file.write(json.dumps({"id": 1, "translation": {"xx": source, "yy": double}}) + "\n")
    (runs.folder / "both.toml").write_text(
        """
[data]
valid_size = 12
test_size = 3
[[data.corpora]]
src = "text.src"
tgt = "text.tgt"
max_words = 5
[[data.corpora]]
pairs = "more.jsonl.gz"
weight = 2.5
tag = "<double>"
[augment]
bpe_dropout = 0.1
swap_words = 0.1
"""
    )
    return runs


def begin(runs, name, *words):
    settings = [s for s in SETTINGS if not s.startswith("data.")]
    return ["train", "both.toml", "--out", str(runs.folder / name), *settings, "tokenizer.kind=bpe", *words]


def test_weights_tags_and_filters_are_resumed_exactly(texts):
    assert texts.wait(texts.start(begin(texts, "straight"))) == 0, texts.log()
    straight = outcome(texts.folder / "straight")
    assert "pairs are left out by the filter max_words" in texts.log()
    assert texts.wait(texts.start(begin(texts, "stopped"), (3, signal.SIGINT))) == 130
    for step in (7, 18, 23):
        texts.resume("stopped", signal_at=(step, signal.SIGTERM), expect=128 + signal.SIGTERM)
    assert outcome(texts.resume("stopped")) == straight
    about = read_json(texts.folder / "straight" / "data.json")
    assert about["files"]["corpora[1].pairs"].endswith("more.jsonl.gz")
    assert about["pairs"]["filtered"]["max_words"] > 10
    assert about["pairs"]["set_apart"] > 0


def test_prepared_text_gives_the_same_run(texts):
    assert texts.wait(texts.start(begin(texts, "memory"))) == 0, texts.log()
    shelf = texts.folder / "shelf"
    for name in ("first", "second"):
        assert texts.wait(texts.start(begin(texts, name, f"data.store={shelf}"))) == 0, texts.log()
        assert ("Preparing" in texts.log()) == (name == "first")
        assert outcome(texts.folder / name) == outcome(texts.folder / "memory")
    kinds = sorted(path.name.split("-")[0] for path in shelf.iterdir() if not path.name.startswith("."))
    assert kinds == ["check", "check", "text", "tokenizer", "tokens"]


def test_a_tag_chooses_the_kind_of_text(command, texts):
    words = ["train.steps=300", "train.save_every=300", "train.batch_tokens=300", "augment.bpe_dropout=0", "augment.swap_words=0",
             "model.dropout=0", "model.width=32", "train.log_every=50", "tokenizer.kind=word", "search.max_length=16"]  # fmt: skip
    assert texts.wait(texts.start(begin(texts, "run", *words))) == 0, texts.log()
    translator = regard.load(texts.folder / "run", device="cpu")
    lines = (texts.folder / FILES[0]).read_text().splitlines()[:40]
    plain, double = translator.translate(lines), translator.translate(lines, tags=["<double>"] * len(lines))
    longer = sum(len(b.split()) > 1.4 * len(a.split()) for a, b in zip(plain, double, strict=True))
    assert longer > 0.5 * len(lines)
    assert translator.tagged("<double>").translate(lines) == double
    translator = translator.tagged("<double>")
    given = ("--model", texts.folder / "run", "--device", "cpu", "--tag")
    text = "".join(line + "\n" for line in lines).encode()
    assert command("translate", "--no-guard", *given, "<double>", stdin=text).lines == double
    unknown = command("translate", *given, "<dubble>", "x")
    assert (unknown.code, "it knows <double>" in unknown.err) == (1, True)
    assert translator.score(lines[:2], double[:2])[0].log_prob > translator.score(lines[:2], plain[:2])[0].log_prob


def test_standard_input_is_kept_with_the_run(command, texts, tmp_path):
    sources, targets = ((texts.folder / name).read_text().splitlines() for name in FILES)
    rows = "".join(f"{source}\t{target}\n" for source, target in zip(sources, targets, strict=True))
    settings = [s for s in SETTINGS if not s.startswith("train.steps")]
    out = tmp_path / "out"
    done = command(
        "train", "--pairs", "-", "data.format=tsv", "train.steps=2", *settings, "--out", out, stdin=rows.encode()
    )
    assert done.code == 0, done.err
    straight = texts.train("files", "train.steps=2")
    assert digest(out / "model.safetensors") == digest(straight / "model.safetensors")
    assert read_json(out / "config.json")["data"]["pairs"].startswith(str(out))
    assert command("train", "--resume", out).code == 0


def test_standard_input_is_prepared(command, texts, tmp_path):
    sources, targets = ((texts.folder / name).read_text().splitlines() for name in FILES)
    rows = "".join(f"{source}\t{target}\n" for source, target in zip(sources, targets, strict=True)).encode()
    settings = ("data.format=tsv", f"data.store={tmp_path / 'shelf'}", "train.device=cpu")
    done = command("data", "prepare", "--pairs", "-", *settings, stdin=rows)
    assert done.code == 0, done.err
    assert len(list((tmp_path / "shelf").glob("tokens-*"))) == 1


def test_a_tag_that_is_never_trained_on_is_refused_early(command, texts, monkeypatch):
    monkeypatch.chdir(texts.folder)
    words = [f"data.valid_{side}=text.{side}" for side in ("src", "tgt")]
    words += ["data.check=false", "data.valid_size=0", "data.tag=<triple>", "augment.bpe_dropout=0"]
    done = command(*begin(texts, "run", *words))
    assert (done.code, "<triple>, which no text has that is trained on. Use one of <double>" in done.err) == (1, True)
    assert not (texts.folder / "run").exists()


def test_a_deleted_line_is_refused_before_anything_is_made(command, tmp_path, text_files):
    pairs = list(zip(text_files.sources, text_files.targets, strict=True))
    (tmp_path / "a.en").write_text("".join(source + "\n" for source, _ in pairs), encoding="utf-8")
    shifted = [target for _, target in pairs[:150]] + [target for _, target in pairs[151:]] + ["Das ist alles."]
    (tmp_path / "a.de").write_text("".join(target + "\n" for target in shifted), encoding="utf-8")
    out = tmp_path / "out"
    files = ("--src", tmp_path / "a.en", "--tgt", tmp_path / "a.de", "--out", out, "train.steps=1", "model.width=16")
    done = command("train", *files)
    assert done.code == 1
    assert "misaligned" in done.err
    assert not out.exists()
    checked = command("data", "check", tmp_path / "a.en", tmp_path / "a.de")
    assert checked.code == 1
    assert command("train", *files, "--allow", "misaligned", "model.layers=1").code == 0
    shown = command("train", *files[:-4], "--out", tmp_path / "other", "--allow", "misalinged")
    assert (shown.code, "misaligned" in shown.err) == (1, True)


def test_what_a_killed_start_left_of_standard_input_is_no_hindrance(command, texts, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "stdin-x1.part").write_text("half a li")
    settings = [s for s in SETTINGS if not s.startswith("train.steps")]
    files = ("--src", texts.folder / FILES[0], "--tgt", texts.folder / FILES[1])
    assert command("train", *files, *settings, "train.steps=1", "--out", out).code == 0
    assert not list(out.glob("stdin-*"))


def test_a_dataset_in_a_folder_is_found_from_anywhere(command, texts, tmp_path, monkeypatch):
    import datasets

    sources, targets = ((texts.folder / name).read_text().splitlines() for name in FILES)
    datasets.Dataset.from_dict({"src": sources, "tgt": targets}).save_to_disk(str(tmp_path / "saved"))
    monkeypatch.chdir(tmp_path)
    settings = [s for s in SETTINGS if not s.startswith("train.steps")]
    done = command("train", "--pairs", "hf:saved", *settings, "train.steps=2", "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert read_json(tmp_path / "out" / "config.json")["data"]["pairs"] == f"hf:{tmp_path / 'saved'}"
    straight = texts.train("files", "train.steps=2")
    assert digest(tmp_path / "out" / "model.safetensors") == digest(straight / "model.safetensors")
