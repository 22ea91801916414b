"""The page in a real browser, on real models: nothing blank, no error, nothing asked of other places.

Needs Node, `npm ci` in viewer/, and chromium. Where they are missing the tests are skipped, but not where REGARD_BROWSER=1 says
that they must be there.
"""

from __future__ import annotations

import numpy as np
import pytest
from small_runs import SIZES, run_node, served, small_session

import regard
from regard.looking.session import SENTENCE
from regard.looking.tracing import make_trace


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    return small_session(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def seen(session, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    looked = regard.look(session.models[0].task, SENTENCE)
    looked.save(folder / "page.html")
    (folder / "cell.html").write_text(looked.show()._repr_html_(), encoding="utf-8")
    with served(session) as address:
        return run_node("real.mjs", address, str(folder / "page.html"), str(folder / "cell.html"))


def test_every_view_of_every_model_shows_something(seen):
    assert len(seen["views"]) == 15 * (len(SIZES) + 1)
    wrong = []
    for one in seen["views"]:
        if one["able"] is not True:
            good = "Not applicable to" in one["text"]
        elif one["view"] == "evaluation" and one["model"] in SIZES:  # an untrained run has no text to be evaluated on
            good = one["alert"] is not None
        else:
            good = one["alert"] is None and len(one["text"]) > 40 and not one["errors"]
        if not (good and one["fits"]):
            wrong.append(one)
    assert wrong == []


def test_a_saved_page_needs_no_server_and_no_network(seen, session):
    saved = seen["saved"]
    assert saved["errors"] == saved["asked"] == []
    assert {view: one["alerts"] for view, one in saved["views"].items()} == dict.fromkeys(saved["views"], 0)
    assert all(one["text"] > 100 and one["pictures"] for one in saved["views"].values())
    trace = make_trace(session.models[0].task, SENTENCE)
    assert trace.alignment is not None
    assert saved["alignment"] == pytest.approx(float(trace.alignment[0].max()), abs=1e-6)
    assert "looks most at" in saved["notebook"]


def test_hostile_text_stays_text(seen):
    assert seen["hostile"] == {
        view: {"injected": 0, "fits": True} for view in ("heads", "alignment", "steps", "beam", "compare")
    }
    assert seen["dialogs"] == []


def test_what_cannot_be_read_is_said(seen):
    assert "it is empty" in seen["messages"]["empty"]
    assert "at most 1,023 can be looked at" in seen["messages"]["long"]
    assert "20,000" in seen["messages"]["huge"]


def test_nothing_is_asked_of_other_places(seen):
    assert seen["foreign"] == []


def test_numbers_on_the_page_are_the_models_own(seen, session):
    trace = make_trace(session.models[0].task, SENTENCE)
    assert trace.alignment is not None
    assert seen["alignment"] == pytest.approx(float(trace.alignment[3, 2]), abs=1e-6)
    steps = {step.name: step for step in trace.steps("decoder.cross", 1, 2, 3)}
    for name, numbers in seen["steps"].items():
        shown = np.asarray(numbers)
        own = np.concatenate([np.asarray(tensor.values, dtype=np.float64).ravel() for tensor in steps[name].tensors])
        assert len(shown) >= len(own)
        for value in own:
            assert np.abs(shown - value).min() < 1e-6
