"""What a viewer holds: the models that are looked at, loaded when they are first asked for, and the last traces."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool

from regard.core.errors import CheckpointError, ModelError, RegardError
from regard.looking.grammar import baselines, load_heads, sayings
from regard.looking.trace import Trace
from regard.looking.tracing import make_trace
from regard.looking.views import CONTEXTUAL, VIEWS, views_of
from regard.tasks.folder import METRICS, read_config
from regard.tasks.pretrained import BUNDLED, find_model, load
from regard.tasks.word_vectors import WordVectors

SENTENCE = "The animal didn't cross the street because it was too tired."
MASKED_SENTENCE = "The animal didn't cross the [MASK] because it was too tired."
MOST_TRACES = 16
MOST_WORDS, SHORTEST = 40, 4  # shown at first, and letters of each
ANALOGIES = (("man", "king", "woman"), ("is", "was", "are"), ("go", "went", "come"), ("I", "my", "you"))
SHOWN_SETTINGS = ("width", "layers", "encoder_layers", "decoder_layers", "heads", "embedding", "positions", "relative")


class Looked:
    """One model: its folder, and what `regard.load` makes of it."""

    def __init__(self, number: int, place: Path | None, device: str):
        self.id = str(number)
        self.folder = find_model(place)
        bundled = place is None or self.folder == find_model(None)
        self.name = BUNDLED if bundled else self.folder.resolve().name or str(self.folder)
        self.device = device
        self.vectors: WordVectors | None = None
        self.evaluation: dict[str, Any] | None = None
        self._task: Any = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, task: Any) -> Looked:
        """A model that is loaded already."""
        if getattr(task, "folder", None) is None:
            raise ModelError("the model", "it is of no run folder", "Save it, and load it with regard.load")
        looked = cls(0, task.folder, "auto")
        looked._task = task
        return looked

    @property
    def task(self) -> Any:
        """Loaded once. A folder that has gone is an error that says so."""
        with self._lock:
            if self._task is None:
                self.check_folder()
                self._task = load(self.folder, self.device)
            return self._task

    def check_folder(self) -> None:
        if not self.folder.exists():
            raise CheckpointError(self.folder, "it is not there any more", "Bring it back, or look at another")

    @functools.cached_property
    def sayings(self) -> dict[str, Any]:
        """What was counted of the heads, if it was."""
        found = load_heads(self.folder)
        return {} if found is None else {"heads_say": sayings(found), "heads_baseline": baselines(found)}

    @property
    def metrics(self) -> Path:
        return self.folder / METRICS

    def to_plain(self) -> dict[str, Any]:
        """What the page lists. A model that cannot be opened is listed, too: its views say what is wrong with it."""
        try:
            config = read_config(self.folder)["model"]
            architecture, task = str(config.get("name")), self.task
        except RegardError:
            unknown = {"architecture": "?", "does": "nothing", "parameters": 0, "settings": {}, "sentence": SENTENCE}
            return {"id": self.id, "name": self.name, **unknown, "views": dict.fromkeys(VIEWS, True)}
        model = getattr(task, "model", None)
        return {
            "id": self.id,
            "name": self.name,
            "architecture": architecture,
            "does": sorted(getattr(model, "capabilities", {"embeds"}) - {"attends", "plans"})[0],
            "parameters": model.parameters_count() if model is not None else 0,
            "settings": {name: config[name] for name in SHOWN_SETTINGS if name in config},
            "sentence": self._sentence(task, getattr(model, "capabilities", frozenset())),
            "views": views_of(task, architecture, trained=self.metrics.exists()),
            "languages": self._languages(),
            "words": self._some_words(),
            "analogy": self._analogy(),
            "contextual": architecture.startswith(CONTEXTUAL),
        }

    def _sentence(self, task: Any, capabilities: frozenset[str]) -> str:
        """What the page opens on: of what writes from a label, a label."""
        if "composes" in capabilities:
            return task.labels[0]
        return MASKED_SENTENCE if "fills" in capabilities else SENTENCE

    def _languages(self) -> dict[str, str]:
        data = read_config(self.folder).get("data")
        found = data if isinstance(data, dict) else {}
        return {side: str(found.get(f"{side}_language") or "") for side in ("source", "target")}

    def _some_words(self) -> list[str]:
        """Words that have vectors, for the page to begin with; the frequent ones where words are in that order."""
        try:
            words = self.word_vectors().words
        except RegardError:
            return []
        return [word for word in words if word.isalpha() and word.islower() and len(word) >= SHORTEST][:MOST_WORDS]

    def _analogy(self) -> list[str] | None:
        """Three words for the page to begin with, all of which have vectors."""
        try:
            vectors = self.word_vectors()
        except RegardError:
            return None
        return next((list(three) for three in ANALOGIES if all(word in vectors for word in three)), None)

    def word_vectors(self) -> WordVectors:
        """The model's table of words, read once."""
        if self.vectors is None:
            self.vectors = WordVectors.load(self.folder)
        return self.vectors


def told_apart(models: Sequence[Looked]) -> list[str]:
    """Names of models: of those that have the same, as many folders above as tell them apart."""
    names = [model.name for model in models]
    parts = [model.folder.resolve().parts for model in models]
    for length in range(2, max(map(len, parts), default=0) + 1):
        twice = {name for name in names if names.count(name) > 1}
        names = ["/".join(own[-length:]) if name in twice else name for name, own in zip(names, parts, strict=True)]
    return names


class Session:
    """Models and traces. One model works at a time: a page asks for few things, and threads would fight for the cores."""

    def __init__(self, places: Sequence[Path | None], device: str = "auto"):
        self.models = [Looked(number, place, device) for number, place in enumerate(places)]
        for model, name in zip(self.models, told_apart(self.models), strict=True):
            model.name = name
        self._start()

    @classmethod
    def of(cls, task: Any) -> Session:
        """A session with one model that is loaded already."""
        session = cls([])
        session.models = [Looked.of(task)]
        return session

    def _start(self) -> None:
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._made = 0
        self.ended = False  # streams end when they see it
        self.working = threading.Lock()

    async def alone(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function in a thread, while no other one works: a pass that is watched must not see another."""

        def work() -> Any:
            with self.working:
                return function(*arguments)

        return await run_in_threadpool(work)

    def model(self, name: str) -> Looked:
        found = next((model for model in self.models if model.id == name), None)
        if found is None:
            raise ModelError("the model", f"there is no model {name!r}", "Choose one of the list")
        return found

    def make(self, model: str, text: str, target: str | None, beam: int | None) -> dict[str, Any]:
        """A new trace; the oldest of too many is forgotten. Gives its header."""
        task = self.model(model).task
        with self.working:
            trace = make_trace(task, text, target, beam)
        self._made += 1
        name = f"t{self._made}"
        self._traces[name] = trace
        while len(self._traces) > MOST_TRACES:
            self._traces.popitem(last=False)
        return {"id": name, "model": model, **trace.header(), **self.model(model).sayings}

    def trace(self, name: str) -> Trace:
        if name not in self._traces:
            raise ModelError("the trace", f"{name!r} is no longer kept", "Press Enter in the sentence to make it again")
        self._traces.move_to_end(name)
        return self._traces[name]
