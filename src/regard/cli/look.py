"""The verb `look`: opens the viewer in a browser."""

from __future__ import annotations

import ipaddress
import re
import socket
import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import uvicorn

from regard.cli.outputs import check_outputs
from regard.core.errors import ConfigError
from regard.looking.saved_page import StepsKept, save_page
from regard.looking.server import Hosts, host_name, make_app
from regard.looking.session import SENTENCE, Session
from regard.tasks.folder import read_config
from regard.tasks.pretrained import find_model

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
MOST_MODELS = 16
NAME, MOST_LETTERS = re.compile(r"[\w-]+(\.[\w-]+)*\.?|\[[0-9a-fA-F:.]+\]"), 253
FIRST_PORT, PORTS = 8020, 20  # tried in turn where none is named


def run_save(folders: Sequence[Path], text: str | None, out: Path, device: str, steps: StepsKept) -> None:
    """Writes the page of one sentence, which opens offline."""
    if len(folders) > 1:
        raise ConfigError("--save", f"{len(folders)} folders are given", "Give one")
    if steps.everything and steps.chosen:
        raise ConfigError("--all-steps", f"it goes without --{next(iter(steps.chosen))}", "Give one of them")
    check_outputs([out], [])
    check_folders(folders)
    save_page(Session(list(folders) or [None], device), out, SENTENCE if text is None else text, steps=steps)
    print(f"{out} is written.")


def run_look(
    folders: Sequence[Path], host: str, port: int, browser: bool, device: str, names: Sequence[str] = ()
) -> None:
    """Serves the viewer until Ctrl-C. Folders are checked before anything is opened; their models are loaded when looked at."""
    if len(folders) > MOST_MODELS:
        raise ConfigError("look", f"{len(folders)} folders are given", f"Give at most {MOST_MODELS}")
    check_folders(folders)
    hosts = hosts_of(host, names)
    session = Session(list(folders) or [None], device)
    listening = listen(host, port)
    address = f"http://{_shown(host)}:{listening.getsockname()[1]}/"
    print(f"Look at {address} (Ctrl-C ends).", flush=True)
    if not _is_loopback(host):
        print(
            f"Warning: {host} can be reached by other machines, and whoever reaches it can use these models. "
            "It is found by its addresses and by the names given by --allow-host.",
            file=sys.stderr,
        )
    app = make_app(session, hosts)
    server = Server(session, uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=3))
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    server.run(sockets=[listening])


def check_folders(folders: Sequence[Path]) -> None:
    """Each is that of a model, and none is a sentence."""
    for folder in folders:
        if " " in str(folder) and not folder.exists():
            todo = "A sentence is typed into the page, or given as --save PAGE.html --text SENTENCE"
            raise ConfigError(folder, "there is no such folder", todo)
        read_config(find_model(folder))


def hosts_of(host: str, names: Sequence[str]) -> Hosts:
    """The names under which the viewer may be asked: this machine's, the one that it listens on, and those given."""
    for name in names:
        if not NAME.fullmatch(name) or len(name) > MOST_LETTERS:
            raise ConfigError("--allow-host", f"{name[:80]!r} is no name of a machine", "Give one, without a port")
    own = {host_name(name) for name in (_shown(host), *names)}
    return Hosts(LOOPBACK | own, addresses=not _is_loopback(host))


class Server(uvicorn.Server):
    """Tells the session when it is to end, so that streams do not wait to be cut."""

    def __init__(self, session: Session, config: uvicorn.Config):
        super().__init__(config)
        self.session = session

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.session.ended = True
        super().handle_exit(sig, frame)


def listen(host: str, port: int) -> socket.socket:
    """A socket on the port, or on the first free one where none is named."""
    if not 0 <= port < 1 << 16:
        raise ConfigError("--port", f"{port} is not a port", "Give 1 to 65535, or 0 for any that is free")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    wrong = ""
    for number in [port] if port else [*range(FIRST_PORT, FIRST_PORT + PORTS), 0]:
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, number))
            found.listen(128)
            return found
        except OSError as error:
            found.close()
            wrong = error.strerror or str(error)
    what = f"{host} cannot be listened on{f' at port {port}' if port else ''} ({wrong})"
    raise ConfigError("--port" if port else "--host", what, "Give another one, or leave it out")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _shown(host: str) -> str:
    """In an address. Who listens everywhere is found here, too."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host
