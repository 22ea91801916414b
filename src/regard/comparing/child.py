"""The process of one run: `python -m regard.comparing.child ARGUMENTS` is `regard ARGUMENTS`, for as long as the plan lives.

`measure FOLDER SLUG SEED` is no verb of `regard`: it measures a run that is trained. So neither training nor measuring
can take the plan with it, or leave its threads and memory behind.

Standard input is a pipe from the plan. Should the plan be killed, the pipe ends, and the run saves and stops.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import warnings
from pathlib import Path


def _follow() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    threading.Thread(target=_follow, daemon=True, name="follow the plan").start()
    if sys.argv[1:2] == ["measure"]:
        _measure(*sys.argv[2:])
        sys.exit(0)
    else:
        runpy.run_module("regard", run_name="__main__")


def _measure(folder: str, slug: str, seed: str) -> None:
    """Errors and warnings are said as `regard` says them."""
    from regard.comparing.measure import measure_run
    from regard.core.errors import RegardError

    warnings.showwarning = lambda message, *_, **__: print(f"Warning: {message}", file=sys.stderr, flush=True)
    try:
        measure_run(Path(folder), slug, int(seed))
    except RegardError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
