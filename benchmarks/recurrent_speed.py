"""How fast a Bahdanau translator trains: regard, the plainest loop that torch allows, and JoeyNMT, in one run.

    python benchmarks/recurrent_speed.py [--device cuda] [--joeynmt /path/to/a/python/with/joeynmt]

- "plain loop" is the same model as tutorials write it: a packed bidirectional `nn.GRU`, then one step of attention,
  `nn.GRUCell` and output layer per target position, logits of all positions, `nn.CrossEntropyLoss`, `torch.optim.Adam`.
  It starts with the weights of regard's model, so that equal first losses show that both compute the same.
- "regard" trains as `regard train` does; on CUDA in bfloat16, from graphs recorded while warming up.
- "JoeyNMT" is its recurrent model of the same sizes in its own training step (see `joeynmt_speed.py`). It attends
  with the new state of the decoder and feeds the result to the next step, so the two models are alike, not equal.

All see the same sentence pairs in the same batches; lengths are like those of Multi30k in subwords, tokens are random.
Dropout and label smoothing are off everywhere. Rounds of all batches are timed in turns. Target tokens do not count padding;
the ratio to regard is the median of the ratios within each round. Beside seconds by the clock there are those that the
process was given: where others use the machine too, these are steadier, but only with --threads 1, as threads that wait
for each other count. One JSON line per peer, a table at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from regard.core.types import PAD, SPECIALS
from regard.data.batching import Batch, BatchPlan, collate
from regard.data.store import TokenRows
from regard.models.bahdanau import Bahdanau, BahdanauConfig
from regard.models.base import build_model
from regard.training.config import TrainConfig
from regard.training.gradient import Gradients
from regard.training.optim import Optimizer
from regard.training.precision import uses_bfloat16

PAIRS = 29_000
LONGEST = 40
LR, BETAS, EPS, CLIP = 3e-4, (0.9, 0.98), 1e-9, 1.0


class PlainAttention(nn.Module):
    def __init__(self, hidden: int, attention: int):
        super().__init__()
        self.attn = nn.Linear(3 * hidden, attention, bias=False)
        self.v = nn.Linear(attention, 1, bias=False)

    def forward(self, state: Tensor, annotations: Tensor, keep: Tensor) -> Tensor:
        repeated = state.unsqueeze(1).repeat(1, annotations.shape[1], 1)
        energy = self.v(torch.tanh(self.attn(torch.cat((repeated, annotations), dim=2)))).squeeze(2)
        return torch.softmax(energy.masked_fill(~keep, -1e4), dim=1)


class PlainLoop(nn.Module):
    """Bahdanau's model without a thought for speed."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, attention: int, readout: int):
        super().__init__()
        self.source_embedding = nn.Embedding(vocabulary, embedding)
        self.target_embedding = nn.Embedding(vocabulary, embedding)
        self.encoder = nn.GRU(embedding, hidden, batch_first=True, bidirectional=True)
        self.first = nn.Linear(hidden, hidden)
        self.attention = PlainAttention(hidden, attention)
        self.cell = nn.GRUCell(embedding + 2 * hidden, hidden)
        self.readout = nn.Linear(3 * hidden + embedding, 2 * readout)
        self.output = nn.Linear(readout, vocabulary)

    def forward(self, source: Tensor, lengths: Tensor, keep: Tensor, target: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.source_embedding(source), lengths, batch_first=True, enforce_sorted=False
        )
        annotations, last = self.encoder(packed)
        annotations, _ = nn.utils.rnn.pad_packed_sequence(annotations, batch_first=True, total_length=source.shape[1])
        state = torch.tanh(self.first(last[1]))
        logits = []
        for t in range(target.shape[1]):
            word = self.target_embedding(target[:, t])
            weights = self.attention(state, annotations, keep)
            context = torch.bmm(weights.unsqueeze(1), annotations).squeeze(1)
            seen = self.readout(torch.cat((state, word, context), dim=1))
            state = self.cell(torch.cat((word, context), dim=1), state)
            logits.append(self.output(seen.view(len(seen), -1, 2).max(dim=2).values))
        return torch.stack(logits, dim=1)


