"""The verb `serve`: models behind interfaces that people already use."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError
from regard.core.number_formats import ASKED
from regard.serving.app import make_app
from regard.serving.companions import check_numbers
from regard.serving.keys import Keys
from regard.serving.limits import Limits
from regard.serving.run import Server, address_of, is_loopback, listen
from regard.serving.service import Service
from regard.serving.shelf import GUARD, Served, Shelf
from regard.tasks.translation_engines import ENGINES

SHOWN = {"translation": "translates", "language": "continues texts", "classification": "classifies",
         "tagging": "tags", "masked": "fills in words", "vectors": "has word vectors"}  # fmt: skip


def run_serve(
    folders: Sequence[str],
    *,
    host: str,
    port: int,
    key_file: Path | None,
    engine: str,
    compute: str,
    device: str,
    limits: Sequence[str],
    proxies: Sequence[str],
    origins: Sequence[str],
    detector: str | None,
    quota: int,
    glossaries: Sequence[str],
    most_loaded: int,
    page: bool,
    access_log: bool,
    guard: bool,
    beside: Mapping[str, Sequence[str]],
    ahead: int,
    fusion: float,
    mix: str,
) -> None:
    """Serves until Ctrl-C or SIGTERM. All settings and folders are checked before anything listens; models load when asked for."""
    bounds = Limits.from_settings(limits)
    keys = Keys.read(key_file)
    engine_, compute_ = _choice("--engine", engine, ENGINES), _choice("--compute", compute, ASKED)
    check_numbers(ahead, fusion, mix)
    shelf = Shelf.open(
        folders, device=device, engine=engine_, compute=compute_, most_loaded=most_loaded, guard=GUARD if guard else None,
        mix=mix,
    )  # fmt: skip
    for option, given in beside.items():
        shelf.give(option, given, **{"--draft": {"ahead": ahead}, "--fuse": {"fusion": fusion}}.get(option, {}))
    service = Service(shelf, bounds)
    found = None if detector is None else _detector(shelf, detector)
    app: Any = make_app(
        service, keys=keys, page=page, proxies=proxies, origins=origins, detector=found, quota=quota,
        glossaries=glossaries,
    )  # fmt: skip
    listening = listen(host, port)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    # warnings of models quote texts, which are the clients' and belong into no log
    warnings.simplefilter("ignore")
    for served in shelf:
        print(f"{served.name}: {_about(served)}")
    print(f"Serving at {address_of(listening)} (Ctrl-C ends).", flush=True)
    if not is_loopback(host):
        _warn(host, keys)
    server = Server(app, service, log=access_log)
    server.run(sockets=[listening])
    print("All accepted requests are answered." if not server.failed else "Some requests were cut.", flush=True)
    if server.failed:  # a thread may still be computing: nobody waits for it
        sys.stderr.flush()
        os._exit(1)


def _choice(name: str, value: str, known: Sequence[str]) -> Any:
    if value not in known:
        raise ConfigError(name, f"{value!r} is not one of {', '.join(known)}", "Choose one of them")
    return value


def _detector(shelf: Shelf, folder: str) -> Served:
    """The classifier of languages: one that is served anyway, or one more."""
    for served in shelf:
        if served.name == folder or str(served.folder) == folder:
            return served
    return shelf.put(folder)


def _about(served: Served) -> str:
    what = SHOWN[served.task]
    languages = f" {served.source_language} into {served.target_language}" if served.task == "translation" else ""
    return f"{what}{languages if served.source_language else ''} ({served.folder})"


def _warn(host: str, keys: Keys) -> None:
    what = f"Warning: {host} can be reached by other machines"
    if keys:
        print(f"{what}. Keys are needed, but travel unencrypted: put a proxy with TLS before it.", file=sys.stderr)
    else:
        print(
            f"{what}, and NO KEY IS NEEDED: whoever reaches it can use these models. Give --key-file FILE.",
            file=sys.stderr,
        )
    sys.stderr.flush()
