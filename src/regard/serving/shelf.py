"""The models that a server has: known by name from the start, loaded when first asked for, put back when too many are loaded."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regard.core.errors import ConfigError, ModelError
from regard.core.visible_text import visible
from regard.serving.companions import NONE, ROLES, SAME_TOKENS, Companions, check_companion, members_of, owner_of
from regard.tasks.guarding import Guard
from regard.tasks.pretrained import BUNDLED, capabilities_of, find_model, load
from regard.tasks.run_files import read_config
from regard.tasks.translation import Translator

if TYPE_CHECKING:
    from regard.core.number_formats import Asked
    from regard.tasks.translation_engines import Engine

Task = Literal["translation", "language", "classification", "tagging", "masked", "vectors"]
TASKS: dict[str, Task] = {
    "translates": "translation",
    "continues": "language",
    "classifies": "classification",
    "tags": "tagging",
    "fills": "masked",
    "embeds": "vectors",
}
MOST_MODELS = 64
_OWNERS: dict[str, tuple[Task, ...]] = {"--draft": ("translation", "language")}
GUARD = Guard()
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # goes into addresses, answers and metrics


@dataclasses.dataclass(frozen=True, eq=False)
class Served:
    """One model: what is known of it without its weights, and how to have it."""

    name: str
    folder: Path
    task: Task
    config: dict[str, Any] = dataclasses.field(repr=False)
    shelf: Shelf = dataclasses.field(repr=False)
    beside: Companions = NONE

    @property
    def source_language(self) -> str:
        """The code of the language that a translator reads; empty where its run does not say."""
        return self._language("source_language")

    @property
    def target_language(self) -> str:
        return self._language("target_language")

    @property
    def labels(self) -> tuple[str, ...]:
        """Of a classifier or a tagger."""
        labels = self.config.get("labels")
        return tuple(label for label in labels if isinstance(label, str)) if isinstance(labels, list) else ()

    @property
    def two_texts(self) -> bool:
        """Whether a classifier reads two texts at once."""
        return self.config.get("two_texts") is True

    def _language(self, name: str) -> str:
        value = self.config.get("data", {}).get(name, "")
        return value if isinstance(value, str) else ""

    def load(self) -> Any:
        """The model as its task has it (Translator, TextModel, ...). Waits for the weights where they are not there yet."""
        return self.shelf.load(self)


class Shelf:
    """Served models by name. At most `most_loaded` of them have their weights in memory (0: no bound).

    A model that is put back while it is worked with stays in memory until that work is done.
    """

    def __init__(self, read: Callable[[Path], Any], most_loaded: int = 0):
        """`read` loads the model of a folder."""
        self.models: dict[str, Served] = {}
        self.most_loaded = most_loaded
        self.on_load: list[Callable[[Served], None]] = []  # told when a model's weights were read
        self._read, self._guard = read, GUARD
        self._companions = NONE
        self._loaded: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()
        self._loading: dict[str, threading.Lock] = {}

    @classmethod
    def open(
        cls,
        folders: Sequence[str | Path] = (),
        *,
        device: str = "auto",
        engine: Engine = "auto",
        compute: Asked = "auto",
        most_loaded: int = 0,
        guard: Guard | None = GUARD,
        mix: str = "log",
    ) -> Shelf:
        """The models of run folders (`DIR`, or `NAME=DIR`); without any, the bundled one. Configurations are read, weights not.

        Folders joined by `+` are one model, whose members write together (see tasks/ensembles.py); `mix` is how.

        `guard` takes care that translators answer with translations: see docs/decoding.md.
        """
        if len(folders) > MOST_MODELS:
            raise ConfigError("serve", f"{len(folders)} folders are given", f"Give at most {MOST_MODELS}")
        if most_loaded < 0:
            raise ConfigError("--most-loaded", f"{most_loaded} is negative", "Give 0 for no bound, or a number")

        def read(folder: Path) -> Any:
            model = load(folder, device, engine=engine, compute=compute)
            return model.guarded(guard) if isinstance(model, Translator) else model

        shelf = cls(read, most_loaded)
        shelf._guard, shelf._companions = guard, Companions(device=device, mix=mix, compute=compute)
        for given in folders or [BUNDLED]:
            shelf.put(given)
        if compute == "bfloat16":
            shelf._check_bfloat16(device, engine)
        if engine == "ctranslate2" and any(served.beside.members for served in shelf):
            raise ConfigError("--engine", "CTranslate2 runs one model at a time", "Use --engine auto or torch")
        if compute == "int8_float32" and any(served.beside.members for served in shelf):
            what = "int8_float32 is of CTranslate2, which runs one model at a time"
            raise ConfigError("--compute", what, "Use int8 or float32")
        return shelf

    def _check_bfloat16(self, device: str, engine: Engine) -> None:
        """Before anybody waits for an answer of a model that cannot be loaded so."""
        from regard.core.device import choose_device, why_no_bfloat16

        if engine == "ctranslate2":
            raise ConfigError("--compute", "bfloat16 is of torch", "Use --engine auto or torch, or --compute auto")
        if (reason := why_no_bfloat16(choose_device(device))) is not None:
            raise ConfigError("--compute", f"bfloat16 cannot be used: {reason}", "Use --compute auto")
        for served in self:
            _refuse_float32(served.name, [served.config["model"], *map(_section_of, served.beside.members)])

    def put(self, given: str | Path) -> Served:
        """Puts a model on the shelf that is given as `DIR` or `NAME=DIR`."""
        name, folder, members, weights = _named(given)
        together = dataclasses.replace(self._companions, members=members, weights=weights)
        return self.add(name, folder, together)

    def give(self, option: str, given: Sequence[str], **more: Any) -> None:
        """Companions (`[NAME=]DIR`) for models that are on the shelf: `option` says what for (see companions.ROLES)."""
        field, able = ROLES[option]
        for text in given:
            names = [served.name for served in self if served.task in _OWNERS.get(option, ("translation",))]
            name, folder = owner_of(option, text, names)
            served = self.models[name]
            if getattr(served.beside, field) is not None:
                raise ConfigError(option, f"{name} is given two", "Give one")
            check_companion(option, served.folder, folder, able, same_tokens=field in SAME_TOKENS)
            if field == "fuse" and served.beside.compute == "bfloat16":
                _refuse_float32(f"{name} with {option} {folder}", [_section_of(folder)])
            beside = dataclasses.replace(served.beside, **{field: folder}, **more)
            self.models[name] = dataclasses.replace(served, beside=beside)

    def add(self, name: str, folder: Path, beside: Companions = NONE) -> Served:
        """Puts the model of a folder on the shelf. A wrong folder, and a name that is taken, are errors."""
        config = read_config(folder)
        capabilities = capabilities_of(config["model"])
        task: Task | None = next((task for capability, task in TASKS.items() if capability in capabilities), None)
        if task is None:
            what = f"a model that only {', '.join(sorted(capabilities)) or 'trains'} cannot be served"
            raise ModelError(folder, what, f"Give models for {', '.join(TASKS.values())}")
        if not NAME.fullmatch(name):
            what = f"{visible(name, 60)!r} cannot be a model's name"
            raise ConfigError("serve", what, "Give one of letters, digits, dots, hyphens and underscores: NAME=DIR")
        if name in self.models:
            what = f"two models are called {name!r}: {self.models[name].folder} and {folder}"
            raise ConfigError("serve", what, "Give one of them a name: NAME=DIR")
        self.models[name] = Served(name, folder, task, config, self, beside)
        return self.models[name]

    def __iter__(self) -> Iterator[Served]:
        return iter(self.models.values())

    def __len__(self) -> int:
        return len(self.models)

    def of(self, task: Task) -> list[Served]:
        """All models for a task, in the order in which they were given."""
        return [served for served in self if served.task == task]

    def get(self, name: str) -> Served | None:
        return self.models.get(name)

    @property
    def loaded(self) -> list[str]:
        """The names of the models whose weights are in memory, the one used last at the end."""
        with self._lock:
            return list(self._loaded)

    def load(self, served: Served) -> Any:
        """The model of an entry: loaded once, even where several threads ask at the same time."""
        with self._lock:
            if served.name in self._loaded:
                self._loaded.move_to_end(served.name)
                return self._loaded[served.name]
            waiting = self._loading.setdefault(served.name, threading.Lock())
        with waiting:
            with self._lock:
                if served.name in self._loaded:
                    return self._loaded[served.name]
            model = self._read_together(served) if served.beside.writes_together else self._read(served.folder)
            with self._lock:
                self._loaded[served.name] = model
                while self.most_loaded and len(self._loaded) > self.most_loaded:
                    self._loaded.popitem(last=False)
        for tell in self.on_load:
            tell(served)
        return model

    def _read_together(self, served: Served) -> Translator:
        return served.beside.load_together(served.folder).guarded(self._guard)


def _section_of(folder: Path) -> dict[str, Any]:
    return read_config(folder)["model"]


def _refuse_float32(name: str, sections: Sequence[dict[str, Any]]) -> None:
    from regard.tasks.lower_numbers import why_float32

    for section in sections:
        if (reason := why_float32(section)) is not None:
            what = f"{name} cannot be used in bfloat16: {reason}"
            raise ConfigError("--compute", what, "Serve it by itself, with --compute auto")


def _named(given: str | Path) -> tuple[str, Path, tuple[Path, ...], tuple[float, ...] | None]:
    """`NAME=DIR`, or a folder, whose name is the model's. A folder with = in its path that exists is a folder."""
    text = str(given)
    name, sign, rest = text.partition("=")
    if sign and not Path(text).exists() and "/" not in name:
        return name, *members_of(rest)
    if text == BUNDLED and not Path(text).exists():
        return BUNDLED, find_model(BUNDLED), (), None
    folder, members, weights = members_of(text)
    names = [one.resolve().name if one.exists() else one.name for one in (folder, *members)]
    return "-".join(names), folder, members, weights