def copy_weights(ours: Bahdanau, plain: PlainLoop) -> None:
    """Makes the plain loop compute what our model does. Its additional biases become zero."""
    there, back = ours.encoder.forwards, ours.encoder.backwards
    pairs = [
        (plain.source_embedding.weight, ours.source_embedding.weight),
        (plain.target_embedding.weight, ours.target_embedding.weight),
        (plain.encoder.weight_ih_l0, there.weight_ih_l0),
        (plain.encoder.weight_hh_l0, there.weight_hh_l0),
        (plain.encoder.weight_ih_l0_reverse, back.weight_ih_l0),
        (plain.encoder.weight_hh_l0_reverse, back.weight_hh_l0),
        (plain.first.weight, ours.first.weight),
        (plain.first.bias, ours.first.bias),
        (plain.attention.attn.weight, torch.cat((ours.score.query.weight, ours.score.key.weight), 1)),
        (plain.attention.v.weight, ours.score.v[None]),
        (plain.cell.weight_ih, torch.cat((ours.gates_from_word.weight, ours.gates_from_context.weight), 1)),
        (plain.cell.weight_hh, ours.gates_from_state.weight),
        (plain.cell.bias_ih, ours.gates_from_word.bias),
        (
            plain.readout.weight,
            torch.cat([part.weight for part in (ours.readout_state, ours.readout_word, ours.readout_context)], 1),
        ),
        (plain.readout.bias, ours.readout_state.bias),
        (plain.output.weight, ours.output.weight),
        (plain.output.bias, ours.output.bias),
    ]
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.zero_()
        for to, source in pairs:
            to.copy_(source)


class Round(NamedTuple):
    """Once through all batches: the loss per token of the first, and the seconds of processor time."""

    loss: float
    cpu_seconds: float


class Peer(Protocol):
    """One of those that are measured."""

    parameters: int

    def train(self) -> Round: ...


