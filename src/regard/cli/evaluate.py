"""The verb `evaluate`."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.cli.outputs import check_outputs
from regard.cli.translate import in_options, one_line
from regard.core.errors import ConfigError
from regard.core.files import write_bytes
from regard.evaluation.plots import FORMATS, draw_lengths, save_figure
from regard.evaluation.run import Evaluation, System, evaluate


def run_evaluate(
    src: Path,
    ref: Path,
    model: Path | None,
    against: Path | None,
    tokenized: bool,
    lowercase: bool,
    metrics: str,
    beam: int | None,
    plot: Path | None,
    out: Path | None,
    as_json: bool,
    tag: str,
    device: str,
) -> None:
    _check_outputs(plot, out, inputs=[src, ref, *([against] if against is not None else [])])
    try:
        result = evaluate(
            model,
            src=src,
            ref=ref,
            against=against,
            tokenized=tokenized,
            lowercase=lowercase,
            metrics=metrics or None,
            beam=beam,
            tag=tag,
            device=device,
        )
    except ConfigError as error:
        raise (in_options(error) if beam is not None else error) from None
    if out is not None:
        write_bytes(out, "".join(one_line(text) + "\n" for text in result.system.translations).encode())
    if plot is not None:
        systems = [result.system, *([result.other] if result.other is not None else [])]
        save_figure(draw_lengths({system.name: system.lengths for system in systems}), plot)
    if as_json:
        print(json.dumps(result.to_plain(), ensure_ascii=False))
    else:
        _show(result)


def _check_outputs(plot: Path | None, out: Path | None, inputs: list[Path]) -> None:
    """Before the long work: the files can be written, and none of them is one that is read."""
    if plot is not None and plot.suffix.lower() not in FORMATS:
        raise ConfigError(plot, f"{plot.suffix or 'no suffix'!r} is no format of pictures", f"Use {', '.join(FORMATS)}")
    check_outputs((plot, out), inputs)


def _show(result: Evaluation) -> None:
    console = Console(highlight=False, soft_wrap=True)
    systems = [result.system, *([result.other] if result.other is not None else [])]
    for system in systems:
        _show_system(console, system)
    for test in result.tests:
        verdict = "significant at 5 % by both tests" if test.significant() else "not significant at 5 % by both tests"
        console.print(f"{test}: {verdict}", markup=False)
    table = Table("source words", "sentences", title="BLEU by source length")
    for system in systems:
        table.add_column(Text(f"BLEU {system.name}"))  # not markup: a folder may have brackets in its name
    for parts in zip(*[system.lengths for system in systems], strict=True):
        cells = [f"{part.bleu.value:.1f} [{part.bleu.low or 0:.1f}, {part.bleu.high or 0:.1f}]" for part in parts]
        table.add_row(parts[0].label, str(parts[0].sentences), *cells)
    console.print(table)


def _show_system(console: Console, system: System) -> None:
    console.print(system.name, markup=False)
    for score in system.scores.values():
        console.print(f"  {score}   {score.signature}", markup=False)
    if "bleu" in system.scores:
        bleu = system.scores["bleu"].details
        said = f"  lengths in tokens: {bleu['hyp_len']} written, {bleu['ref_len']} in the references"
        console.print(said, markup=False)
    if system.perplexity is not None:
        console.print(f"  perplexity {system.perplexity:.3f} per target token", markup=False)
