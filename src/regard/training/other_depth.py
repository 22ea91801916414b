"""The weights of a model as those of one with more or fewer layers: which a shallower stack keeps, how a deeper one begins."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from regard.models.base import MODELS
from regard.tasks.folder import put_weights, weights_of
from regard.training.progress import Reporter

# a weight of a layer in a stack of them: decoder.3.attention.out.weight
LAYER = re.compile(r"(?P<stack>.+?)\.(?P<layer>\d+)\.(?P<rest>.+)")

Stacks = Mapping[str, Mapping[int, Sequence[str]]]  # names of weights by stack and layer


def put_at_depth(model: nn.Module, given: Mapping[str, Tensor], where: Path, report: Reporter) -> None:
    """Puts another model's weights into one that may have more or fewer layers, and tells which of them begin as which."""
    wanted = list(weights_of(model))
    if layers := in_words(given, wanted):
        report.say(f"The model begins with layers of the other one: {layers}.")
    put_weights(model, at_depth(given, wanted), where)


def at_depth(given: Mapping[str, Tensor], wanted: Sequence[str]) -> dict[str, Tensor]:
    """Another model's weights under the names of a model that differs from it in the depths of its stacks alone.

    A shallower stack has the first and the last of the other's layers, and others evenly between them: each does what it did,
    and is further from the next. Of a single layer it is the last, which is next to what reads the stack. A deeper stack has
    each of the other's layers once or several times in a row. What differs otherwise keeps its name, for who compares names.
    """
    theirs, changed = _stacks(given), _changed(given, wanted)
    found = {name: tensor for name, tensor in given.items() if _stack_of(name) not in changed}
    for stack, whose in changed.items():
        for layer, origin in enumerate(whose):
            found |= {f"{stack}.{layer}.{rest}": given[f"{stack}.{origin}.{rest}"] for rest in theirs[stack][origin]}
    return found


def in_words(given: Mapping[str, Tensor], wanted: Sequence[str]) -> str:
    """Which layers begin as which, counted from 1; empty where depths are the same."""
    theirs = _stacks(given)
    return "; ".join(
        f"{stack} {', '.join(str(origin + 1) for origin in whose)} of {len(theirs[stack])}"
        for stack, whose in sorted(_changed(given, wanted).items())
        if "." not in stack.removeprefix("body.")  # what belongs to layers has stacks of its own
    )


def differs_in_depth(config: Any, theirs: Mapping[str, Any]) -> bool:
    """Whether a model's configuration asks for other depths than that of the one that it starts from, by its saved values."""
    names = MODELS.get(config.name).depths
    usual = {name: getattr(type(config), name) for name in names}  # settings may be younger than a run
    saved = {name: theirs.get(name, usual[name]) for name in names}
    stacks = [name for name in names if name != "layers"] or names
    return any((getattr(config, name) or config.layers) != (saved[name] or saved["layers"]) for name in stacks)


def origins(theirs: int, ours: int) -> list[int]:
    """Which of so many layers each of ours begins as."""
    if ours == 1:
        return [theirs - 1]
    if ours < theirs:
        return [round(i * (theirs - 1) / (ours - 1)) for i in range(ours)]
    return [i * theirs // ours for i in range(ours)]


def _changed(given: Mapping[str, Tensor], wanted: Sequence[str]) -> dict[str, list[int]]:
    """Stacks of other depth, and whose layers theirs begin as."""
    theirs, ours = _stacks(given), _stacks(wanted)
    depths = {stack: (len(theirs[stack]), len(ours[stack])) for stack in ours if stack in theirs}
    return {stack: origins(*both) for stack, both in depths.items() if both[0] != both[1]}


def _stack_of(name: str) -> str | None:
    found = LAYER.fullmatch(name)
    return found["stack"] if found else None


def _stacks(names: Sequence[str] | Mapping[str, Tensor]) -> Stacks:
    stacks: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name in names:
        if found := LAYER.fullmatch(name):
            stacks[found["stack"]][int(found["layer"])].append(found["rest"])
    return stacks
