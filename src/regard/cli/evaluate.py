"""The verb `evaluate`."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from regard.core.errors import DataError
from regard.core.files import write_bytes
from regard.evaluation.plots import draw_lengths, save_figure
from regard.evaluation.run import Evaluation, System, evaluate


def run_evaluate(
    src: Path,
    ref: Path,
    model: Path | None,
    against: Path | None,
    tokenized: bool,
    lowercase: bool,
    beam: int | None,
    plot: Path | None,
    out: Path | None,
    as_json: bool,
    device: str,
) -> None:
    for path in (plot, out):  # before the long work
        if path is not None and not path.absolute().parent.is_dir():
            raise DataError(path, "its folder does not exist", "Make the folder first")
    result = evaluate(model, src=src, ref=ref, against=against, tokenized=tokenized, lowercase=lowercase, beam=beam, device=device)
    if out is not None:
        write_bytes(out, "".join(line + "\n" for line in result.system.translations).encode())
    if plot is not None:
        systems = [result.system, *([result.other] if result.other is not None else [])]
        save_figure(draw_lengths({system.name: system.lengths for system in systems}), plot)
    if as_json:
        print(json.dumps(result.to_plain(), ensure_ascii=False))
    else:
        _show(result)


def _show(result: Evaluation) -> None:
    console = Console(highlight=False, soft_wrap=True)
    systems = [result.system, *([result.other] if result.other is not None else [])]
    for system in systems:
        _show_system(console, system)
    for test in result.tests:
        verdict = "significant" if test.significant() else "not significant"
        console.print(f"{test}: {verdict} at 5 %", markup=False)
    table = Table("source words", "sentences", *[f"BLEU {system.name}" for system in systems], title="BLEU by source length")
    for parts in zip(*[system.lengths for system in systems], strict=True):
        cells = [f"{part.bleu.value:.1f} [{part.bleu.low or 0:.1f}, {part.bleu.high or 0:.1f}]" for part in parts]
        table.add_row(parts[0].label, str(parts[0].sentences), *cells)
    console.print(table)


def _show_system(console: Console, system: System) -> None:
    console.print(system.name, markup=False)
    for score in system.scores.values():
        console.print(f"  {score}   {score.signature}", markup=False)
    bleu = system.scores["bleu"].details
    console.print(f"  lengths in tokens: {bleu['hyp_len']} written, {bleu['ref_len']} in the references", markup=False)
    if system.perplexity is not None:
        console.print(f"  perplexity {system.perplexity:.3f} per target token", markup=False)