class Plain:
    """The plain loop, in the steps that go with it."""

    def __init__(self, model: PlainLoop, batches: list[Batch], device: torch.device, low: bool):
        self.model, self.batches, self.device, self.low = model.to(device).train(), batches, device, low
        self.optimizer = torch.optim.Adam(model.parameters(), lr=LR, betas=BETAS, eps=EPS)
        self.loss = nn.CrossEntropyLoss(ignore_index=PAD)
        self.parameters = sum(p.numel() for p in model.parameters())

    def train(self) -> Round:
        began = time.process_time()
        torch.set_float32_matmul_precision("highest")  # torch's own default
        low = torch.autocast(self.device.type, torch.bfloat16) if self.low else contextlib.nullcontext()
        losses = []
        for batch in self.batches:
            lengths = batch.source.lengths  # stay on the host, where packing wants them
            batch = batch.to(self.device)
            self.optimizer.zero_grad()
            with low:
                logits = self.model(batch.source.tokens, lengths, batch.source.keep, batch.target_in)
                loss = self.loss(logits.flatten(0, 1), batch.target_out.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self.optimizer.step()
            losses.append(loss.item())
        return Round(losses[0], time.process_time() - began)


class Ours:
    """regard's model and the parts of regard's training loop that a step is made of."""

    def __init__(self, model: Bahdanau, batches: list[Batch], device: torch.device, precision: Any):
        self.config = TrainConfig(
            optimizer="adam",
            lr=LR,
            beta1=BETAS[0],
            beta2=BETAS[1],
            eps=EPS,
            clip=CLIP,
            label_smoothing=0.0,
            precision=precision,
        )
        self.model, self.batches, self.device = model.to(device).train(), batches, device
        low = uses_bfloat16(self.config, device)
        autocast = (lambda: torch.autocast(device.type, torch.bfloat16)) if low else contextlib.nullcontext
        self.optimizer = Optimizer(model, self.config, device)
        self.gradients = Gradients(model, autocast, record=device.type == "cuda")
        self.parameters = model.parameters_count()
        self.steps = 0

    def train(self) -> Round:
        began = time.process_time()
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # as the training loop does
        losses = []
        for batch in self.batches:
            self.steps += 1
            tokens = int((batch.target_out != PAD).sum())
            computed = self.gradients(batch, 1 / tokens)
            losses.append(computed.loss.clone())
            self.optimizer.step(computed.loss, 1.0, self.steps)
        return Round(losses[0].item(), time.process_time() - began)


class JoeyNMT:
    """Another process, with JoeyNMT in it, that trains through the batches whenever it is asked to."""

    def __init__(self, python: Path, batches: list[Batch], folder: Path, sizes: dict[str, Any]):
        arrays = {}
        for i, batch in enumerate(batches):
            arrays[f"source{i}"] = batch.source.tokens.numpy()
            arrays[f"lengths{i}"] = batch.source.lengths.numpy()
            arrays[f"target{i}"] = torch.cat((batch.target_in[:, :1], batch.target_out), 1).numpy()
        np.savez(folder / "batches.npz", **arrays)
        settings = {**sizes, "threads": torch.get_num_threads(), "lr": LR, "betas": BETAS, "clip": CLIP}
        (folder / "settings.json").write_text(json.dumps(settings))
        self._process = subprocess.Popen(
            [python, Path(__file__).with_name("joeynmt_speed.py"), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.parameters = int(self._answer()["parameters"])

    def _answer(self) -> dict:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"JoeyNMT's process ended with {self._process.wait()}")
        return json.loads(line)

    def train(self) -> Round:
        assert self._process.stdin is not None
        print("train", file=self._process.stdin, flush=True)
        return Round(**self._answer())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def sentence_pairs(vocabulary: int, seed: int) -> tuple[TokenRows, TokenRows]:
    """Random tokens, in pairs whose lengths go together: mean 15, standard deviation 5, correlation 0.8."""
    draw = np.random.default_rng(seed)
    lengths = draw.multivariate_normal((15, 15), ((25, 20), (20, 25)), PAIRS).round().clip(3, LONGEST).astype(int)
    source, target = (
        TokenRows(
            draw.integers(len(SPECIALS), vocabulary, side.sum(), dtype=np.int32), np.concatenate(([0], side.cumsum()))
        )
        for side in lengths.T
    )
    return source, target


class Measured(NamedTuple):
    first_loss: float
    wall: list[float]  # seconds of every round
    cpu: list[float]


def measure(peers: dict[str, Peer], rounds: int, wait: Callable[[], None]) -> dict[str, Measured]:
    measured = {}
    for name, peer in peers.items():
        measured[name] = Measured(peer.train().loss, [], [])
        peer.train()  # shapes met for the second time are recorded
    for _ in range(rounds):  # in turns, so that a noisy moment hits all alike
        for name, peer in peers.items():
            wait()
            began = time.perf_counter()
            trained = peer.train()
            wait()
            measured[name].wall.append(time.perf_counter() - began)
            measured[name].cpu.append(trained.cpu_seconds)
    return measured


def ratios(one: list[float], other: list[float]) -> list[float]:
    """The median, the lowest and the highest ratio within a round."""
    of_rounds = [a / b for a, b in zip(one, other, strict=True)]
    return [round(value, 3) for value in (statistics.median(of_rounds), min(of_rounds), max(of_rounds))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--joeynmt", type=Path, help="the python of an environment with JoeyNMT 2.3.0; on the CPU only")
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--embedding", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=512, help="of the GRUs; the attention is as wide")
    parser.add_argument("--readout", type=int, default=0, help="input of the output layer; 0: as hidden, as in JoeyNMT")
    parser.add_argument("--batch-tokens", type=int, default=0, help="0: 1,024 on the CPU, 4,096 on CUDA")
    parser.add_argument("--batches", type=int, default=0, help="in a round; 0: 6 on the CPU, 50 on CUDA")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: torch's choice")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.joeynmt and arguments.device != "cpu":
        parser.error("--joeynmt is measured with --device cpu")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    on_cuda = device.type == "cuda"
    batch_tokens = arguments.batch_tokens or (4096 if on_cuda else 1024)
    count = arguments.batches or (50 if on_cuda else 6)

    source, target = sentence_pairs(arguments.vocabulary, arguments.seed)
    multiple = 8 if on_cuda else 1  # as the training loop plans its batches
    plan = BatchPlan(source.lengths, target.lengths, batch_tokens, arguments.seed, multiple=multiple)
    rows = plan.epoch(0)[:count]
    plain_batches = [collate(source, target, some) for some in rows]
    our_batches = [collate(source, target, some, multiple, batch_tokens if on_cuda else 0) for some in rows]
    tokens = sum(int((batch.target_out != PAD).sum()) for batch in plain_batches)

    def ours() -> Bahdanau:
        torch.manual_seed(arguments.seed)
        config = BahdanauConfig(
            embedding=arguments.embedding, width=arguments.hidden, readout=arguments.readout or arguments.hidden
        )
        size = arguments.vocabulary
        model: Any = build_model("bahdanau", config, source_vocabulary=size, target_vocabulary=size, shared=False)
        for p in model.parameters():  # the paper's small numbers would give all models the same first loss
            nn.init.normal_(p, std=3 * p.shape[-1] ** -0.5 if p.dim() > 1 else 0.5)
        return model

    def plain() -> PlainLoop:
        hidden = arguments.hidden
        model = PlainLoop(arguments.vocabulary, arguments.embedding, hidden, hidden, arguments.readout or hidden)
        copy_weights(ours(), model)
        return model

    peers: dict[str, Peer] = {
        "plain loop": Plain(plain(), plain_batches, device, low=False),
        "regard": Ours(ours(), our_batches, device, "auto"),
    }
    if on_cuda:
        peers["plain loop, bfloat16"] = Plain(plain(), plain_batches, device, low=True)
        peers["regard, float32"] = Ours(ours(), our_batches, device, "float32")
    with tempfile.TemporaryDirectory(prefix="regard-speed-") as name, contextlib.ExitStack() as ending:
        if arguments.joeynmt:
            sizes = {key: getattr(arguments, key) for key in ("vocabulary", "embedding", "hidden", "seed")}
            joeynmt = JoeyNMT(arguments.joeynmt, plain_batches, Path(name), sizes)
            ending.callback(joeynmt.close)
            peers["JoeyNMT"] = joeynmt
        measured = measure(peers, arguments.rounds, torch.cuda.synchronize if on_cuda else lambda: None)

    results = []
    for name, peer in peers.items():
        one, our = measured[name], measured["regard"]
        row = {
            "peer": name,
            "target_tokens_per_second": round(tokens / statistics.median(one.wall)),
            "fastest_round": round(tokens / min(one.wall)),
            "target_tokens_per_cpu_second": round(tokens / statistics.median(one.cpu)),
            "times_of_regard": ratios(one.wall, our.wall),
            "cpu_times_of_regard": ratios(one.cpu, our.cpu),
            "first_loss": round(one.first_loss, 5),
            "parameters": peer.parameters,
        }
        results.append(row)
        machine = torch.cuda.get_device_name() if on_cuda else platform.processor() or platform.machine()
        setting = {
            "device": machine,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "rounds": arguments.rounds,
            "batches": len(rows),
            "batch_tokens": batch_tokens,
        }
        sizes = {key: getattr(arguments, key) for key in ("vocabulary", "embedding", "hidden")}
        print(json.dumps({**row, **setting, **sizes, "readout": arguments.readout or arguments.hidden}), flush=True)
    print(f"{'':22} {'':11} {'':11} {'target tokens per second':>30} {'time, as multiple of regard':>31}")
    print(
        f"{'peer':22} {'parameters':>11} {'first loss':>11} {'median':>10} {'fastest':>10} {'CPU':>8} "
        f"{'by the clock':>22} {'CPU':>8}"
    )
    for row in results:
        middle, low, high = row["times_of_regard"]
        print(
            f"{row['peer']:22} {row['parameters']:11,} {row['first_loss']:11.5f} {row['target_tokens_per_second']:10,} "
            f"{row['fastest_round']:10,} {row['target_tokens_per_cpu_second']:8,} "
            f"{f'{middle:.2f} ({low:.2f} to {high:.2f})':>22} {row['cpu_times_of_regard'][0]:8.2f}"
        )


if __name__ == "__main__":
    main()
