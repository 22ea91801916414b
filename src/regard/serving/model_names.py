"""Which model a request names, for facades in which it does."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from regard.core.visible_text import visible
from regard.serving.fields import SHOWN, wrong
from regard.serving.refusals import Refused
from regard.serving.shelf import Served, Shelf, Task


@dataclasses.dataclass(frozen=True)
class ModelName:
    """The name of a model for some tasks. An unknown one is not found (404); one for something else is wrong (400)."""

    shelf: Shelf
    tasks: tuple[Task, ...]
    many: ClassVar[bool] = False

    @property
    def able(self) -> list[Served]:
        return [served for served in self.shelf if served.task in self.tasks]

    def fits(self, value: Any) -> bool:
        return isinstance(value, str)

    def read(self, value: Any, where: str) -> Served:
        if not isinstance(value, str):
            raise wrong(where, "it is not a text", f"Send {self.words}")
        served = self.shelf.get(value)
        if served is None:
            what = f"the model `{visible(value, SHOWN)}` does not exist"
            raise Refused(404, what, f"Ask for {self.words}", kind="not_found", field=where)
        if served.task not in self.tasks:
            raise wrong(where, f"the model `{value}` is for {served.task}", f"Ask for {self.words}")
        return served

    def read_text(self, texts: Sequence[str], where: str) -> Served:
        return self.read(texts[0], where)

    def schema(self) -> dict[str, Any]:
        names = [served.name for served in self.able]
        return {"type": "string", "enum": names} if names else {"type": "string", "maxLength": SHOWN}

    @property
    def words(self) -> str:
        names = ", ".join(served.name for served in self.able[:20])
        return f"one of {names}" if names else f"no model: none here is for {' or '.join(self.tasks)}"

    def only(self, named: Served | None) -> Served:
        """The model that was named, or the only one that can be meant."""
        if named is not None:
            return named
        if len(self.able) != 1:
            what = "`model`: none is named" if self.able else f"no model here is for {' or '.join(self.tasks)}"
            raise Refused(400 if self.able else 404, what, f"Name {self.words}", field="model")
        return self.able[0]
