"""Opens hostile artefacts one after the other in this process, and says what each of them made it do.

    python hostile_runner.py CASES.json RESULTS.json

A hook of the interpreter hears of every import, file, process, socket and piece of code. Peaks of memory are those of the kernel.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import sysconfig
import time
import typing
from pathlib import Path
from typing import Any

EVENTS: list[str] = []
LISTENING = False
ALLOWED: tuple[str, ...] = ()  # where files may be read
OWN: tuple[str, ...] = ()  # where they may be written
FOREIGN = ("pickle.", "socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.",
           "webbrowser.", "urllib.", "http.", "ftplib.", "smtplib.", "ctypes.dlopen", "shelve.",
           "os.putenv", "os.startfile", "os.kill", "sys.settrace", "cpython.run")  # fmt: skip
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate",
           "os.utime", "shutil.rmtree", "shutil.move", "shutil.copyfile")  # fmt: skip
CODE = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def inside(path: Any, places: tuple[str, ...]) -> bool:
    if isinstance(path, int):
        return True
    try:
        real = os.path.realpath(os.fsdecode(path))
    except (TypeError, ValueError):
        return False
    return any(real == place or real.startswith(place + os.sep) for place in places)


def called_from() -> set[str]:
    """The files of the functions that are at work."""
    found, frame = set(), sys._getframe(2)
    while frame is not None:
        found.add(frame.f_code.co_filename)
        frame = frame.f_back
    return found


def hear(event: str, arguments: tuple[Any, ...]) -> None:
    global LISTENING
    if not LISTENING:
        return
    LISTENING = False  # what follows asks for files itself
    try:
        if event.startswith(FOREIGN):
            EVENTS.append(f"{event} {arguments!r}"[:200])
        elif event == "import":
            root = str(arguments[0]).partition(".")[0]
            if root not in sys.stdlib_module_names and root not in KNOWN:
                EVENTS.append(f"import {arguments[0]}")
        elif event == "exec":
            name = getattr(arguments[0], "co_filename", "?")
            if name == "<string>" and ANNOTATIONS in called_from():
                return
            if not name.startswith(("<frozen", *CODE, *SOURCES)):
                EVENTS.append(f"exec {name}")
        elif event == "compile":
            if ANNOTATIONS in called_from():
                return
            name = os.fsdecode(arguments[1]) if arguments[1] is not None else "?"
            if not name.startswith((*CODE, *SOURCES)):
                EVENTS.append(f"compile {name}")
        elif event == "open":
            path, mode, flags = arguments
            writes = (
                bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)) if isinstance(flags, int) else True
            )
            if not inside(path, OWN if writes else ALLOWED + OWN):
                EVENTS.append(f"open {path!r} {mode!r}")
        elif event in CHANGES:
            for path in arguments[: 2 if event in ("os.rename", "os.link", "shutil.move", "shutil.copyfile") else 1]:
                if not inside(path, OWN):
                    EVENTS.append(f"{event} {path!r}")
    finally:
        LISTENING = True


KNOWN = {"regard", "torch", "numpy", "safetensors", "tokenizers", "ctranslate2", "onnxruntime", "sacrebleu", "jaxtyping",
         "typer", "rich", "triton", "yaml", "_safetensors_rust", "setuptools", "pkg_resources", "typing_extensions",
         "filelock", "fsspec", "sympy", "networkx", "jinja2", "mpmath", "google", "packaging"}  # fmt: skip
LIBRARIES = ("regard.training.translation_run", "regard.training.run", "regard.onnx.folder", "regard.onnx.translator",
             "regard.exchange.import_model", "regard.exchange.import_ctranslate2", "regard.exchange.opennmt_import",
             "regard.exchange.huggingface_marian_import", "regard.tasks.translation", "regard.tasks.converted_run",
             "ctranslate2", "onnxruntime", "sacrebleu", "safetensors.torch")  # fmt: skip
ANNOTATIONS = typing.__file__  # regard's own annotations of types are texts, which `get_type_hints` evaluates
SOURCES = (str(Path(__file__).resolve().parents[3] / "src"),)


def memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise RuntimeError(name)


def open_case(loader: str, path: Path, out: Path) -> None:
    import regard

    if loader == "load":
        regard.load(path, "cpu", engine="torch")
    elif loader == "engine":
        regard.load(path, "cpu", engine="ctranslate2", compute="float32")
    elif loader == "resume":
        from regard.training.progress import Reporter

        regard.resume(path, Reporter(quiet=True))
    elif loader == "import":
        regard.import_model(path, out)
    elif loader == "onnx":
        import regard.onnx

        regard.onnx.load(path)
    elif loader == "graph":
        from regard.onnx.protobuf import check_model

        check_model(path.read_bytes(), path)
    else:
        raise ValueError(loader)


def run(case: dict[str, Any]) -> dict[str, Any]:
    global LISTENING, OWN
    from regard.core.errors import RegardError

    folder = Path(case["folder"])
    OWN = (os.path.realpath(folder),)
    EVENTS.clear()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is used now
    before = memory("VmRSS")
    began = time.process_time()
    result: dict[str, Any] = {"name": case["name"], "error": None, "regards": False, "message": ""}
    LISTENING = True
    try:
        open_case(case["loader"], Path(case["path"]), folder / "made by the import")
    except RegardError as error:
        result |= {"error": type(error).__name__, "regards": True, "message": str(error)}
    except BaseException as error:
        result |= {"error": type(error).__name__, "message": str(error)[:300]}
    finally:
        LISTENING = False
    result["seconds"] = time.process_time() - began
    result |= {
        "grown": memory("VmHWM") - before,
        "events": list(EVENTS),
        "imported": (folder / "made by the import").exists(),
    }
    return result


def main() -> None:
    global ALLOWED
    given = json.loads(Path(sys.argv[1]).read_text())
    roots = [
        given["text"],
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        *SOURCES,
        *CODE,
        *sys.path,
        "/proc",
        "/sys",
        "/dev",
        "/usr",
        "/lib",
    ]
    ALLOWED = tuple({os.path.realpath(root) for root in roots if root})
    import torch

    for name in LIBRARIES:  # what they compile while they are imported does not count against an artefact
        importlib.import_module(name)
    from regard.models.base import MODELS

    MODELS.names()  # imports them all
    torch.set_num_threads(1)
    sys.addaudithook(hear)
    results = []
    for case in given["cases"]:
        if not case["name"].startswith("good"):
            gc.freeze()  # what is there for good needs no looking through before every case
        results.append(run(case))
        Path(sys.argv[2]).write_text(json.dumps(results))  # a crash leaves what was seen before


if __name__ == "__main__":
    main()
