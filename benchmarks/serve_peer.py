"""A server that translates one request after the other, built as LibreTranslate is: the other side of `serve_load.py throughput`.

    pip install flask waitress
    python benchmarks/serve_peer.py [--port 0] [--threads 4] [--intra 0] [--beam 0]

What LibreTranslate with argos-translate does by its source when it is started without options, and this does, too:

- Flask under waitress with 4 threads.
- One `ctranslate2.Translator` for a pair of languages with inter_threads=1, intra_threads=0 (as many as there are processors, at
  most 4) and compute_type="auto": requests of several threads wait for each other there, and none is computed with another.
- The sentences of one request are one call of `translate_batch`, with scores and as many hypotheses as are asked for.

What is different, all of it in the peer's favour but the last: sentences are split by regard's rules in place of a neural network;
there are no counts of requests, bans, sessions or translations of answers' words; the model, its int8 weights and its tokens are
those of `regard serve`; the beam is the model's own (5, where argos-translate has 4), so that both search for the same.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import socket
from typing import Any

import ctranslate2

from regard.core.specials import EOS, SPECIALS
from regard.tasks.converted_run import ctranslate2_files
from regard.tasks.lines import Translation, join_line
from regard.tasks.pretrained import find_model, load
from regard.tasks.run_files import open_run

BUNDLED = "tatoeba-en-de"


class OneByOne:
    """Texts to translations, by one call of CTranslate2 for each text."""

    def __init__(self, intra: int, beam: int):
        folder = find_model(BUNDLED)
        self.texts = load(folder, "cpu", engine="ctranslate2")  # splits, and has the tokens
        self.beam = beam or self.texts.search.beam
        files = ctranslate2_files(open_run(folder), "int8")
        self.engine = ctranslate2.Translator(
            "peer", device="cpu", compute_type="auto", inter_threads=1, intra_threads=intra, files=files
        )
        self.pieces = self.texts.tokenizers.source.pieces
        target = self.texts.tokenizers.target
        self.ids = {piece: i for i, piece in enumerate(target.pieces(range(target.size)))}

    def translate(self, text: str) -> str:
        sentences = self.texts.split([text])
        if not sentences:
            return text
        found = self.engine.translate_batch(
            [[*self.pieces(one.ids), SPECIALS[EOS]] for one in sentences],
            max_batch_size=32,
            beam_size=self.beam,
            num_hypotheses=1,
            length_penalty=self.texts.search.alpha,
            return_scores=True,
        )
        tokens = [[self.ids[piece] for piece in one.hypotheses[0]] for one in found]
        decoded = self.texts.tokenizers.target.decode(tokens)
        parts = [
            (sentence, [Translation(text, 0.0, 0.0, [], [], [], True)])
            for sentence, text in zip(sentences, decoded, strict=True)
        ]
        return join_line(text, parts)[0].text


def application(engine: OneByOne) -> Any:
    from flask import Flask, Response, abort, request

    app = Flask("peer")

    @app.post("/translate")
    def translate() -> Response:  # pyright: ignore[reportUnusedFunction]
        asked = request.get_json()
        if not isinstance(asked.get("q"), str):
            abort(400)
        answer = {"translatedText": engine.translate(asked["q"])}
        return Response(json.dumps(answer), mimetype="application/json")

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--threads", type=int, default=4, help="of waitress")
    parser.add_argument("--intra", type=int, default=0, help="threads of a call; 0: CTranslate2's choice")
    parser.add_argument("--beam", type=int, default=0, help="0: the model's own")
    asked = parser.parse_args()
    from waitress.server import create_server

    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # it would write a line for each request that waits
    listening = socket.create_server(("127.0.0.1", asked.port), backlog=1024)
    server = create_server(application(OneByOne(asked.intra, asked.beam)), sockets=[listening], threads=asked.threads)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    print(f"Serving at http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    server.run()


if __name__ == "__main__":
    main()
