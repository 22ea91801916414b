"""A saved page: everything inside, nothing that could do harm, and the model's own numbers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import json
import re

import numpy as np
import pytest

import regard
from regard.core.errors import DataError, ModelError
from regard.looking import saved_page
from regard.looking.frames import unframed
from regard.looking.notebook import look
from regard.looking.saved_page import StepsKept, page_of
from regard.looking.session import Session
from regard.looking.steps import to_frame

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


def test_a_page_is_made_in_a_notebook_where_an_event_loop_is_running(task, tmp_path):
    async def cell():
        seen = look(task, "I am tired.", "Ich bin müde.")
        seen.save(tmp_path / "page.html")
        return seen.show()._repr_html_()

    shown = asyncio.run(cell())
    assert shown.startswith("<iframe sandbox=")
    assert inside((tmp_path / "page.html").read_text(encoding="utf-8")) == inside(html.unescape(shown))


def steps_in(page: str) -> set[tuple[str, int, int, int]]:
    found = [re.search(r"steps\?head=(\d+)&layer=(\d+)&part=([\w.]+)&row=(\d+)", address) for address in inside(page)]
    return {(one[3], int(one[2]), int(one[1]), int(one[4])) for one in found if one}


def test_steps_of_a_chosen_place_are_kept(task, page):
    """The last layer's first head by default; else the chosen layer, head and row, or the last that a part has."""
    assert {(part, layer, head) for part, layer, head, _ in steps_in(page)} == {
        ("encoder.self", 4, 0),
        ("decoder.self", 1, 0),
        ("decoder.cross", 1, 0),
    }
    chosen = page_of(Session.of(task), "I am tired.", "Ich bin müde.", steps=StepsKept(layer=3, head=2, row=1))
    assert steps_in(chosen) == {("encoder.self", 3, 2, 1), ("decoder.self", 1, 2, 1), ("decoder.cross", 1, 2, 1)}
    assert json.loads(re.findall(r'"start":("[^"]*")', chosen)[0]) == "#view=steps&layer=3&head=2&row=1"
    (address,) = [name for name in inside(chosen) if "steps" in name and "encoder.self" in name]
    _, numbers = unframed(base64.b64decode(inside(chosen)[address]["base64"]))
    _, own = to_frame(look(task, "I am tired.", "Ich bin müde.").trace.steps("encoder.self", 3, 2, 1))
    np.testing.assert_allclose(numbers, own, atol=1e-6)
    for wrong in (StepsKept(layer=9), StepsKept(head=4), StepsKept(row=400)):
        with pytest.raises(ModelError, match="there is no"):
            page_of(Session.of(task), "I am tired.", "Ich bin müde.", steps=wrong)


def test_all_steps_are_kept_where_they_fit(task, monkeypatch):
    whole = steps_in(page_of(Session.of(task), "Tired.", "Müde.", steps=StepsKept(everything=True)))
    parts = look(task, "Tired.", "Müde.").trace.parts.values()
    assert len(whole) == sum(part.weights[..., 0].size for part in parts)
    monkeypatch.setattr(saved_page, "MOST_BYTES", 2_000_000)
    with pytest.raises(ModelError, match=r"all layers, heads and words.*--layer"):
        page_of(Session.of(task), "Tired.", "Müde.", steps=StepsKept(everything=True))


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
