"""The verb `calibrate`: confidences that mean what they say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from regard.cli.notes import note_unfinished
from regard.core.errors import CheckpointError
from regard.data.corpus import read_pairs
from regard.tasks.calibrating import calibrate
from regard.tasks.confidence import Calibration
from regard.tasks.pretrained import load_translator


def run_calibrate(model: Path, src: Path, tgt: Path, tag: str, as_json: bool, device: str) -> None:
    translator = load_translator(model, device, engine="torch").tagged(tag)
    note_unfinished(translator.folder)
    pairs = read_pairs(src, tgt)
    made = calibrate(translator, pairs.sources, pairs.targets)
    assert translator.folder is not None
    try:
        made.save(translator.folder)
    except OSError as error:
        what = f"nothing can be written there ({error.strerror or error})"
        raise CheckpointError(translator.folder, what, "Copy the run, and calibrate the copy") from None
    if as_json:
        print(json.dumps(made.measured))
    else:
        _print(made)
        print(f"Kept in {translator.folder}: `regard translate --json` now says confidences.", file=sys.stderr)


def _print(made: Calibration) -> None:
    for name in ("tokens", "sentences"):
        before, after = made.measured[f"{name}_before"], made.measured[name]
        print(
            f"{name}: calibration error {before['error']:.4f} before, {after['error']:.4f} after ({after['count']} held out)"
        )
        print("  confidence   how many   said   true")
        for i, (count, said, true) in enumerate(after["bins"]):
            if count:
                print(f"  {i / 10:.1f} to {(i + 1) / 10:.1f}   {count:8,}   {said:.2f}   {true:.2f}")
