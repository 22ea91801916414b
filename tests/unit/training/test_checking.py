"""The check before a run: kept for a large text, and made again when anything it depends on has changed."""

import random

import pytest

from regard.core.errors import DataError
from regard.data.corpus_config import CorpusConfig, DataConfig
from regard.training.checking import check_before_training
from regard.training.progress import Reporter
from regard.training.request import gather

ENGLISH = ("the man is in the house and he has a dog", "this is what we have to do for you",
           "it was not the first time that she was here", "they are on the way to the city with their friends")  # fmt: skip
GERMAN = ("der Mann ist in dem Haus und er hat einen Hund", "das ist was wir für dich tun müssen",
          "es war nicht das erste Mal dass sie hier war", "sie sind auf dem Weg in die Stadt mit ihren Freunden")  # fmt: skip


class Listener(Reporter):
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


@pytest.fixture
def folder(tmp_path):
    draw = random.Random(1)
    rows = [(draw.randrange(4), draw.randint(1, 10**6)) for _ in range(600)]
    for name, lines in (("a.en", ENGLISH), ("a.de", GERMAN), ("b.de", ENGLISH), ("b.en", GERMAN)):
        (tmp_path / name).write_text("".join(f"{lines[i]} {number}\n" for i, number in rows), encoding="utf-8")
    return tmp_path


def checked(folder, **settings) -> bool:
    """Checks, and says whether it really looked."""
    listener = Listener()
    allow = ("near-duplicates", "duplicates")
    check_before_training(
        DataConfig(folder=str(folder), store=str(folder / "shelf"), allow=allow, **settings), listener
    )
    return "Checking the text..." in listener.said


def test_it_is_made_once_for_a_text_and_its_names(folder):
    assert checked(folder, src="a.en", tgt="a.de")
    assert not checked(folder, src="a.en", tgt="a.de")
    with pytest.raises(DataError, match=r"b\.de and .*b\.en: the text is damaged: swapped-languages"):
        checked(folder, src="b.de", tgt="b.en")  # the very same bytes under names that claim something else


def test_the_columns_of_held_out_files_count(folder):
    rows = zip((folder / "a.en").read_text().splitlines(), (folder / "a.de").read_text().splitlines(), strict=True)
    (folder / "v.tsv").write_text("".join(f"{s} today\t{t} heute\tx\n" for s, t in list(rows)[:50]))
    held = {"valid_pairs": "v.tsv", "corpora": (CorpusConfig(src="a.en", tgt="a.de"),)}
    assert checked(folder, **held)
    assert not checked(folder, **held)
    assert checked(folder, **held, columns=("0", "2"))


def test_the_store_is_the_same_from_everywhere(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for given, meant in (("shelf", str(folder / "shelf")), ("memory", "memory")):
        files = {"src": "a.en", "tgt": "a.de"}
        assert gather(None, files, [f"data.store={given}"], None)["data"]["store"] == meant
    assert "store" not in gather(None, {"src": "a.en", "tgt": "a.de"}, [], None)["data"]
