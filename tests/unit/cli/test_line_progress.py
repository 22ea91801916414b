"""Progress without a terminal: a plain line now and then, on standard error."""

from __future__ import annotations

import pytest

from regard.cli.line_progress import LineProgress


def test_lines_are_said_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with LineProgress("Checking", every=0.0) as progress:
        progress(12_000)
    with LineProgress("Checking", every=60.0) as progress:
        progress(24_000)
    captured = capsys.readouterr()
    assert captured.err == "Checking: 12,000 lines so far\n"
    assert captured.out == ""


def test_a_terminal_gets_a_live_line_that_goes_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with LineProgress("Checking") as progress:
        progress(12_000)
        assert progress.live is not None
        assert "12,000 lines so far" in str(progress.live.status)
    err = capsys.readouterr().err
    assert "\x1b[?25h" in err  # the cursor is shown again
