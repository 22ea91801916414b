"""`regard export` and `regard.export`: options, and errors that say what to do."""

from __future__ import annotations

import errno
import importlib.util
import json
import os

import pytest
from export_toys import LINES, gpt, run_folder, sentences, translator

import regard
from regard.core.errors import ConfigError, ModelError
from regard.exchange.parity_sides import live_model
from regard.layers.int8_linear import quantise
from regard.tasks.translation import Translator
from regard.tasks.word_vectors import WordVectors


def test_the_bundled_model_is_exported_with_a_certificate(command, tmp_path):
    out = tmp_path / "new" / "fast"
    done = command("export", "tatoeba-en-de", "--to", "ctranslate2", "--quantise", "int8", "--out", out)
    assert (done.code, done.out) == (0, "")
    assert "Compared on 64 texts" in done.err
    assert "of 48 outputs are the same" in done.err
    assert "BLEU" in done.err
    assert f"Done: {out}. Open it with ctranslate2.Translator" in done.err
    found = json.loads((out / "parity.json").read_text())
    assert found["passed"] is True
    assert 0.8 < found["identical_outputs"] <= 1
    assert abs(found["bleu"]["difference"]) < 1
    assert found["bleu"]["regard"] > 50
    manifest = json.loads((out / "manifest.json").read_text())["files"]
    assert {"model.bin", "parity.json", "README.md", "tokenizer.json"} <= manifest.keys()


def test_sentences_references_and_tolerance(command, tmp_path):
    run, lines = run_folder(translator(), tmp_path / "run"), sentences(tmp_path)
    arguments = ("export", run, "--to", "ctranslate2", "--sentences", lines)
    right = tmp_path / "right"
    right.write_text("".join(line + "\n" for line in LINES))
    done = command(*arguments, "--out", tmp_path / "out", "--references", right)
    assert done.code == 0
    found = json.loads((tmp_path / "out" / "parity.json").read_text())
    assert found["questions"]["texts"] == len(LINES)
    assert found["bleu"]["difference"] == 0
    failed = command(*arguments, "--out", tmp_path / "strict", "--tolerance", "1e-9")
    assert failed.code == 1
    assert "the largest difference is" in failed.err
    assert "Nothing was written" in failed.err
    assert not (tmp_path / "strict").exists()
    right.write_text("one line\n")
    assert (
        "Give a reference for each sentence" in command(*arguments, "--out", tmp_path / "x", "--references", right).err
    )
    assert not list(tmp_path.glob(".*"))


