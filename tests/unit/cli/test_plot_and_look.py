"""The verbs `plot` and `look`: pictures in files, a viewer on loopback, and what is wrong with what was given."""

from __future__ import annotations

import socket

import pytest

from regard.cli.look import FIRST_PORT, listen
from regard.core.errors import ConfigError


@pytest.mark.parametrize(
    ("arguments", "name", "begin"),
    [
        (["alignment"], "a.png", b"\x89PNG"),
        (["heads", "I am tired.", "--part", "decoder.cross"], "h.svg", b"<?xml"),
        (["head", "--part", "encoder.self", "--layer", "2", "--head", "3"], "one.pdf", b"%PDF"),
        (["positions"], "p.png", b"\x89PNG"),
    ],
)
def test_pictures_are_written(command, tmp_path, arguments, name, begin):
    out = tmp_path / name
    found = command("plot", *arguments, "--out", out, "--device", "cpu")
    assert found.code == 0, found.err
    assert out.read_bytes().startswith(begin)


def test_curves_are_drawn_from_a_log(command, tmp_path, monkeypatch):
    import regard.cli.plot

    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 3.0}\n{"step": 2, "loss": 2.0}\n')
    monkeypatch.setattr(regard.cli.plot, "find_model", lambda model: tmp_path)
    assert command("plot", "curves", "--out", tmp_path / "c.png").code == 0
    assert (tmp_path / "c.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["picture"], "there is no picture 'picture'"),
        (["heads", "--part", "encoder.cross"], "Give one of: encoder.self, decoder.self, decoder.cross"),
        (["head", "--layer", "9"], "no layer 9. Give 1 to 5"),
        (["curves"], "it has no log of training"),
        (["alignment", "x" * 30_000], "can be looked at"),
    ],
)
def test_what_is_wrong_is_said(command, tmp_path, arguments, message):
    found = command("plot", *arguments, "--out", tmp_path / "x.png", "--device", "cpu")
    assert found.code == 1
    assert message in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "x.png").exists()


def test_a_format_that_is_none_is_said(command, tmp_path):
    found = command("plot", "alignment", "--out", tmp_path / "x.jpg", "--device", "cpu")
    assert found.code == 1
    assert ".png" in found.err


def test_look_refuses_folders_that_are_none(command, tmp_path):
    found = command("look", tmp_path / "none", "--no-browser")
    assert found.code == 1
    assert "none" in found.err


def test_a_port_that_is_taken_is_passed_over_or_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"at port {number}"):
            listen("127.0.0.1", number)
    with listen("127.0.0.1", 0) as first, listen("127.0.0.1", 0) as second:
        numbers = {first.getsockname()[1], second.getsockname()[1]}
        assert len(numbers) == 2
        assert min(numbers) >= FIRST_PORT
    with pytest.raises(ConfigError, match="not a port"):
        listen("127.0.0.1", 70_000)
    with pytest.raises(ConfigError, match="cannot be listened on"):
        listen("203.0.113.7", 0)
