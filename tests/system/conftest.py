"""Training runs as real processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runs import Runs


@pytest.fixture(scope="session")
def fork_server():
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "fork_server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert server.stdout is not None
    assert server.stdin is not None
    assert server.stdout.readline() == "ready\n"
    yield server
    server.stdin.close()
    server.stdout.close()
    server.send_signal(signal.SIGTERM)
    server.wait(20)


@pytest.fixture
def runs(fork_server, tmp_path):
    return Runs(fork_server, tmp_path)
