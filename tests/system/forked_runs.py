"""`regard` in a process of its own whose runs are forks of it, so that imports are paid for once: arguments are regard's."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

torch.set_num_threads(1)

import torch._dynamo  # noqa: E402 (torch's optimizers ask for it)
import torch.utils.tensorboard  # noqa: E402

import regard.cli.compare  # noqa: E402
import regard.cli.main  # noqa: E402
import regard.comparing.child  # noqa: E402
import regard.comparing.measure  # noqa: E402
import regard.comparing.runner  # noqa: E402
import regard.training.run  # noqa: E402


class Forked:
    """As much of a Popen as a plan needs."""

    def __init__(self, arguments: list[str], log: Path):
        reading, writing = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            os.close(writing)
            _be_a_run(arguments, log, reading)
        os.close(reading)
        self.stdin = os.fdopen(writing, "wb")

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = 1e9) -> int:
        until = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("run", timeout)
            time.sleep(0.005)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def _be_a_run(arguments: list[str], log: Path, reading: int) -> None:
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number, file in ((0, reading), (1, output), (2, output)):
            os.dup2(file, number)
        sys.argv = ["regard", *arguments]
        regard.comparing.child.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


regard.comparing.runner.start_process = Forked
regard.comparing.runner.GLANCE = 0.02
regard.comparing.measure.LONG_ENOUGH = 1e-9  # one round of translating: 0 would be none
regard.cli.main.run()
