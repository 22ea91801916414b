"""A saved page: everything inside, nothing that could do harm, and the model's own numbers."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import numpy as np
import pytest

import regard
from regard.core.errors import DataError, ModelError
from regard.looking.frames import unframed
from regard.looking.notebook import look
from regard.looking.saved_page import page_of
from regard.looking.session import Session

HOSTILE = "<script>alert(1)</script> </script><!-- tired"


@pytest.fixture(scope="module")
def task():
    return regard.load(device="cpu")


@pytest.fixture(scope="module")
def page(task):
    return page_of(Session.of(task), "I am tired.", "Ich bin müde.")


def inside(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="regard-embedded">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])["answers"]


def test_the_weights_inside_are_the_models_own(page, task):
    answers = inside(page)
    trace = answers["POST /api/traces"]["json"]
    seen = look(task, "I am tired.", "Ich bin müde.")
    for part in trace["parts"]:
        for layer in range(part["layers"]):
            for head in range(part["heads"]):
                where = f"/api/traces/{trace['id']}/weights?head={head}&layer={layer}&part={part['name']}&type=f32"
                _, numbers = unframed(base64.b64decode(answers[f"GET {where}"]["base64"]))
                np.testing.assert_array_equal(numbers, seen.weights(part["name"])[layer, head])
    assert f"GET /api/traces/{trace['id']}/beam" in answers
    assert not any("ponder" in address for address in answers)  # what a model lacks is left out


def test_it_opens_on_its_own_sentence_with_the_tables_of_positions(page):
    answers = inside(page)
    assert answers["GET /api/models"]["json"]["models"][0]["sentence"] == "I am tired."
    for table in answers["GET /api/models/0/positions"]["json"]["tables"]:
        _, numbers = unframed(base64.b64decode(answers[f"GET /api/models/0/positions/{table['name']}"]["base64"]))
        assert list(numbers.shape) == table["shape"]


def test_only_its_own_script_may_run(page):
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 1
    checksum = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{checksum}'" in policy
    assert not re.findall(r'(?:src|href)="(?!data:,)', page.split("<script>")[0])


def test_hostile_text_stays_text(task):
    page = page_of(Session.of(task), HOSTILE, "Hallo")
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert inside(page)["POST /api/traces"]["json"]["source"]["text"] == HOSTILE


def test_what_cannot_be_looked_at_is_said(task, tmp_path):
    with pytest.raises(ModelError, match="can be looked at"):
        page_of(Session.of(task), "tired " * 2000)
    with pytest.raises(DataError, match="it is empty"):
        look(task, " ")


def test_a_notebook_shows_it_in_a_frame_of_its_own(task, tmp_path):
    seen = look(task, "I am tired.")
    shown = seen.show()._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts allow-downloads" srcdoc="&lt;!doctype')
    assert "<script" not in shown
    seen.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert seen.alignment.shape == (len(seen.trace.target.tokens), len(seen.trace.source.tokens))  # type: ignore[union-attr]
