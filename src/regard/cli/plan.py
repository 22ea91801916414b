"""The verb `plan`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import typer

from regard.core.errors import ConfigError
from regard.training.planning import Plan, plan
from regard.training.progress import Reporter, clock


def run_plan(
    words: Sequence[str],
    files: dict[str, str],
    allow: Sequence[str],
    start_from: Path | None,
    seconds: float,
    fit: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    names, settings = [w for w in words if "=" not in w], [w for w in words if "=" in w]
    if len(names) > 1:
        advice = "Give files as --src and --tgt, settings as section.key=value without spaces"
        raise ConfigError("plan", f"more than one recipe is given ({', '.join(names)})", advice)
    found = plan(
        names[0] if names else None,
        settings=settings,
        allow=allow,
        start_from=start_from,
        seconds=seconds,
        fit=fit,
        report=Reporter(quiet),
        **files,
    )
    if as_json:
        typer.echo(json.dumps(found.to_plain()))
        return
    for line in lines_of(found):
        typer.echo(line)


def _how(found: Plan) -> str:
    if found.fused:
        return ", layers by kernels of their own"
    return ", layers compiled" if found.compiled else ""


def lines_of(found: Plan) -> list[str]:
    """A plan, for people."""
    rows, source, target = found.largest_batch
    lines = [
        f"Model       {found.model}, {found.parameters:,} parameters, vocabulary {_sizes(found.vocabulary)}",
        f"Device      {found.device}{_how(found)}",
        f"Batch       train.batch_tokens={found.batch_tokens}; the largest of {found.batches_looked_at:,}: "
        f"{rows} rows of {source} source and {target} target tokens",
    ]
    if found.memory is not None:
        use = found.memory
        lines.append(
            f"Memory      {size(use.total)}: weights {size(use.weights)}, gradients {size(use.gradients)}, optimizer "
            f"{size(use.optimizer)}, activations {size(use.activations)} ({found.memory_is})"
        )
    else:
        lines.append("Memory      more than there is")
    if found.available is not None:
        lines.append(f"            {size(found.available)} are free for it")
    lines.append(
        "            other batches: "
        + ", ".join(
            f"{need.batch_tokens}: {'' if need.measured else 'about '}{size(need.bytes)}" for need in found.others
        )
    )
    lines += [
        f"Speed       {found.tokens_per_second:,.0f} target tokens/s, {1000 * found.seconds_per_step:,.1f} ms a step "
        f"(the first took {found.first_step_seconds:.1f} s)",
        f"Time        {clock(found.seconds)} for {found.steps:,} steps, without validation and saving",
    ]
    if found.largest_that_fits is not None:
        lines.append(f"Fits        train.batch_tokens={found.largest_that_fits}")
    return lines + [f"Note: {note}" for note in found.notes]


def _sizes(vocabulary: tuple[int, int]) -> str:
    source, target = vocabulary
    return f"{source:,}" if source == target else f"{source:,} and {target:,}"


def size(count: float) -> str:
    """Bytes, for people."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
