"""How fast small Transformers train on a CPU: regard, a plain `torch.nn.Transformer` loop, and JoeyNMT, in one run.

    python benchmarks/train_cpu.py [--recipes demo,tatoeba-en-de] [--threads 2] [--joeynmt /path/to/a/python/with/joeynmt]

Text, tokenizer, vocabulary, shape, dropout and label smoothing are the recipe's, on the bundled text.

- "regard" trains as `regard train` does, from its own stream of batches, which are put together while the clock runs.
- "plain loop" is the model as tutorials write it: embeddings times √width plus sinusoids, `nn.Transformer`, a linear layer to the
  vocabulary, logits of all positions, `nn.CrossEntropyLoss`, `torch.optim.Adam`. It is given regard's batches ready-made.
- "plain loop, unsorted" is the same on batches as tutorials make them, too: as many pairs at random, filled up to the longest.
- "JoeyNMT" is its Transformer of the same sizes in its own training step (see `joeynmt_speed.py`), on regard's batches.

R-Drop is off: the others have none. Rounds of all batches are timed in turns; target tokens do not count padding; the ratio
to regard is the median of those within each round. Beside seconds by the clock there are those that the process was given,
which are steadier on a busy machine, but only with --threads 1. One JSON line per case, a table at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import platform
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recurrent_speed import BETAS, CLIP, EPS, LR, JoeyNMT, Round, measure, ratios
from regard.core.types import PAD
from regard.data.batching import Batch, BatchPlan, BatchStream, collate
from regard.data.corpus import load_corpus
from regard.data.split import gathered
from regard.data.store import TokenStore
from regard.data.tokenizers import TokenizerPair
from regard.models.base import build_model
from regard.training.config import RunConfig, build_run_config, read_recipe
from regard.training.gradient import Gradients
from regard.training.optim import Optimizer

MOST_TOKENS = 2048  # of a batch: recipes for a GPU have more, which takes long and changes little


class PlainTransformer(nn.Module):
    """`nn.Transformer` with what it leaves to others: embeddings, positions, masks and the output layer."""

    def __init__(self, vocabulary: int, model: Any):
        super().__init__()
        self.width = model.width
        self.source_embedding = nn.Embedding(vocabulary, model.width)
        self.target_embedding = nn.Embedding(vocabulary, model.width)
        encoders, decoders = model.depth
        self.transformer = nn.Transformer(
            model.width,
            model.heads,
            encoders,
            decoders,
            model.inner or 4 * model.width,
            model.dropout,
            batch_first=True,
            norm_first=model.norm == "pre",
        )
        self.generator = nn.Linear(model.width, vocabulary)
        self.dropout = nn.Dropout(model.dropout)
        place = torch.arange(512)[:, None] * torch.exp(
            torch.arange(0, model.width, 2) * (-math.log(10000) / model.width)
        )
        self.positions: Tensor
        self.register_buffer("positions", torch.stack((place.sin(), place.cos()), -1).flatten(1))

    def embed(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        return self.dropout(table(tokens) * math.sqrt(self.width) + self.positions[: tokens.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        later = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=torch.bool)
        hidden = self.transformer(
            self.embed(self.source_embedding, source),
            self.embed(self.target_embedding, target),
            tgt_mask=later,
            src_key_padding_mask=source == PAD,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_is_causal=True,
        )
        return self.generator(hidden)


class Plain:
    """The plain loop, in the steps that go with it."""

    def __init__(self, model: nn.Module, batches: list[Batch], smoothing: float):
        self.model, self.batches = model.train(), batches
        self.optimizer = torch.optim.Adam(model.parameters(), lr=LR, betas=BETAS, eps=EPS)
        self.loss = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=smoothing)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.tokens = _tokens(batches)

    def train(self) -> Round:
        began = time.process_time()
        losses = []
        for batch in self.batches:
            self.optimizer.zero_grad()
            logits = self.model(batch.source.tokens, batch.target_in)
            loss = self.loss(logits.flatten(0, 1), batch.target_out.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self.optimizer.step()
            losses.append(loss.item())
        return Round(losses[0], time.process_time() - began)


class Ours:
    """The parts of regard's training loop that a step is made of, the stream of batches included."""

    def __init__(self, model: Any, config: RunConfig, store: TokenStore, plan: BatchPlan, count: int, tokens: int):
        self.model, self.config, self.store, self.plan, self.count = model.train(), config.train, store, plan, count
        self.optimizer = Optimizer(model, config.train, torch.device("cpu"))
        self.gradients = Gradients(model, contextlib.nullcontext, config.train.label_smoothing)
        self.parameters, self.tokens, self.steps = model.parameters_count(), tokens, 0

    def train(self) -> Round:
        began = time.process_time()
        losses = []
        with BatchStream(self.store, self.plan, workers=self.config.workers) as stream:
            for _ in range(self.count):
                self.steps += 1
                torch.manual_seed(self.steps)
                batch = next(stream).batch
                computed = self.gradients(batch, 1 / int((batch.target_out != PAD).sum()))
                losses.append(computed.loss.clone())
                self.optimizer.step(computed.loss, LR / self.config.lr, self.steps)
        return Round(losses[0].item(), time.process_time() - began)


