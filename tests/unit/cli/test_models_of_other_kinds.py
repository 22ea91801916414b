"""A model of another kind than a verb needs is refused in one sentence that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.cli.reading_verbs import fill, tag
from regard.cli.text_verbs import generate
from regard.core.errors import ModelError
from regard.tasks.pretrained import BUNDLED, bundled_model


@pytest.mark.parametrize("model", [Path(BUNDLED), bundled_model()], ids=["name", "folder"])
def test_a_translator_neither_tags_nor_fills_nor_writes_from_labels(model):
    with pytest.raises(ModelError, match="no tagger"):
        tag(model, ["a text"], device="cpu")
    with pytest.raises(ModelError, match="fills in no words"):
        fill(model, ["a [MASK]"], device="cpu")
    with pytest.raises(ModelError, match="does not write from labels"):
        generate(label="good", model=model, device="cpu")
