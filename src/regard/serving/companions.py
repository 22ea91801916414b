"""Models that work with a served one: others that write with it, a draft that guesses for it, those that rerank its texts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.errors import ConfigError, ModelError
from regard.core.visible_text import visible
from regard.tasks.pretrained import capabilities_of, find_model
from regard.tasks.run_files import read_config

if TYPE_CHECKING:
    from regard.core.number_formats import Asked
    from regard.tasks.reranking import Reranker
    from regard.tasks.translation import Translator

MOST_AHEAD = 32
_WEIGHTED = re.compile(r"(?:(?P<weight>[0-9]{1,6}(?:\.[0-9]{1,6})?)\*)?(?P<folder>.+)", re.DOTALL)
ROLES = {  # option -> its field, and what the model must be able to do; None: the same as the one that it is for
    "--draft": ("draft", None),
    "--channel": ("channel", "translates"),
    "--rerank-lm": ("language_model", "continues"),
    "--rerank-with": ("other", "translates"),
    "--fuse": ("fuse", "continues"),
}
SAME_TOKENS = ("draft", "fuse")


@dataclasses.dataclass(frozen=True, eq=False)
class Companions:
    """The companions of one model, as folders. Two are never the same, so they can be a key."""

    members: tuple[Path, ...] = ()  # that write together with it
    weights: tuple[float, ...] | None = None  # of it and of these
    mix: str = "log"
    fuse: Path | None = None
    fusion: float = 0.1
    draft: Path | None = None
    ahead: int = 2
    channel: Path | None = None
    language_model: Path | None = None
    other: Path | None = None
    device: str = "auto"
    compute: Asked = "auto"  # of those that write together; drafts, and what reranks, are in float32

    @property
    def writes_together(self) -> bool:
        return bool(self.members or self.fuse is not None)

    @property
    def reranks(self) -> bool:
        return any(one is not None for one in (self.channel, self.language_model, self.other))

    def load_together(self, folder: Path) -> Translator:
        """The model of a folder, with those that write with it."""
        from regard.tasks.ensembles import ensemble

        about: dict[str, Any] = {"weights": self.weights, "mix": self.mix, "fuse": self.fuse, "fusion": self.fusion}
        return ensemble([folder, *self.members], self.device, compute=self.compute, **about)

    def load_draft(self) -> Any:
        """A Translator or a TextModel."""
        from regard.tasks.pretrained import load

        assert self.draft is not None
        return load(self.draft, self.device, engine="torch")

    def load_reranker(self) -> Reranker:
        from regard.tasks.pretrained import load
        from regard.tasks.reranking import Reranker

        folders = (self.channel, self.language_model, self.other)
        channel, beside, other = (one and load(one, self.device, engine="torch") for one in folders)
        return Reranker(channel=channel, language_model=beside, other=other)


NONE = Companions()


def members_of(given: str) -> tuple[Path, tuple[Path, ...], tuple[float, ...] | None]:
    """`DIR`, or several joined by `+`, each perhaps with a weight (`2*DIR`): the first, the others, and the weights."""
    if "+" not in given or Path(given).exists():
        return find_model(given or None), (), None
    found, weights = [], []
    for part in given.split("+"):
        match = _WEIGHTED.fullmatch(part)
        if match is None:
            raise ConfigError("serve", f"{visible(given, 60)!r} has an empty part", "Write DIR+DIR, or 2*DIR+DIR")
        found.append(find_model(match["folder"]))
        weights.append(match["weight"])
    known = tuple(float(one or 1) for one in weights) if any(weights) else None
    first, *others = found
    for other in others:
        check_companion("a member", first, other, "translates", same_tokens=True)
    return first, tuple(others), known


def check_companion(what: str, folder: Path, other: Path, able: str | None, *, same_tokens: bool) -> None:
    """Raises unless the model of `other` is of the right kind and, where it must, has the tokens of that of `folder`."""
    kinds = capabilities_of(read_config(folder)["model"])
    able = able or next((one for one in ("translates", "continues") if one in kinds), "translates")
    if able not in capabilities_of(read_config(other)["model"]):
        wanted = {"translates": "translates", "continues": "is a language model"}[able]
        raise ModelError(other, f"as {what} it must be one that {wanted}", "Give another run")
    if not same_tokens:
        return
    from regard.data.tokenizers import TokenizerPair

    ours, theirs = TokenizerPair.load(folder), TokenizerPair.load(other)
    sides = ("source", "target") if able == "translates" else ("target",)
    for side in sides:
        if getattr(ours, side).fingerprint != getattr(theirs, side).fingerprint:
            said = f"as {what} it must have the {side} tokenizer of {folder}"
            raise ModelError(other, said, "Train it with that (tokenizer.folder=RUN)")


def check_numbers(ahead: int, fusion: float, mix: str) -> None:
    if not 1 <= ahead <= MOST_AHEAD:
        raise ConfigError("--ahead", f"{ahead} is not from 1 to {MOST_AHEAD}", "2 is usual")
    if not 0 <= fusion <= 10:  # written so that nan fails too
        raise ConfigError("--fusion", f"{fusion} is not from 0 to 10", "0.1 is usual")
    if mix not in ("log", "mean"):
        raise ConfigError("--mix", f"{visible(mix, 20)!r} is neither log nor mean", "Choose one of them")


def owner_of(option: str, given: str, names: Sequence[str]) -> tuple[str, Path]:
    """The model that `[NAME=]DIR` is for, of those that it can be for, and the folder."""
    name, sign, rest = given.partition("=")
    if sign and name in names:
        return name, find_model(rest)
    if sign and not Path(given).exists():
        known = ", ".join(names) or "none"
        raise ConfigError(option, f"there is no such model as {visible(name, 60)!r} for it", f"There are: {known}")
    if len(names) != 1:
        known = f"{', '.join(names)}" or "none that it can be for"
        raise ConfigError(option, "it does not say which model it is for", f"Write NAME=DIR; there are: {known}")
    return names[0], find_model(given)
