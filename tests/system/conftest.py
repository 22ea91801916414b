"""Training runs as real processes."""

import pytest
from runs import Runs, serving


@pytest.fixture(scope="session")
def fork_server():
    with serving() as server:
        yield server


@pytest.fixture
def runs(fork_server, tmp_path):
    return Runs(fork_server, tmp_path)
