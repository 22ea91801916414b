"""The translator of a run folder: with CTranslate2 where that is asked for and can run the model, else with torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.core import config as configuration
from regard.core.accelerators import is_cpu
from regard.core.errors import CheckpointError, ConfigError, ModelError
from regard.core.number_formats import Asked, check_asked
from regard.core.search_config import SearchConfig
from regard.tasks.confidence import Calibration
from regard.tasks.lines import Habits
from regard.tasks.run_files import open_run
from regard.tasks.translation import Translator
from regard.tasks.translation_engines import ENGINES, Engine


def translator_of(folder: Path, device: str, engine: Engine, compute: Asked) -> Translator:
    """See `Translator.load`."""
    if engine not in ENGINES:
        raise ConfigError("engine", f"{engine!r} is not one of {', '.join(ENGINES)}", "Choose one of them")
    check_asked(compute)
    found, note = (None, "") if engine == "torch" else _load_fast(folder, device, engine, compute)
    if found is None:
        found = _load_torch(folder, device, compute, note)
    found.calibration = Calibration.load(folder)
    return found


def _load_torch(folder: Path, device: str, compute: Asked, note: str) -> Translator:
    """`note` is in words why CTranslate2 was not taken."""
    from regard.core.device import choose_device
    from regard.tasks.folder import load_model
    from regard.tasks.lower_numbers import in_numbers

    chosen = choose_device(device)
    model, tokenizers, config = load_model(folder)
    model = in_numbers(model, chosen, compute, note)
    translator = Translator(model, tokenizers, device=chosen, folder=folder, **settings_of(config))
    translator.engine_note = note
    return translator


def _load_fast(folder: Path, device: str, engine: Engine, compute: Asked) -> tuple[Translator | None, str]:
    """A translator with CTranslate2, or None and in words why there is none."""
    from regard.tasks.converted_run import open_engine, why_not_run

    only = engine == "ctranslate2"
    if not (is_cpu(device) or (only and device == "auto")):
        reason = _gpu_reason(device)
    else:
        opened = open_run(folder)
        reason = "bfloat16 is of torch" if compute == "bfloat16" else why_not_run(opened)
        if reason is None:
            settings = settings_of(opened.config)  # mistakes in these before anything is converted and kept
            try:
                fast = open_engine(folder, opened, compute)
            except (CheckpointError, ModelError) as error:  # weights that torch may read, or refuse in better words
                reason = f"{error.where}: {error.what}"
            else:
                tokenizers = opened.tokenizers
                made = Translator(None, tokenizers, device="cpu", folder=folder, fast=fast, only_fast=only, **settings)
                return made, ""
    if reason and only:
        raise ModelError("engine ctranslate2", reason, "Use engine auto or torch")
    if not reason:  # a GPU was feared, and torch knows of none
        return _load_fast(folder, "cpu", engine, compute)
    return None, reason


def settings_of(config: dict[str, Any]) -> dict[str, Any]:
    """What a run's configuration says about translating."""
    return {
        "search": configuration.build(SearchConfig, config.get("search", {}), "search"),
        "habits": Habits(config.get("usual_source_length", 0), config.get("one_sentence_lines", False)),
        "config": config,
        "backwards": config.get("data", {}).get("target_order") == "reversed",
    }


def _gpu_reason(device: str) -> str:
    """Why a device is not one for CTranslate2; empty where torch says that it is the CPU after all."""
    from regard.core.device import choose_device

    kind = choose_device(device).type
    return "" if kind == "cpu" else f"the model runs on {kind}, and CTranslate2 is used on CPUs only"
