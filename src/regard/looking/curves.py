"""The curves of a run, as they are and as they grow: rows of its log, where it was resumed, and whether its folder is there."""

from __future__ import annotations

import json
from typing import Any

from regard.core.errors import RegardError
from regard.core.files import read_json
from regard.looking.session import Looked
from regard.tasks.run_files import RESUMED, RUN
from regard.training.log import read_metrics

Rows = list[dict[str, Any]]
Event = tuple[str, dict[str, Any]]


def curves_of(looked: Looked) -> dict[str, Any]:
    """All that is known now."""
    looked.check_folder()
    return {"rows": [*read_metrics(looked.metrics), *_marks(looked)], "finished": not _is_running(looked)}


class Follower:
    """Says what is new at each look, to one page.

    row     a row of the log, or the mark of a resumption
    again   forget all rows: they come anew (a run that was resumed drops what came after its checkpoint)
    state   whether the run has ended
    gone    the folder is not there, and why that matters; `again` follows when it is back
    """

    def __init__(self, looked: Looked):
        self.looked = looked
        self.rows: Rows = []
        self.marks: Rows = []
        self.finished: bool | None = None
        self.gone = False

    def look(self) -> list[Event]:
        try:
            self.looked.check_folder()
        except RegardError as error:
            if self.gone:
                return []
            self.gone = True
            return [("gone", {"where": error.where, "what": error.what, "todo": error.todo})]
        try:
            rows, marks = read_metrics(self.looked.metrics), _marks(self.looked)
        except OSError:  # it vanished just now
            return []
        finished = not _is_running(self.looked)
        events: list[Event] = []
        if self.gone or rows[: len(self.rows)] != self.rows or marks[: len(self.marks)] != self.marks:
            self.rows, self.marks = [], []
            events.append(("again", {}))
        if self.gone or finished != self.finished:
            events.append(("state", {"finished": finished}))
        events += [("row", row) for row in [*rows[len(self.rows) :], *marks[len(self.marks) :]]]
        self.rows, self.marks, self.finished, self.gone = rows, marks, finished, False
        return events


def as_stream(events: list[Event]) -> str:
    """Events as a browser's EventSource reads them."""
    return "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)


def _marks(looked: Looked) -> Rows:
    return read_metrics(looked.folder / RESUMED)


def _is_running(looked: Looked) -> bool:
    try:
        return read_json(looked.folder / RUN).get("status") == "running"
    except (RegardError, AttributeError):
        return False
