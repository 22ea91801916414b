"""Curves of a run that is watched while it trains, is resumed, skips batches, and whose folder goes and comes back."""

from __future__ import annotations

import json

import pytest

from regard.looking.curves import Follower, as_stream, curves_of
from regard.looking.session import Session


@pytest.fixture
def looked(tmp_path):
    session = Session([None], device="cpu")
    session.models[0].folder = tmp_path / "run"
    (tmp_path / "run").mkdir()
    return session.models[0]


def log(looked, *rows) -> None:
    (looked.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_only_what_is_new_is_told(looked):
    follower = Follower(looked)
    log(looked, {"step": 1, "loss": 3.0})
    assert follower.look() == [("state", {"finished": True}), ("row", {"step": 1, "loss": 3.0})]
    assert follower.look() == []
    log(looked, {"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0, "skipped": 1, "last_skipped_step": 2})
    assert follower.look() == [("row", {"step": 2, "loss": 2.0, "skipped": 1, "last_skipped_step": 2})]
    (looked.folder / "run.json").write_text('{"status": "running"}')
    assert follower.look() == [("state", {"finished": False})]


def test_a_resumption_is_told_while_it_is_watched(looked):
    """The log loses what came after the checkpoint, even where as many rows come anew before the next look."""
    follower = Follower(looked)
    log(looked, {"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0})
    follower.look()
    log(looked, {"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.1}, {"step": 3, "loss": 2.0})
    (looked.folder / "resumed.jsonl").write_text('{"step": 1, "event": "resumed"}\n')
    names, rows = zip(*follower.look(), strict=True)
    assert names == ("again", "row", "row", "row", "row")
    assert rows[-1] == {"step": 1, "event": "resumed"}
    with open(looked.folder / "resumed.jsonl", "a") as file:
        file.write('{"step": 3, "event": "resumed"}\n')
    assert follower.look() == [("row", {"step": 3, "event": "resumed"})]


def test_a_folder_that_goes_is_said_once_and_comes_back_with_all_rows(looked):
    follower = Follower(looked)
    log(looked, {"step": 1, "loss": 3.0})
    follower.look()
    away = looked.folder.with_name("away")
    looked.folder.rename(away)
    ((name, problem),) = follower.look()
    assert name == "gone"
    assert "not there any more" in problem["what"]
    assert problem["todo"]
    assert follower.look() == []
    away.rename(looked.folder)
    assert follower.look() == [("again", {}), ("state", {"finished": True}), ("row", {"step": 1, "loss": 3.0})]
    assert follower.look() == []


def test_a_stream_is_what_browsers_read(looked):
    log(looked, {"step": 1, "loss": None})
    assert as_stream(Follower(looked).look()) == (
        'event: state\ndata: {"finished": true}\n\nevent: row\ndata: {"step": 1, "loss": null}\n\n'
    )
    assert curves_of(looked) == {"rows": [{"step": 1, "loss": None}], "finished": True}
