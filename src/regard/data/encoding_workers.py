"""Large texts into tokens on all cores: processes that cut pairs into tokens, a chunk at a time.

Most of the work is in Python (looking words up), so threads would wait for each other. The processes are started as programs of
their own, so that a user's script need not expect to be imported again. Where they cannot be started, or one of them ends,
this process does the work itself; the tokens are the same in any case.
"""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from regard.core.processors import processors
from regard.data.encoding_pipe import Rows, receive_rows, send_texts
from regard.data.known_words import KnownWords
from regard.data.split import Pairs
from regard.data.tokenizers import TokenizerPair

LEAST_PAIRS = 100_000  # for which processes are worth starting
MOST_WORKERS = 16
SRC = Path(__file__).parents[2]  # where `regard` is found


class Cut(NamedTuple):
    """Some pairs and their tokens."""

    pairs: Pairs
    source: Rows
    target: Rows


def cut_into_tokens(chunks: Iterable[Pairs], tokenizers: TokenizerPair, count: int) -> Iterator[Cut]:
    """Chunks of a text with `count` pairs, in order, with their tokens: on all cores where that pays."""
    workers = min(MOST_WORKERS, processors()) if count >= LEAST_PAIRS else 1
    here = _Here(tokenizers)
    if workers < 2 or getattr(sys, "frozen", False) or not sys.executable:
        for chunk in chunks:
            yield here.cut(chunk)
        return
    with contextlib.ExitStack() as stack:
        free: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for _ in range(workers):
            free.put(stack.enter_context(_Worker(tokenizers)))
        threads = stack.enter_context(ThreadPoolExecutor(workers))
        stack.callback(threads.shutdown, wait=True, cancel_futures=True)

        def cut(chunk: Pairs) -> Cut:
            worker = free.get()
            try:
                return worker.cut(chunk) or here.cut(chunk)
            finally:
                free.put(worker)

        waiting = collections.deque()
        for chunk in chunks:
            waiting.append(threads.submit(cut, chunk))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class _Here:
    """Tokens by this process."""

    def __init__(self, tokenizers: TokenizerPair):
        self.source = KnownWords(tokenizers.source)
        self.target = self.source if tokenizers.joint else KnownWords(tokenizers.target)
        self.turn = threading.Lock()

    def cut(self, pairs: Pairs) -> Cut:
        with self.turn:
            return Cut(pairs, self.source.rows(pairs.sources), self.target.rows(pairs.targets))


class _Worker:
    """Tokens by another process; it has what it needs to begin as soon as it runs."""

    def __init__(self, tokenizers: TokenizerPair):
        sides = [tokenizers.source] if tokenizers.joint else [tokenizers.source, tokenizers.target]
        self.begin = [side.to_json() for side in sides]
        path = os.pathsep.join([str(SRC), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-P", "-m", "regard.data.encoding_worker"]
        self.process: subprocess.Popen[bytes] | None
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
            )
        except OSError:
            self.process = None

    def __enter__(self) -> _Worker:
        return self

    def cut(self, pairs: Pairs) -> Cut | None:
        """None if the process is no more."""
        if self.process is None:
            return None
        given, taken = self.process.stdin, self.process.stdout
        assert given is not None
        assert taken is not None
        try:
            if self.begin:
                send_texts(given, self.begin)
                self.begin = []
            send_texts(given, [pairs.sources, pairs.targets])
            return Cut(pairs, receive_rows(taken), receive_rows(taken))
        except (EOFError, OSError):
            self._end()
            return None

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self.process is None:
            return
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
