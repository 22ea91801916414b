"""One word in two sentences: the vectors of its tokens in every layer, of any model in which words change with their neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.errors import ModelError
from regard.looking.steps import numbers
from regard.looking.texts import words_of
from regard.looking.trace import Trace
from regard.looking.tracing import make_trace
from regard.looking.transformer_steps import layer_states
from regard.looking.views import CONTEXTUAL
from regard.looking.watching import Watched
from regard.models.convs2s import HALVED
from regard.tasks.masked import MaskedText
from regard.tasks.translation import Translator

Layers = dict[str, Float[np.ndarray, "P D"]]  # by name, from the bottom
EMBEDDING, INPUT = "embedding", "input"  # the input of the lowest layer knows its place, too


class LayersRead:
    """Reads texts and gives the state of each token in each layer; of a translator, what its encoder makes of the source."""

    def __init__(self, task: Any):
        self.task = task
        self.names: list[str] = []

    def layers(self, text: str) -> tuple[list[tuple[str, int, int]], list[Float[np.ndarray, "P D"]]]:
        """Words with begin and end of their tokens, and the tokens' states, 0 being the embeddings."""
        if isinstance(self.task, MaskedText):
            words, states = self.task.layers(text)
            self.names = [INPUT, *(f"layer {i}" for i in range(1, len(states)))]
            return list(words), states
        architecture = str(getattr(getattr(getattr(self.task, "model", None), "config", None), "name", ""))
        if not architecture.startswith(CONTEXTUAL):
            what = "a word has the same vector in every sentence here"
            raise ModelError("the model", what, "Choose a model with attention or recurrent layers")
        trace = make_trace(self.task, text, "" if isinstance(self.task, Translator) else None)
        found = states_of(trace)
        shown = trace.source
        if any(len(states) != len(shown.tokens) for states in found.values()):
            raise ModelError("the model", "its layers have no state for each token", "Choose another model")
        self.names = list(found)
        spans = zip(words_of(shown), shown.words, strict=True)
        words = [(word, begin, end) for word, (begin, end) in spans if not shown.special[begin]]
        return words, list(found.values())


@torch.inference_mode()
def states_of(trace: Trace) -> Layers:
    """The states of the source's tokens in every layer that reads them."""
    model, again = trace.model, trace.again
    if str(model.config.name) == "convs2s":
        return _convolved(model, again)
    reading = [name for name in ("encoder.self", "reader.self", "decoder.self") if name in trace.parts]
    if reading:
        return _numbered(layer_states(model, again, reading[0]))
    tables = {name: module for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
    with Watched(tables) as seen:
        again()
    rows = [seen.output(name) for name in tables if seen.calls[name]]
    length, found = len(trace.source.tokens), Layers()
    if own := [one for one in rows if one.shape[:2] == (1, length)]:
        found[EMBEDDING] = numbers(own[0][0])
    for name, layer in trace.recurrent().items():
        if layer.tokens == "source" and "state" in layer.values:
            found[name] = layer.values["state"]
    return found


def _numbered(states: list[Tensor]) -> Layers:
    return {INPUT if i == 0 else f"layer {i}": numbers(state[0]) for i, state in enumerate(states)}


def _convolved(model: Any, again: Any) -> Layers:
    """h = (GLU(convolution) + h) √½ in every layer (models/convs2s.py)."""
    with Watched({"in": model.encoder_in, **{str(i): module for i, module in enumerate(model.encoder)}}) as seen:
        again()
    states = [seen.output("in")]
    for i in range(len(model.encoder)):
        states.append((nn.functional.glu(seen.output(str(i))) + states[-1]) * HALVED)
    return _numbered(states)
