"""The process of one run: `python -m regard.comparing.child ARGUMENTS` is `regard ARGUMENTS`, for as long as the plan lives.

Standard input is a pipe from the plan. Should the plan be killed, the pipe ends, and the run saves and stops.
"""

from __future__ import annotations

import os
import runpy
import signal
import threading


def _follow() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    threading.Thread(target=_follow, daemon=True, name="follow the plan").start()
    runpy.run_module("regard", run_name="__main__")


if __name__ == "__main__":
    main()
