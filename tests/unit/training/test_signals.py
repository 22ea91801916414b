"""Signals while training: the first is noted, the second ends at once and says how to go on."""

import os
import signal
from pathlib import Path

import pytest

from regard.training.signals import SHOW_CURSOR, Interruption


class Ended(Exception):
    """In place of the end of the process."""


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", end)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_noted_and_the_second_ends(number, ends, capfd: pytest.CaptureFixture[str]):
    before = signal.getsignal(number)
    with Interruption(Path("my run")) as interruption:
        assert interruption.received is None
        os.kill(os.getpid(), number)
        assert interruption.received == number
        assert capfd.readouterr() == ("", "")
        with pytest.raises(Ended) as ended:
            os.kill(os.getpid(), signal.SIGINT)
    assert ended.value.args == (130,)
    assert capfd.readouterr() == ("", "Stopped at once; go on with: regard train --resume 'my run'\n")
    assert signal.getsignal(number) is before


def test_without_a_folder(ends, capfd: pytest.CaptureFixture[str]):
    with Interruption() as interruption:
        interruption.received = signal.SIGINT
        with pytest.raises(Ended):
            os.kill(os.getpid(), signal.SIGTERM)
    assert capfd.readouterr().err == "Stopped at once.\n"


def test_a_terminal_gets_its_cursor_back(ends, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    monkeypatch.setattr(os, "isatty", lambda number: number == 2)
    with Interruption(Path("run")) as interruption:
        interruption.received = signal.SIGINT
        with pytest.raises(Ended):
            os.kill(os.getpid(), signal.SIGINT)
    assert capfd.readouterr().err == f"\n{SHOW_CURSOR}Stopped at once; go on with: regard train --resume run\n"


def test_a_terminal_that_is_gone_does_not_matter(ends, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "write", refuse)
    with Interruption(Path("run")) as interruption:
        interruption.received = signal.SIGINT
        with pytest.raises(Ended):
            os.kill(os.getpid(), signal.SIGINT)
