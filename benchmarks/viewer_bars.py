"""How fast the viewer's page is on a long sentence of a real model with random weights, and how much memory it takes.

    python benchmarks/viewer_bars.py [--tokens 512] [--layers 6] [--heads 8] [--width 512] [--json]

Needs Node, `npm ci` in viewer/, and chromium. Source and target have --tokens tokens each. Measured in the page: from a click to
the painting of the overview of all layers and heads (of each of the three parts), and of one head's lines (eleven heads); what it
asks of the server for this is in it. Beside the time of the clock stands that of the processor in the page's thread, which other
work on the machine changes little. Then the page's heap: objects, elements and arrays. The trace, for which the model reads the
sentence, is made before and told by itself. The bars are 1 s, 200 ms and 300 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import torch
import uvicorn

from regard.core.files import save_tensors, write_json, write_manifest
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.looking.server import make_app
from regard.looking.session import Session
from regard.models.base import MODELS, build_model
from regard.tasks.folder import CONFIG, FORMAT, WEIGHTS, tokenizer_names, weights_of

TEXT = "the cat saw a red house and it was so old that no one went in at night"
WORDS = TEXT.split()
BARS = {"overview": 1000, "head": 200, "heap": 300}  # ms, ms, MiB
SCRIPT = Path(__file__).with_suffix(".mjs")


def make_run(folder: Path, layers: int, heads: int, width: int) -> TokenizerPair:
    """An untrained Transformer, saved as a run is."""
    tokenizers = TokenizerPair.train_on_text([TEXT] * 4, TokenizerConfig(kind="bpe", size=120))
    sizes = {"layers": layers, "heads": heads, "width": width}
    torch.manual_seed(1)
    size = tokenizers.source.size
    config = MODELS.get("transformer").Config(name="transformer", **sizes)
    model = build_model("transformer", config, source_vocabulary=size, target_vocabulary=size, shared=True)
    tokenizers.save(folder)
    save_tensors(folder / WEIGHTS, weights_of(model))
    about = {"format": FORMAT, "resolved": True, "model": {"name": "transformer", **sizes}}
    write_json(folder / CONFIG, {**about, "vocabulary": {"source": size, "target": size, "shared": True}})
    write_manifest(folder, [WEIGHTS, CONFIG, *tokenizer_names(folder)])
    return tokenizers


def sentence(tokenizers: TokenizerPair, tokens: int, first: int) -> str:
    """Words in turn that have so many tokens, the end mark included."""
    words: list[str] = []
    while True:
        following = [*words, WORDS[(first + 5 * len(words)) % len(WORDS)]]
        if len(tokenizers.source.encode([" ".join(following)])[0]) > tokens - 1:
            return " ".join(words)
        words = following


def measure(tokens: int, layers: int, heads: int, width: int) -> dict:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizers = make_run(folder, layers, heads, width)
        given = {"text": sentence(tokenizers, tokens, 0), "target": sentence(tokenizers, tokens, 3)}
        lengths = [len(tokenizers.source.encode([text])[0]) + 1 for text in given.values()]
        session = Session([folder], device="cpu")
        server = uvicorn.Server(uvicorn.Config(make_app(session), port=0, log_level="warning"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
        try:
            done = subprocess.run(
                ["node", str(SCRIPT), address],
                input=json.dumps(given),
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
        finally:
            session.ended = True
            server.should_exit = True
            thread.join(10)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return {
        "source": lengths[0],
        "target": lengths[1],
        "layers": layers,
        "heads_each": heads,
        **json.loads(done.stdout),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Times the viewer's page on a long sentence.")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.tokens, given.layers, given.heads, given.width)
    if given.json:
        print(json.dumps(found))
        return
    print(
        f"{found['layers']} layers x {found['heads_each']} heads, {found['source']} source and {found['target']} target tokens"
    )
    print(f"trace and alignment, from the address on: {found['trace'] / 1000:.1f} s (model and page)")
    for name, one in zip(("encoder", "decoder", "cross"), found["overviews"], strict=True):
        print(f"overview, {name}: {one['clock']:.0f} ms, processor {one['processor']:.0f} ms (bar {BARS['overview']})")
    for what in ("clock", "processor"):
        times = [one[what] for one in found["heads"]]
        print(
            f"one head, {what}: middle {statistics.median(times):.0f} ms, slowest {max(times):.0f} ms (bar {BARS['head']})"
        )
    load = os.getloadavg()[0]
    print(f"load of the machine at the end: {load:.1f} on {os.cpu_count()} cores")
    print(f"heap: {found['heap']:.0f} MiB (bar {BARS['heap']})")


if __name__ == "__main__":
    main()
