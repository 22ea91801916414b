"""Looking from Python: a trace of a loaded model, shown in a notebook or saved as one HTML file."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from regard.looking.saved_page import StepsKept, page_of, save_page
from regard.looking.session import Session
from regard.looking.trace import Trace
from regard.looking.tracing import make_trace

HEIGHT = 900  # pixels in a notebook


class LookedAt:
    """What a model did with a sentence. `trace` has the numbers; in a notebook, `show()` is the viewer on this sentence."""

    def __init__(self, task: Any, text: str, target: str | None = None, beam: int | None = None):
        self._asked = (text, target, beam)
        self._task = task
        self.trace: Trace = make_trace(task, text, target, beam)

    @property
    def alignment(self) -> np.ndarray:
        """Target by source, one row for each token that was written."""
        return self.trace.aligned("tokens")[0]

    def weights(self, part: str) -> np.ndarray:
        """All weights of a part, such as "encoder.self": [layers, heads, rows, columns]."""
        return self.trace.part(part).weights

    def save(self, path: str | Path, steps: StepsKept | None = None) -> None:
        """One HTML file that opens offline. `steps`: whose steps are in it."""
        save_page(Session.of(self._task), Path(path), *self._asked, steps)

    def show(self, height: int = HEIGHT) -> Page:
        """For the last line of a notebook's cell."""
        return Page(page_of(Session.of(self._task), *self._asked), height)


class Page:
    """A page that notebooks show in a frame of its own, where it can reach nothing of the notebook."""

    def __init__(self, html: str, height: int):
        self.html, self.height = html, height

    def _repr_html_(self) -> str:
        return (
            f'<iframe sandbox="allow-scripts allow-downloads" srcdoc="{escape(self.html)}" '
            f'style="width:100%;height:{int(self.height)}px;border:0"></iframe>'
        )


def look(task: Any, text: str, target: str | None = None, *, beam: int | None = None) -> LookedAt:
    """Looks at what a model (from `regard.load`) does with a sentence; `target`: at a translation of your own."""
    return LookedAt(task, text, target, beam)
