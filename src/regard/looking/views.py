"""Which views a model has: a view either shows something, or says why it cannot."""

from __future__ import annotations

from typing import Any, Literal, get_args

from regard.looking.positions import position_tables

View = Literal[
    "alignment", "heads", "steps", "recurrent", "local", "beam", "positions", "ponder", "convolution", "vectors",
    "language", "training", "evaluation", "compare", "pooling",
]  # fmt: skip
VIEWS: tuple[View, ...] = get_args(View)
TRANSFORMERS = ("transformer", "universal", "gpt", "bert")
RECURRENT = ("sutskever", "cho", "bahdanau", "luong", "gnmt", "rnnlm", "lstmlm", "recurrent", "label-writer")
CONVOLUTIONS = ("convs2s", "kim", "dcnn")
CONTEXTUAL = (*TRANSFORMERS, *RECURRENT[:-1], "convs2s")  # in which a word's vector changes with its neighbours


def views_of(task: Any, name: str, *, trained: bool) -> dict[str, bool | str]:
    """For each view True, or the reason why a model lacks it. `trained`: its run's log of training is there."""
    model = getattr(task, "model", None)
    capabilities = getattr(model, "capabilities", frozenset())
    self_attending = name.startswith(TRANSFORMERS)
    local = name == "luong" and getattr(getattr(model, "config", None), "attention", "global") != "global"
    reasons: dict[View, tuple[bool, str]] = {
        "alignment": ("attends" in capabilities, "it looks at no source while it writes"),
        "heads": (self_attending or "attends" in capabilities, "it has no attention"),
        "steps": (self_attending or "attends" in capabilities, "it has no attention"),
        "recurrent": (name.startswith(RECURRENT), "it has no recurrent layers"),
        "local": (local, "its attention is not local"),
        "beam": (
            "translates" in capabilities and "plans" not in capabilities,
            "it searches once for each length" if "plans" in capabilities else "it does not search for a translation",
        ),
        "positions": (
            model is not None and bool(position_tables(model)),
            "it is told nothing of positions" if self_attending else "it reads words in order and needs no positions",
        ),
        "ponder": (
            name == "universal" and getattr(getattr(model, "config", None), "halting", "none") != "none",
            "it takes as many steps for every word",
        ),
        "convolution": (
            name.startswith(CONVOLUTIONS),
            "its kernels change with the length of the sentence, and are not drawn"
            if name.startswith("rctm")
            else "it has no convolutions",
        ),
        "vectors": (True, ""),
        "language": (
            "continues" in capabilities
            or ("fills" in capabilities and bool(getattr(getattr(model, "config", None), "head", True))),
            "it guesses no next or hidden words",
        ),
        "training": (trained, "its folder has no log of training"),
        "evaluation": ("translates" in capabilities, "its folder has no translations of a test text"),
        "compare": ("translates" in capabilities, "two translators are needed"),
        "pooling": (True, ""),
    }
    return {view: True if able else f"not applicable to {name}: {why}" for view, (able, why) in reasons.items()}
