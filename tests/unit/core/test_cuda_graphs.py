"""Recordings that fail, by a stand-in for torch's own context, whose end fails after a spoilt recording."""

from __future__ import annotations

import pytest
import torch

from regard.core.cuda_graphs import recording


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The streams that are current, one after another."""
    current = ["own"]

    class Graph:
        def __init__(self, graph, pool=None, capture_error_mode="global"):
            assert capture_error_mode == "thread_local"

        def __enter__(self):
            current.append("of recordings")

        def __exit__(self, kind, error, trace):
            if isinstance(error, (RuntimeError, torch.OutOfMemoryError)):
                raise RuntimeError("capture invalidated")  # and the stream stays
            current.append("own")

    monkeypatch.setattr(torch.cuda, "graph", Graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "set_stream", current.append)
    return current


def test_a_failure_leaves_the_stream_and_its_reason(streams):
    with recording(None):
        assert streams[-1] == "of recordings"
    assert streams[-1] == "own"
    with pytest.raises(RuntimeError, match="invalidated"), recording(None):
        raise RuntimeError("something waits for the device")
    assert streams[-1] == "own"
    with pytest.raises(torch.OutOfMemoryError), recording(None):
        raise torch.OutOfMemoryError("no room")
    assert streams[-1] == "own"
    with pytest.raises(KeyError), recording(None):
        raise KeyError("of the host alone")
    assert streams[-1] == "own"
