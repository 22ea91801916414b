"""The verb `shortlist`: lists are learnt from a run's own text, used by the CTranslate2 engine, and taken away again."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from regard.data.short_lists import ShortLists
from regard.tasks.converted_run import SHORT_LISTS_OF_RUN, short_lists_file
from regard.tasks.pretrained import find_model, load


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "model"
    shutil.copytree(find_model(None), folder)
    return folder


def test_the_file_says_what_each_token_may_become(tmp_path):
    source, target = (
        ["<pad>", "<s>", "</s>", "<unk>", "▁a", "x y"],
        ["<pad>", "<s>", "</s>", "<unk>", "▁b", "c d", "▁e"],
    )
    each = np.zeros((6, 2), dtype=np.int32)
    each[4], each[5] = [6, 5], [4, 0]
    ShortLists(each, np.asarray([0, 2, 3, 4], dtype=np.int32), 7).save(tmp_path / "lists")
    written = short_lists_file(tmp_path / "lists", source, target).decode()
    assert written == "\t</s> <unk> ▁b\n▁a\t▁e\n"  # neither padding nor tokens with spaces


def test_lists_of_one_token_change_what_is_written(run, command, monkeypatch):
    pytest.importorskip("ctranslate2")
    usual = load(run, "cpu", engine="ctranslate2").translate("I am tired.")
    size = load(run, "cpu").tokenizers.source.size
    only = load(run, "cpu").tokenizers.target.encode(["nein"])[0]
    each = np.zeros((size, 1), dtype=np.int32)
    always = np.asarray(sorted({0, 1, 2, 3, *only}), dtype=np.int32)
    ShortLists(each, always, size).save(run / SHORT_LISTS_OF_RUN)
    allowed = load(run, "cpu", engine="ctranslate2").translate("I am tired.")
    assert allowed != usual
    assert set(load(run, "cpu").tokenizers.target.encode([allowed])[0]) <= set(only)
    found = command("shortlist", "--model", run, "--remove")
    assert found.code == 0
    assert load(run, "cpu", engine="ctranslate2").translate("I am tired.") == usual
    assert command("shortlist", "--model", run, "--remove").code == 1


def test_a_damaged_list_is_an_error_that_says_what_to_do(run, command):
    pytest.importorskip("ctranslate2")
    (run / SHORT_LISTS_OF_RUN).write_bytes(b"nothing")
    found = command("translate", "--model", run, "--engine", "ctranslate2", "I am tired.")
    (run / SHORT_LISTS_OF_RUN).unlink()
    assert found.code == 1
    assert "no short lists for this model" in found.err
    assert "Traceback" not in found.err


def test_sizes_are_bounded(run, command):
    assert "is not from 1 to" in command("shortlist", "--model", run, "--each", 0).err
