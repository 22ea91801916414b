"""The verb `plot`: pictures of a model at work, for papers and slides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.cli.outputs import check_outputs
from regard.core.errors import ConfigError, DataError
from regard.evaluation.plots import draw_curves, save_figure
from regard.looking.figures import alignment_figure, check_part, head_figure, heads_figure, positions_figure
from regard.looking.positions import position_tables
from regard.looking.session import SENTENCE
from regard.looking.tracing import make_trace
from regard.tasks.folder import METRICS
from regard.tasks.pretrained import find_model, load
from regard.training.log import read_metrics

KINDS = ("alignment", "heads", "head", "positions", "curves")


def run_plot(
    kind: str,
    text: str,
    model: Path | None,
    out: Path,
    part: str,
    layer: int,
    head: int,
    target: str | None,
    tokens: bool,
    device: str,
) -> None:
    """Draws one picture into a file, whose ending says in which format."""
    if kind not in KINDS:
        raise ConfigError("plot", f"there is no picture {kind!r}", f"Give one of: {', '.join(KINDS)}")
    check_outputs([out], [])
    folder = find_model(model)
    if kind == "curves":
        rows = read_metrics(folder / METRICS)
        if not rows:
            raise DataError(str(folder), "it has no log of training", "Give the folder of a run")
        figure: Any = draw_curves(rows)
    elif kind == "positions":
        task = load(folder, device)
        figure = positions_figure(position_tables(getattr(task, "model", None)))
    else:
        trace = make_trace(load(folder, device), text or SENTENCE, target)
        if kind == "alignment":
            figure = alignment_figure(trace, words=not tokens)
        elif kind == "heads":
            figure = heads_figure(trace, check_part(trace, part))
        else:
            name = check_part(trace, part)
            layers, heads = trace.part(name).weights.shape[:2]
            for what, number, most in (("layer", layer, layers), ("head", head, heads)):
                if not 1 <= number <= most:
                    raise ConfigError(f"--{what}", f"{name} has no {what} {number}", f"Give 1 to {most}")
            figure = head_figure(trace, name, layer - 1, head - 1)
    save_figure(figure, out)
    print(f"{out} is written.")
