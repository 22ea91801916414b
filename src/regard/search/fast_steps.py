"""Steps made of few kernels, for models whose decoders are known part by part (models/decoder_parts).

On CUDA a short kernel takes as long as it takes to start the next: a step of some hundred operations is slow however little they
do. Here a step reads what was written and embeds it in one kernel, goes through each layer in a few (layers/decoding), and ranks,
writes and keeps books in one more, of beams two. It finds what the plain step finds, up to rounding.

Where a step needs more than the likeliest tokens (forced prefixes, sampling, n-gram guards), only the decoder is taken from here.
The first step of each kind is compared with the model's own (fast_trial); if they differ, or a kernel does not run then or later,
there is one warning, and the model's own steps are taken for good. Which kernels a step is made of says
layers/decoding/kernel_choice; those of whole sub-layers, and early starts, are left out first.
"""

from __future__ import annotations

import dataclasses
import logging
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.types import BOS, PAD, UNK
from regard.layers.attention.cache import CacheState
from regard.layers.decoding import kernel_choice, triton_here, whole_layers
from regard.layers.decoding.decoder import Decoder
from regard.layers.decoding.many_logits import many_logits
from regard.layers.decoding.products import FEWEST, Linear
from regard.layers.decoding.residual_norm import add_and_normalise
from regard.layers.decoding.vocabulary import Logits, group_of, logits
from regard.models.decoder_parts import decoder_parts, source_parts
from regard.search import fast_trial, fused_beam, fused_greedy, fused_reading
from regard.search.beam import BeamSearch
from regard.search.constraints import Constraints
from regard.search.fused_ranking import likeliest
from regard.search.greedy import GreedySearch
from regard.search.hypothesis import Scores

log = logging.getLogger(__name__)
DEVICES = {"cuda"}  # kinds of devices where this pays
FEW_ROWS = 32  # rows up to here have kernels with the products in them
MOST_GROUPS = 4096  # of tokens, that a program looks at to rank them

_TRIED: weakref.WeakKeyDictionary[nn.Module, dict[Any, bool]] = (
    weakref.WeakKeyDictionary()
)  # kinds of steps: which work
_LEFT_OUT: weakref.WeakKeyDictionary[nn.Module, set[str]] = (
    weakref.WeakKeyDictionary()
)  # parts of `Kernels` that do not
_INSTEAD = {
    "looks": "logits are read by a kernel of their own",
    "whole": "sub-layers are taken in several kernels",
    "early": "kernels wait for each other to end",
    "tiles": "rows meet the vocabulary one by one",
    "narrow": "programs of attention are wide",
    "aligned": "logits lie without gaps",
}  # of parts of `Kernels`, in the order in which they are left out


def works(model: nn.Module) -> bool:
    """Whether steps of a model were tried, and all came out right."""
    tried = _TRIED.get(model)
    return bool(tried) and all(tried.values())


def failed(model: nn.Module) -> bool:
    """Whether some did not."""
    return not all(_TRIED.get(model, {}).values())


def left_out(model: nn.Module) -> set[str]:
    """What of `Kernels` did not, so that others are taken in its place."""
    return _LEFT_OUT.get(model, set())


def forget(model: nn.Module) -> None:
    """Lets a model be tried again."""
    _TRIED.pop(model, None)
    _LEFT_OUT.pop(model, None)


def fast_steps(
    model: Any, method: Any, constraints: Constraints, device: torch.device, capacity: int
) -> FastSteps | None:
    """The steps of a model under a rule; None where they are not asked for, or there are none for it."""
    if not constraints.config.fused or failed(model):
        return None
    decoder, why = None, _missing(constraints, device)
    if why is None:
        decoder = decoder_parts(model, capacity)
        why = f"there are no such kernels for this {type(model).__name__}"
    if decoder is None:
        if constraints.config.fused != "auto":  # then nobody asked
            _warn(why)
        return None
    return FastSteps(model, decoder, method, constraints)


def _missing(constraints: Constraints, device: torch.device) -> str | None:
    """Why kernels cannot be used here; None: they can."""
    if device.type not in DEVICES:
        return f"it is for {' and '.join(sorted(DEVICES))}, and not for this device, {device.type}"
    if device.type == "cuda" and not triton_here.usable("cuda"):
        return "there is no Triton, or no GPU that it has kernels for"
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return "its kernels do not know autocast"
    return "its kernels keep no weights of attention, which coverage needs" if constraints.config.coverage else None


@cache
def _warn(why: str, instead: str = "the model's own steps are taken") -> None:
    """Once for each reason."""
    log.warning("search.fused: %s; %s", why, instead)


