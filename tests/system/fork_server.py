"""Starts `regard` commands as processes of their own without paying for the imports each time.

Everything is imported here, before any thread exists; each request is a fork, so a child can really be killed.
Requests and answers are lines of JSON: {"argv", "log", "cwd", "signal_at", "environment"} -> pid; {"wait": pid} -> exit code.
"""

import builtins
import json
import os
import signal
import sys
import time

import torch

torch.set_num_threads(1)

import torch._dynamo  # noqa: E402 (torch's optimizers ask for it)
import torch.utils.tensorboard  # noqa: E402

import regard.cli.main  # noqa: E402
import regard.models.transformer  # noqa: E402
import regard.training.run  # noqa: E402
from regard.models.base import MODELS  # noqa: E402
from regard.training.checkpoint import Checkpoints  # noqa: E402
from regard.training.optim import Optimizer  # noqa: E402
from regard.training.word2vec_steps import WordSteps  # noqa: E402

for model in MODELS.names():
    regard.training.run.kind_of_run(MODELS.get(model).capabilities)  # which imports it

OPERATIONS = [(os, name) for name in ("mkdir", "rename", "replace", "fsync", "unlink", "rmdir")] + [(builtins, "open")]


def kill_at_operation(at: int) -> None:
    """Kills this process before the n-th file operation of all that saves checkpoints."""
    inside, count = [0], [0]

    def counted(original):
        def operation(*given, **named):
            if inside[0]:
                count[0] += 1
                if count[0] == at:
                    os.kill(os.getpid(), signal.SIGKILL)
            return original(*given, **named)

        return operation

    def marked(original):
        def save(*given, **named):
            inside[0] = 1
            try:
                return original(*given, **named)
            finally:
                inside[0] = 0

        return save

    for module, name in OPERATIONS:
        setattr(module, name, counted(getattr(module, name)))
    Checkpoints.save, Checkpoints.save_best = marked(Checkpoints.save), marked(Checkpoints.save_best)


def child(argv: list[str], log: str, signal_at: dict[str, int]) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ["regard", *argv]
    if "KILL_AT" in os.environ:
        kill_at_operation(int(os.environ["KILL_AT"]))
    if signal_at:
        original = {kind: kind.step for kind in (Optimizer, WordSteps)}

        def signalling(self, loss, part_of_peak, number):
            norm = original[type(self)](self, loss, part_of_peak, number)
            if number == signal_at["step"]:
                os.kill(os.getpid(), signal_at["signal"])
                time.sleep(0.001)  # so that Python has seen it before the step goes on
            return norm

        Optimizer.step = WordSteps.step = signalling
    regard.cli.main.run()


def main() -> None:
    sys.stdin = os.fdopen(os.dup(0), "r")
    answers = os.fdopen(os.dup(1), "w")
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
            continue
        pid = os.fork()
        if not pid:
            code = 1
            try:
                os.chdir(request["cwd"])
                os.environ.update(request.get("environment") or {})
                child(request["argv"], request["log"], request.get("signal_at") or {})
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        print(pid, file=answers, flush=True)


main()
