"""regard's models as folders that bare CTranslate2 opens: translators, GPTs, and BERTs without their heads.

What cannot be expressed is refused with the reason (engines/ctranslate2_limits.py, exchange/ctranslate2_gpt.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.core import config as configuration
from regard.core.errors import ConfigError, ModelError
from regard.core.files import write_bytes
from regard.engines.ctranslate2_limits import Compute, longest, why_not
from regard.engines.ctranslate2_model import converted
from regard.exchange.ctranslate2_bert import bert_files
from regard.exchange.ctranslate2_gpt import gpt_files, why_not_gpt
from regard.exchange.ctranslate2_readme import encoder_readme, generator_readme, translator_readme
from regard.exchange.ctranslate2_sides import encoder_side, generator_side, translator_side
from regard.exchange.export_plan import Plan, need
from regard.exchange.parity_sides import kind_of, live_model, plain_search
from regard.tasks.converted_run import vocabulary
from regard.tasks.folder import weights_of

COMPUTE: tuple[Compute, ...] = ("float32", "int8")
NO_HEADS = (
    "CTranslate2's encoders give the states of tokens (and the pooler's vector): BERT's masked-word and next-sentence heads "
    "are not in the file. Hidden states were compared."
)
OTHER_SEARCH = (
    "Translations were searched for with the same beam on both sides, log P divided by n^a; regard's own search divides by "
    "((5 + n) / 6)^a and guards against loops, so single translations may differ from `regard translate`."
)


def plan_ctranslate2(task: Any, compute: Compute) -> Plan:
    """How what `regard.load` gave becomes a CTranslate2 folder."""
    if compute not in COMPUTE:
        raise ConfigError("--quantise", f"{compute!r} is not one of {', '.join(COMPUTE)}", "Choose one of them")
    model = live_model(task)
    name = model.config.name
    tokens = [vocabulary(tokenizer) for tokenizer in (task.tokenizers.source, task.tokenizers.target)]
    weights = {key: tensor.detach().cpu().float().numpy() for key, tensor in weights_of(model).items()}
    if name == "gpt":
        _refuse(name, why_not_gpt(model.config))
        need("ctranslate2", "ctranslate2", "Install regard[export]")
        return Plan(
            fill=_filling(task, lambda: gpt_files(model.config, weights, tokens[1], compute)),
            side=lambda place: generator_side(place, tokens[1], model.config.context),
            measure="all",
            readme=generator_readme(model.config.context),
            hint="ctranslate2.Generator",
        )
    if name == "bert":
        need("ctranslate2", "ctranslate2", "Install regard[export]")
        return Plan(
            fill=_filling(task, lambda: bert_files(model.config, weights, tokens[1], compute)),
            side=lambda place: encoder_side(place, model.config.segments),
            measure="states",
            readme=encoder_readme(model.config),
            hint="ctranslate2.Encoder",
            notes=[NO_HEADS],
        )
    if kind_of(model) != "translates":
        _refuse(name, f"CTranslate2 has no model like {name!r} with its layer of labels or words")
    section = configuration.to_plain(model.config)
    _refuse(name, why_not(section))
    need("ctranslate2", "ctranslate2", "Install regard[export]")
    search = plain_search(task.search)
    most = longest(section)
    return Plan(
        fill=_filling(task, lambda: converted(section, weights, tokens[0], tokens[1], compute)),
        side=lambda place: translator_side(place, tokens, search, most, task.tokenizers.joint),
        measure="tokens",
        readme=translator_readme(search, most, task.tokenizers.joint),
        hint="ctranslate2.Translator",
        notes=[OTHER_SEARCH],
    )


def _refuse(name: str, reason: str | None) -> None:
    if reason is not None:
        raise ModelError(f"model {name!r}", reason, "Export it with --to onnx")


def _filling(task: Any, files: Callable[[], dict[str, bytes]]) -> Callable[[Path], None]:
    def fill(place: Path) -> None:
        for name, content in files().items():
            write_bytes(place / name, content)
        task.tokenizers.save(place)

    return fill