class FastSteps:
    """The steps of one model under one rule. They change `work` and `state` in place."""

    def __init__(self, model: Any, decoder: Decoder, method: Any, constraints: Constraints):
        self._model = weakref.ref(model)
        self.decoder, self.method, self.constraints = decoder, method, constraints

    @property
    def model(self) -> Any:
        return self._model()

    def usable(self, work: Any, memory: Any, state: Any) -> bool:
        """Whether steps of this kind come out right; tried once, with the search that is under way, which that does not change.

        What the model's own step writes into the state is written again by the next one, whichever it is.
        """
        if failed(self.model):
            return False
        tried, kind = _TRIED.setdefault(self.model, {}), self._kind(work, memory, state)
        if kind not in tried:
            right = self._attempt(lambda: fast_trial.is_right(self, work, memory, state), work, memory, state)
            if right is None:  # nothing to compare: left out this time
                return False
            if not right:
                why = "its kernels do not find here what the model finds"
                if self._do_without(self.kernels(work, memory, state), why):
                    return self.usable(work, memory, state)
                _warn(why)
            tried[kind] = right
        return tried[kind]

    def _kind(self, work: Any, memory: Any, state: CacheState) -> tuple[Any, ...]:
        """What decides which kernels are compiled."""
        rows, config = work.live.total.numel(), self.constraints.config
        kernels = self.kernels(work, memory, state)
        size = 0
        if kernels.whole or rows <= FEWEST:
            size = rows
        elif rows <= FEW_ROWS:
            size = triton_here.power_of_2(rows)
        dtype = self.decoder.embedding.dtype
        return size, config.hypotheses, config.stop, self.ranks, dtype, kernels

    def kernels(self, work: Any, memory: Any, state: CacheState) -> kernel_choice.Kernels:
        """What a step is made of. All that is computed of it, and its trial, is to be done `using` this."""
        rows, source = work.live.total.numel(), source_parts(memory)
        without = left_out(self.model) | (set() if whole_layers.fits(self.decoder, rows, source, state) else {"whole"})
        device, beams = work.live.total.device, work.live.total.shape[-1]
        return kernel_choice.choose(rows, device, source=source is not None, beams=beams, without=without)

    def _do_without(self, kernels: kernel_choice.Kernels, why: str) -> bool:
        """Whether there are other kernels to be tried: what may be the cause is left out, one thing at a time."""
        for name, instead in _INSTEAD.items():
            if getattr(kernels, name):
                _LEFT_OUT.setdefault(self.model, set()).add(name)
                _warn(why, instead)
                return True
        return False

    def _attempt(self, function: Callable[[], Any], work: Any, memory: Any, state: CacheState) -> Any:
        """None where kernels do not run: nothing that counts has been changed then, for only a step's last kernel does."""
        kernels = self.kernels(work, memory, state)
        try:
            with kernel_choice.using(kernels):
                return function()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever keeps a compiler from working here: there is another way
            why = f"its kernels do not run here ({type(error).__name__}: {str(error)[:300]})"
            if self._do_without(kernels, why):
                return self._attempt(function, work, memory, state)
            _warn(why)
            _TRIED.setdefault(self.model, {})["runs"] = False
            return None

    @property
    def ranks(self) -> bool:
        """Whether a step can be taken whole, rather than the decoder's part of it alone."""
        method = self.method
        if method.whole or not self.constraints.few or getattr(method, "watch", None) is not None:
            return False
        return type(method) is GreedySearch or (type(method) is BeamSearch and method.width <= fused_beam.MOST_BEAM)

    def hidden(self, work: Any, memory: Any, state: CacheState) -> Float[Tensor, "B K D"] | None:
        """What the model's own step gives; the state has still to advance. None: kernels do not run."""
        return self._attempt(lambda: self.states(work, memory, state), work, memory, state)

    def step(self, work: Any, memory: Any, state: CacheState) -> tuple[Any, CacheState] | None:
        """A whole step. None: kernels do not run."""
        return self._attempt(lambda: self.extend(work, self.logits(work, memory, state), state), work, memory, state)

    def states(self, work: Any, memory: Any, state: CacheState) -> Float[Tensor, "B K D"]:
        x, norm, _ = self._states(work, memory, state)
        return add_and_normalise(x, None, norm)[1].unflatten(0, work.live.total.shape)

    def _states(self, work: Any, memory: Any, state: CacheState) -> tuple[Tensor, Any, Tensor]:
        """States, the norm that they still have to go through, and bans."""
        x, bans = fused_reading.read(self.decoder, self.constraints, work, state)
        source = source_parts(memory)
        if kernel_choice.chosen().whole:
            return whole_layers.whole_layers(self.decoder, x, source, state), None, bans
        if len(x) <= FEW_ROWS:
            return *self.decoder.few_rows(x, source, state), bans
        return self.decoder.many_rows(x, source, state), None, bans

    def logits(self, work: Any, memory: Any, state: CacheState) -> Logits:
        """Of the next tokens, -inf where they may not be written."""
        x, norm, bans = self._states(work, memory, state)
        linear, also = Linear(*self.model.output.matrix()), UNK if self.constraints.config.ban_unknown else PAD
        if len(x) <= FEW_ROWS and len(linear.weight) <= MOST_GROUPS * group_of(*x.shape):
            return logits(x, linear, norm, bans, BOS + 1, also)
        return many_logits(add_and_normalise(x, None, norm)[1], linear, bans, BOS + 1, also)

    def extend(self, work: Any, found: Logits, state: CacheState) -> tuple[Any, CacheState]:
        """Writes a token of every hypothesis: what a step does last, and all that it changes for good."""
        if not triton_here.runs_on(found.values):
            return self.extend_plainly(work, found, state)
        vocabulary = found.values.shape[1]
        if isinstance(self.method, BeamSearch):
            candidates = likeliest(found, min(self.method.candidates, vocabulary))
            fused_beam.extend(self.method, self.constraints, work, candidates, vocabulary, state)
        else:
            fused_greedy.write_likeliest(work, found, state.positions)
        return work, dataclasses.replace(state, filled=state.filled + 1)

    def extend_plainly(self, work: Any, found: Logits, state: CacheState) -> tuple[Any, CacheState]:
        """The same by the rule's own operations."""
        rows = work.live.total.shape
        scores = Scores(found.values.unflatten(0, rows), found.normaliser().unflatten(0, rows))
        new, parents = self.method.extend(work, scores, None)
        state = state.advanced(1)
        return new, state if parents is None else state.reorder(parents)
