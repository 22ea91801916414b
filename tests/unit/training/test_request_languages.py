"""The languages of a run: from settings, else from the names of its files, else from its recipe."""

from __future__ import annotations

import pytest

from regard.training.request import gather


@pytest.mark.parametrize(
    ("recipe", "files", "settings", "languages"),
    [
        (None, {"src": "a/corpus.en", "tgt": "corpus.fr.gz"}, [], ("en", "fr")),
        (None, {"src": "corpus.en", "tgt": "corpus.fr"}, ["data.target_language=nl"], ("en", "nl")),
        (None, {"src": "corpus.en", "tgt": "corpus.en"}, [], ("", "")),
        (None, {"src": "a.src", "tgt": "a.tgt"}, [], ("", "")),
        (None, {"pairs": "corpus.en-fr.tsv"}, [], ("", "")),
        ("demo", {"src": "corpus.en", "tgt": "corpus.fr"}, [], ("en", "fr")),
        ("demo", {"src": "a.src", "tgt": "a.tgt"}, [], ("en", "de")),
        ("demo", {}, [], ("en", "de")),
    ],
)
def test_languages(recipe, files, settings, languages):
    data = gather(recipe, files, settings, None)["data"]
    assert (data.get("source_language", ""), data.get("target_language", "")) == languages