def test_only_an_earlier_export_is_replaced(command, tmp_path):
    out = tmp_path / "out"
    run = run_folder(translator(), tmp_path / "run")
    arguments = ("export", run, "--to", "ctranslate2", "--sentences", sentences(tmp_path), "--out", out)
    out.mkdir()
    assert command(*arguments).code == 0  # an empty folder is as good as none
    again = command(*arguments)
    assert again.code == 1
    assert "there is an export already" in again.err
    assert command(*arguments, "--force", "--tolerance", "1e-9").code == 1
    assert (out / "model.bin").is_file()  # the earlier one stays until there is a better one
    before = (out / "model.bin").stat().st_size
    assert command(*arguments, "--force", "--quantise", "int8", "--tolerance", "9").code == 0
    assert (out / "model.bin").stat().st_size < before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("kept")
    refused = command(*arguments[:-1], tmp_path / "mine", "--force")
    assert "has not written" in refused.err
    assert (tmp_path / "mine" / "file").read_text() == "kept"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no-such-folder", "--to", "ctranslate2"), "there is no such folder"),
        (("tatoeba-en-de", "--to", "gguf"), "there is no such format"),
        (("tatoeba-en-de", "--to", "ctranslate2", "--quantise", "int4"), "there is no such type"),
        (("tatoeba-en-de", "--to", "word2vec", "--quantise", "int8"), "word vectors are written as they are"),
        (("tatoeba-en-de", "--to", "ctranslate2", "--tolerance", "-1"), "-1.0 is not from 0"),
        (("tatoeba-en-de", "--to", "ctranslate2", "--sentences", "no-such-file"), "no-such-file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_are_named(command, tmp_path, arguments, words):
    done = command("export", *arguments, "--out", tmp_path / "out")
    assert done.code == 1
    assert words in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_inside_a_file_is_named(command, tmp_path):
    (tmp_path / "file").write_text("no folder")
    done = command("export", "tatoeba-en-de", "--to", "ctranslate2", "--out", tmp_path / "file" / "out")
    assert "file is a file, not a folder" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("no-such-path", (), "there is no such file or folder"),
        ("empty", (), "there is no model of a known kind in it"),
        ("text", (), "it is not a file that torch.save wrote"),
        ("run", (), "it is a run of regard's own"),
        ("other", (), "model_type='llama' is not known"),
        ("other", ("--pieces", "no-such-file"), "no-such-file: there is no such file"),
        ("theirs", ("--two-texts",), "--two-texts: it is not for models of this kind (ctranslate2)"),
        ("theirs", (), "model.bin: "),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_of_an_import_are_named(command, tmp_path, path, options, words):
    for name in ("empty", "run", "other", "theirs"):
        (tmp_path / name).mkdir()
    (tmp_path / "text").write_text("no model")
    (tmp_path / "run" / "run.json").write_text("{}")
    (tmp_path / "other" / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "theirs" / "model.bin").write_bytes(b"")
    done = command("import", tmp_path / path, *options, "--out", tmp_path / "out")
    assert done.code == 1
    assert words in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_nothing(command, tmp_path, monkeypatch):
    run = run_folder(translator(), tmp_path / "run")
    before = sorted(tmp_path.iterdir())

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = command("export", run, "--to", "ctranslate2", "--out", tmp_path / "out")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "No space left on device" in done.err
    assert sorted(tmp_path.iterdir()) == before


def test_without_the_package_it_says_what_to_install(command, tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ctranslate2" else found(name))
    done = command("export", "tatoeba-en-de", "--to", "ctranslate2", "--out", tmp_path / "out")
    assert "ctranslate2 is not installed" in done.err
    assert "Install regard[export]" in done.err


def test_a_live_model_is_exported_as_it_is_now(tmp_path):
    task = translator()
    first = regard.export(task, to="ctranslate2", out=tmp_path / "first", sentences=sentences(tmp_path))
    live_model(task).output.bias.data[7] += 1
    second = regard.export(task, to="ctranslate2", out=tmp_path / "second", sentences=tmp_path / "lines.txt")
    assert first.certificate["weights"] != second.certificate["weights"]
    assert (first.folder / "model.bin").read_bytes() != (second.folder / "model.bin").read_bytes()
    again = regard.export(task, to="ctranslate2", out=tmp_path / "third", sentences=tmp_path / "lines.txt")
    for name in ("model.bin", "config.json", "parity.json", "README.md"):
        assert (again.folder / name).read_bytes() == (second.folder / name).read_bytes(), name


def test_a_translator_keeps_its_engine(tmp_path):
    task = regard.load(device="cpu")
    assert task.engine == "ctranslate2"
    regard.export(task, to="ctranslate2", out=tmp_path / "out", sentences=sentences(tmp_path))
    task.translate(["Good morning."])
    assert task.engine == "ctranslate2"


def test_weights_that_were_rounded_already_are_refused(tmp_path):
    task = translator(inner=1 << 14)
    rounded = Translator(quantise(live_model(task)), task.tokenizers)
    with pytest.raises(ModelError, match="rounded to 8 bits"):
        regard.export(rounded, to="ctranslate2", out=tmp_path / "out")


def test_what_has_no_answers_is_refused(tmp_path):
    vectors = WordVectors(["a", "b"], gpt().model.embedding.weight.detach().numpy()[:2])
    with pytest.raises(ModelError, match="word2vec"):
        regard.export(vectors, to="ctranslate2", out=tmp_path / "out")
    with pytest.raises(ConfigError, match="no such format"):
        regard.export(gpt(), to="gguf", out=tmp_path / "out")  # type: ignore[arg-type]