def _tokens(batches: list[Batch]) -> int:
    return sum(int((batch.target_out != PAD).sum()) for batch in batches)


def padding(batches: list[Batch]) -> float:
    """The part of all places, of both sides, that is filled up."""
    places = sum(batch.source.tokens.numel() + batch.target_out.numel() for batch in batches)
    return 1 - sum(int(batch.source.keep.sum() + (batch.target_out != PAD).sum()) for batch in batches) / places


def run_recipe(name: str, arguments: argparse.Namespace) -> list[dict]:
    config = build_run_config(read_recipe(name))
    # the others have Adam, too
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, optimizer="adamw"))
    corpus = load_corpus(config.data)
    part = gathered(corpus.train.spaced(arguments.pairs).chunks())
    tokenizers = TokenizerPair.train(part.sources, part.targets, config.tokenizer)
    store = TokenStore.from_pairs(part, tokenizers, config.train.max_tokens)
    batch_tokens = arguments.batch_tokens or min(MOST_TOKENS, config.train.batch_tokens)
    plan = BatchPlan.of(store, batch_tokens, config.train.seed)
    rows = plan.epoch(0)[: arguments.batches]
    batches = [collate(store.source, store.target, some) for some in rows]
    draw = random.Random(arguments.seed)
    unsorted = [
        collate(store.source, store.target, np.asarray(draw.sample(range(len(store)), len(some)))) for some in rows
    ]
    size = tokenizers.target.size
    shape: Any = config.model
    torch.manual_seed(arguments.seed)
    ours = build_model(shape.name, shape, source_vocabulary=size, target_vocabulary=size, shared=tokenizers.joint)
    smoothing = config.train.label_smoothing
    peers: dict[str, Any] = {
        "regard": Ours(ours, config, store, plan, len(rows), _tokens(batches)),
        "plain loop": Plain(PlainTransformer(size, shape), batches, smoothing),
        "plain loop, unsorted": Plain(PlainTransformer(size, shape), unsorted, smoothing),
    }
    with tempfile.TemporaryDirectory(prefix="regard-speed-") as folder, contextlib.ExitStack() as ending:
        if arguments.joeynmt:
            sizes = {
                "vocabulary": size,
                "width": shape.width,
                "layers": shape.layers,
                "heads": shape.heads,
                "inner": shape.inner or 4 * shape.width,
                "dropout": shape.dropout,
                "smoothing": smoothing,
                "seed": arguments.seed,
            }
            joeynmt: Any = JoeyNMT(arguments.joeynmt, batches, Path(folder), sizes)
            ending.callback(joeynmt.close)
            joeynmt.tokens = _tokens(batches)
            peers["JoeyNMT"] = joeynmt
        measured = measure(peers, arguments.rounds, lambda: None)
    results = []
    for peer_name, peer in peers.items():
        one, our = measured[peer_name], measured["regard"]

        def slower(theirs: list[float], ours: list[float], scale: float = peers["regard"].tokens / peer.tokens) -> Any:
            return ratios([seconds * scale for seconds in theirs], ours)

        row = {
            "recipe": name,
            "peer": peer_name,
            "target_tokens_per_second": round(peer.tokens / statistics.median(one.wall)),
            "target_tokens_per_cpu_second": round(peer.tokens / statistics.median(one.cpu)),
            "times_of_regard": slower(one.wall, our.wall),
            "cpu_times_of_regard": slower(one.cpu, our.cpu),
            "first_loss": round(one.first_loss, 3),
            "parameters": peer.parameters,
            "padding": round(padding(unsorted if "unsorted" in peer_name else batches), 3),
            "vocabulary": size,
            "batch_tokens": batch_tokens,
            "batches": len(rows),
            "rounds": arguments.rounds,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "machine": platform.processor() or platform.machine(),
        }
        results.append(row)
        print(json.dumps(row), flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", default="demo,tatoeba-en-de")
    parser.add_argument("--joeynmt", type=Path, help="the python of an environment with JoeyNMT 2.3.0")
    parser.add_argument("--pairs", type=int, default=20_000, help="of the text, evenly spaced")
    parser.add_argument("--batch-tokens", type=int, default=0, help=f"0: the recipe's, at most {MOST_TOKENS:,}")
    parser.add_argument("--batches", type=int, default=8, help="in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results = [row for name in arguments.recipes.split(",") for row in run_recipe(name, arguments)]
    print(
        f"{'recipe':16} {'peer':22} {'parameters':>11} {'padding':>8} {'tokens/s':>9} "
        f"{'time, as multiple of regard':>28} {'CPU':>6}"
    )
    for row in results:
        middle, low, high = row["times_of_regard"]
        print(
            f"{row['recipe']:16} {row['peer']:22} {row['parameters']:11,} {row['padding']:8.1%} "
            f"{row['target_tokens_per_second']:9,} {f'{middle:.2f} ({low:.2f} to {high:.2f})':>28} "
            f"{row['cpu_times_of_regard'][0]:6.2f}"
        )


if __name__ == "__main__":
    main()
