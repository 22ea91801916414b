"""Models on a shelf: names, tasks, lazy loading, and how many stay loaded."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from regard.core import device as devices
from regard.core.errors import CheckpointError, ConfigError, ModelError
from regard.serving.shelf import Shelf
from regard.tasks.pretrained import bundled_model


def run_folder(place: Path, model: str = "gpt", **more) -> Path:
    """A folder with nothing but a configuration: a shelf reads no more."""
    place.mkdir(parents=True)
    config = {"format": 1, "model": {"name": model}, "vocabulary": {"source": 9, "target": 9, "shared": True}, **more}
    (place / "config.json").write_text(json.dumps(config))
    return place


def test_without_a_folder_there_is_the_bundled_model():
    (served,) = Shelf.open()
    assert (served.name, served.task, served.source_language, served.target_language) == (
        "tatoeba-en-de",
        "translation",
        "en",
        "de",
    )
    assert served.folder == bundled_model()
    assert served.shelf.loaded == []


def test_models_are_called_as_their_folders_or_as_one_says(tmp_path):
    a, b = run_folder(tmp_path / "one" / "run"), run_folder(tmp_path / "two" / "run", "kim", labels=["x", "y"])
    with pytest.raises(ConfigError, match=r"two models are called 'run'.*Give one of them a name"):
        Shelf.open([a, b])
    shelf = Shelf.open([a, f"other={b}", "tatoeba-en-de"])
    assert {served.name: served.task for served in shelf} == {
        "run": "language",
        "other": "classification",
        "tatoeba-en-de": "translation",
    }
    assert shelf.of("classification")[0].labels == ("x", "y")
    assert shelf.get("nothing") is None


@pytest.mark.parametrize("model", ["gpt", "kim", "recurrent-tagger", "bert", "word2vec", "luong", "rctm2"])
def test_tasks_are_what_models_can_do(tmp_path, model):
    (served,) = Shelf.open([run_folder(tmp_path / "run", model)])
    assert (
        served.task
        == {
            "gpt": "language",
            "kim": "classification",
            "recurrent-tagger": "tagging",
            "bert": "masked",
            "word2vec": "vectors",
            "luong": "translation",
            "rctm2": "translation",
        }[model]
    )


def test_wrong_folders_and_names_are_errors(tmp_path):
    with pytest.raises(CheckpointError, match="no such folder"):
        Shelf.open([tmp_path / "nothing"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        Shelf.open([tmp_path / "empty"])
    folder = run_folder(tmp_path / "run")
    with pytest.raises(ConfigError, match="cannot be a model's name"):
        Shelf.open([f'a"b={folder}'])
    with pytest.raises(ConfigError, match="negative"):
        Shelf.open([folder], most_loaded=-1)
    with pytest.raises(ConfigError, match="65 folders"):
        Shelf.open([folder] * 65)
    with pytest.raises(ModelError, match="cannot be served"):
        Shelf.open([run_folder(tmp_path / "writer", "label-writer", labels=["a", "b"])])
    odd = run_folder(tmp_path / "a=b")
    assert [served.folder for served in Shelf.open([f"name={odd}"])] == [odd]


def test_the_least_recently_used_model_is_put_back(tmp_path):
    reads: list[str] = []

    def read(folder: Path) -> object:
        reads.append(folder.name)
        return object()

    shelf = Shelf(read, most_loaded=2)
    heard: list[str] = []
    shelf.on_load.append(lambda served: heard.append(served.name))
    a, b, c = (shelf.add(name, run_folder(tmp_path / name)) for name in "abc")
    first = a.load()
    assert a.load() is first
    b.load()
    a.load()
    c.load()
    assert shelf.loaded == ["a", "c"]
    assert a.load() is first
    b.load()
    assert (shelf.loaded, reads, heard) == (["a", "b"], ["a", "b", "c", "b"], ["a", "b", "c", "b"])


def test_a_model_is_loaded_once_for_all_who_ask_at_the_same_time(tmp_path):
    reads: list[str] = []

    def read(folder: Path) -> object:
        reads.append(folder.name)
        time.sleep(0.05)
        return object()

    shelf = Shelf(read)
    served = shelf.add("a", run_folder(tmp_path / "a"))
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(served.load())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reads == ["a"]
    assert len({id(model) for model in found}) == 1


def test_bfloat16_is_refused_for_models_that_need_more_before_anything_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "why_no_bfloat16", lambda device: None)
    gpt, cho, kim = (run_folder(tmp_path / name, name) for name in ("gpt", "cho", "kim"))
    assert len(Shelf.open([gpt, kim, "tatoeba-en-de"], compute="bfloat16")) == 3  # a classifier writes nothing
    with pytest.raises(ConfigError, match=r"cho cannot be used in bfloat16: its states add up.*Serve it by itself"):
        Shelf.open([gpt, cho], compute="bfloat16")
    assert len(Shelf.open([gpt, cho], compute="int8")) == 2
    with pytest.raises(ConfigError, match=r"bfloat16 is of torch.*--engine auto or torch"):
        Shelf.open([gpt], compute="bfloat16", engine="ctranslate2")
    monkeypatch.setattr(devices, "why_no_bfloat16", lambda device: "this CPU cannot")
    with pytest.raises(ConfigError, match="this CPU cannot"):
        Shelf.open([gpt], compute="bfloat16")


def test_numbers_of_ctranslate2_are_refused_for_models_that_write_together():
    both = f"both={bundled_model()}+{bundled_model()}"
    with pytest.raises(ConfigError, match=r"int8_float32 is of CTranslate2.*Use int8 or float32"):
        Shelf.open([both], compute="int8_float32")
    assert len(Shelf.open([both], compute="int8")) == 1
