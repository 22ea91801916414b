"""From the context to what the output layer reads, in recurrent translators: Luong's h~, Bahdanau's maxout, GNMT's upper layers.

Each is computed from its equation, and must be what the model itself gave.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import ModelError
from regard.looking.steps import Shown, Step, numbers


class Moment(NamedTuple):
    """One step of a decoder: its state before and after, the token that it read, the context [n] and what it gave [D]."""

    before: Any
    after: Any
    token: Tensor
    context: Tensor
    hidden: Tensor


def readout_steps(model: Any, name: str, moment: Moment) -> list[Step]:
    made = {"luong": _luong, "bahdanau": _bahdanau, "gnmt": _gnmt}.get(name)
    if made is None:
        return []
    steps, hidden = made(model, moment)
    if not np.allclose(numbers(hidden), numbers(moment.hidden), atol=1e-5):
        raise ModelError("the steps", "they do not lead to what the model gave", "Report this")
    return steps


def _luong(model: Any, moment: Moment) -> tuple[list[Step], Tensor]:
    h = moment.after.h[-1][0, 0]
    both = torch.cat((moment.context, h))
    product = model.combine.weight @ both
    state = product.tanh()
    about = "Context and state side by side, mixed by one matrix. "
    about += "It is also read by the next step." if model.config.input_feeding else "No later step reads it."
    shown = [Shown("c", numbers(moment.context)), Shown("h", numbers(h))]
    shown += [Shown("W_c [c; h]", numbers(product)), Shown("h~", numbers(state))]
    return [Step("readout", "Attentional state", "h~ = tanh(W_c [c; h])", about, shown)], state


def _bahdanau(model: Any, moment: Moment) -> tuple[list[Step], Tensor]:
    previous = model.config.readout_from == "previous"
    s = (moment.before if previous else moment.after).s[0, 0]
    word = model.target_embedding(moment.token)
    from_state = model.readout_state(s)
    from_word = model.readout_word(word)
    from_context = model.readout_context(moment.context)
    t = from_state + from_word + from_context
    pairs = t.unflatten(-1, (-1, 2))
    largest = torch.maximum(pairs[:, 0], pairs[:, 1])
    when = "i−1" if previous else "i"
    readout = Step(
        "readout",
        "Readout",
        f"t~ = U_o s_{{{when}}} + V_o E y_{{i−1}} + C_o c_i",
        "State, last word and context, each through a matrix of its own, added up.",
        [
            Shown("U_o s", numbers(from_state)),
            Shown("V_o E y", numbers(from_word)),
            Shown("C_o c", numbers(from_context)),
            Shown("t~", numbers(t)),
        ],
    )
    maxout = Step(
        "maxout",
        "Maxout",
        "t_k = max(t~_{2k−1}, t~_{2k})",
        "Of every two numbers the larger one.",
        [Shown("first and second of each pair", numbers(pairs.T)), Shown("t", numbers(largest))],
    )
    return [readout, maxout], largest


def _gnmt(model: Any, moment: Moment) -> tuple[list[Step], Tensor]:
    x = moment.after.m[0][0, 0]
    shown = [Shown("c", numbers(moment.context)), Shown("layer 1", numbers(x))]
    added = 0
    for layer, m in enumerate(moment.after.m[1:], start=2):
        y = m[0, 0]
        if 0 < model.config.residual <= layer:
            shown.append(Shown(f"layer {layer}, LSTM", numbers(y)))
            added += 1
        x = y + x if 0 < model.config.residual <= layer else y
        shown.append(Shown(f"layer {layer}", numbers(x)))
    formula = "mⁱ = LSTMⁱ([xⁱ⁻¹; c])" + (",  xⁱ = mⁱ + xⁱ⁻¹" if added else ",  xⁱ = mⁱ")
    about = "Every layer above the first reads the context, too."
    if added:
        about += f" From layer {model.config.residual} on, what a layer read is added to what it gives."
    return [Step("readout", "Up through the layers", formula, about, shown)], x
