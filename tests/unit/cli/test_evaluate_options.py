"""Options of `regard evaluate` that do not go together are refused, and none is passed over in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.cli.measuring_verbs import evaluate
from regard.core.errors import ConfigError

FILE = Path("a.txt")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tagged": FILE, "context": 5}, "go with --text"),
        ({"labelled": FILE, "documents": "line"}, "go with --text"),
        ({"similarity": [FILE], "stride": 2}, "go with --text"),
        ({"analogies": FILE, "trigram": 0.5}, "go with --text"),
        ({"src": FILE, "ref": FILE, "context": 5}, "go with --text"),
        ({"text": [FILE], "vocabulary": 10}, "--vocabulary: it goes with --analogies"),
        ({"similarity": [FILE], "vocabulary": 10}, "--vocabulary: it goes with --analogies"),
        ({"tagged": FILE, "similarity": [FILE]}, "--similarity: it does not go with --tagged"),
        ({"text": [FILE], "labelled": FILE}, "--labelled: it does not go with --text"),
        ({"analogies": FILE, "similarity": [FILE], "lowercase": True}, "--analogies: it goes with"),
        ({"analogies": FILE, "similarity": [FILE]}, "no word vectors come with regard"),
        ({}, "nothing to evaluate on"),
        ({"src": FILE}, "--ref is missing"),
        ({"ref": FILE}, "--src is missing"),
        ({"text": [FILE], "metrics": "bleu"}, "--text: it goes with"),
        ({"src": FILE, "ref": FILE, "metrics": "blue"}, "there is no 'blue'"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together_are_refused(options, told):
    with pytest.raises(ConfigError, match=told):
        evaluate(**options)
