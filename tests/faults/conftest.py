"""What these tests take from others: injected errors of file operations, runs as real processes, and a toy to search with."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / place) for place in ("unit/training", "system", "reference")]

import pytest  # noqa: E402
from runs import serving  # noqa: E402


@pytest.fixture(scope="session")
def fork_server():
    with serving() as server:
        yield server
