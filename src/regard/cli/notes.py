"""What verbs say on standard error about the model that they use."""

from __future__ import annotations

import sys
from pathlib import Path

from regard.core.files import read_json
from regard.tasks.run_files import RUN


def note_unfinished(folder: Path | None) -> None:
    """Says so if the run of a model is not finished."""
    if folder is None or not (folder / RUN).is_file():
        return
    status = read_json(folder / RUN)
    if isinstance(status, dict) and status.get("status") != "finished":
        print(f"Note: the run in {folder} is not finished; its best weights so far are used.", file=sys.stderr)


def note_draft(device: str) -> None:
    """Says so where guesses of a small model do not pay: plain steps are recorded on CUDA, and these are not."""
    if device == "cuda":
        print("Note: on CUDA --draft is slower than writing without it; it is for CPUs.", file=sys.stderr)
