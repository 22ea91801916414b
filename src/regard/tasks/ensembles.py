"""Translators that write together, and a language model beside them: the runs of several folders as one translator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.core.device import choose_device
from regard.core.errors import ModelError
from regard.core.number_formats import Asked, check_asked
from regard.search.ensembles import MOST_MEMBERS, Ensemble
from regard.tasks.folder import load_model
from regard.tasks.lower_numbers import in_numbers
from regard.tasks.pretrained import find_model
from regard.tasks.translation import Translator
from regard.tasks.translator_loading import settings_of


def ensemble(
    folders: Sequence[str | Path],
    device: str = "auto",
    *,
    weights: Sequence[float] | None = None,
    mix: str = "log",
    fuse: str | Path | None = None,
    fusion: float = 0.1,
    compute: Asked = "auto",
) -> Translator:
    """The models of several runs as one translator, with the search settings of the first.

    `mix`: the geometric ("log") or the arithmetic ("mean") mean of their distributions, by `weights` (equal ones, unless given).
    `fuse`: the run of a language model of the target language, whose log-probabilities are added, times `fusion`.
    All were trained with the same tokenizers; their architectures may differ. All compute in the same numbers.
    """
    check_asked(compute)
    if not 1 <= len(folders) <= MOST_MEMBERS:
        raise ModelError("ensemble", f"{len(folders)} models were given", f"Give from 1 to {MOST_MEMBERS}")
    chosen = choose_device(device)
    first, tokenizers, config = load_model(find_model(folders[0]))
    models = [first]
    for folder in folders[1:]:
        model, own, its = load_model(find_model(folder))
        if settings_of(its)["backwards"] != settings_of(config)["backwards"]:
            what = f"it writes in the other direction than {folders[0]}"
            raise ModelError(str(folder), what, "Rerank with it instead (regard translate --rerank-with)")
        for side in ("source", "target"):
            if getattr(own, side).fingerprint != getattr(tokenizers, side).fingerprint:
                what = f"its {side} tokenizer is another than that of {folders[0]}"
                raise ModelError(str(folder), what, "Train the runs with one tokenizer")
        models.append(model)
    beside = None
    if fuse is not None:
        beside, own, _ = load_model(find_model(fuse))
        if own.target.fingerprint != tokenizers.target.fingerprint:
            what = f"its tokenizer is not the target's of {folders[0]}"
            raise ModelError(str(fuse), what, "Train it with that run's tokenizer (tokenizer.folder=RUN)")
    models = [in_numbers(model, chosen, compute) for model in models]
    beside = None if beside is None else in_numbers(beside, chosen, compute)
    together = Ensemble(models, weights, mix, beside, fusion).eval()
    return Translator(together, tokenizers, device=chosen, **settings_of(config))
