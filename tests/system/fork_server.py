"""Starts `regard` commands as processes of their own without paying for the imports each time.

Everything is imported here, before any thread exists; each request is a fork, so a child can really be killed.
Requests and answers are lines of JSON: {"argv", "log", "cwd", "signal_at"} -> pid; {"wait": pid} -> exit code.
"""

import json
import os
import sys
import time

import torch

torch.set_num_threads(1)

import torch._dynamo  # noqa: E402 (torch's optimizers ask for it)
import torch.utils.tensorboard  # noqa: E402

import regard.cli.main  # noqa: E402
import regard.models.transformer  # noqa: E402
import regard.training.run  # noqa: E402
from regard.training.optim import Optimizer  # noqa: E402
from regard.training.word2vec_steps import WordSteps  # noqa: E402


def child(argv: list[str], log: str, signal_at: dict[str, int]) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ["regard", *argv]
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
