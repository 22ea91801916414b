"""A process that cuts pairs of texts into tokens for another one (`encoding_workers.py`), until its standard input ends."""

from __future__ import annotations

import os
import signal
import sys

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there are as many of these processes as cores

from regard.data.encoding_pipe import receive_texts, send_rows
from regard.data.known_words import KnownWords
from regard.data.tokenizers import Tokenizer


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started it, which then closes the pipe
    given, taken = sys.stdin.buffer, sys.stdout.buffer
    try:
        sides = [KnownWords(Tokenizer.from_json(text)) for text in receive_texts(given)]
        while True:
            for texts, words in zip(receive_texts(given), (sides[0], sides[-1]), strict=True):
                send_rows(taken, words.rows(texts))
    except (EOFError, BrokenPipeError):
        os._exit(0)  # a closed pipe is not worth a message


if __name__ == "__main__":
    main()
