"""The peer of time_to_quality.py: a Hugging Face MarianMTModel, trained from nothing on regard's tokens by Hugging Face's Trainer.

It has the shape of regard's Transformer (widths, layers, heads, one table of words for both sides and the output), Marian's own
layout (post-norm, sinusoids, embeddings scaled by the root of the width) and the usual settings of the Trainer: bfloat16, fused
AdamW, label smoothing, batches of sentences of like length, padded to the longest of them and to a multiple of 8. It is given so
many seconds, not steps: its learning rate goes by the clock, so that it ends with the time whatever a step takes, and no
trial has to guess. Without `accelerate`, which the Trainer needs, a plain loop does the same with the Trainer's own sampler and
label smoothing.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from regard.core.errors import ConfigError
from regard.core.specials import BOS, EOS, PAD, UNK
from regard.data.store import TokenRows, TokenStore
from regard.data.tokenizers import TokenizerPair
from regard.search.config import SearchConfig
from regard.training.config import RunConfig

transformers.utils.logging.disable_progress_bar()

IGNORED = -100  # a label that does not count, in Hugging Face's losses
POSITIONS = 1024
DECODED_TOKENS = {"cuda": 16_384, "cpu": 1024}  # source tokens of a batch that is translated, padding included
MULTIPLE = 8  # of tokens, to which rows are padded: fewer shapes, which suit the tensor cores
NEVER = 1_000_000_000  # steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peer:
    """How it is trained."""

    rows: int  # sentence pairs in a batch
    lr: float = 5e-4
    warmup: float = 0.4  # a part of the time; with a tenth it learns the target language, and not to attend
    schedule: Literal["linear", "cosine"] = "linear"
    label_smoothing: float = 0.1
    dropout: float | None = None  # None: as regard's model has it
    clip: float = 1.0
    compile: bool = False
    seed: int = 1
    workers: int = 4
    log_every: int = 50

    def rate(self, part: float, stepped: float) -> float:
        """Of the learning rate's peak, when such a part of the time is over, and such a part of it went into steps.

        It rises with the latter: what comes before the first step, compiling for one, must not take the warm-up away.
        """
        left = max(0.0, (1 - part) / (1 - self.warmup))
        falling = left if self.schedule == "linear" else 0.5 * (1 - math.cos(math.pi * min(1.0, left)))
        return min(1.0, stepped / self.warmup, falling)


class Pairs(Dataset):
    """Token pairs as the Trainer wants them. The source and the labels end with EOS."""

    def __init__(self, store: TokenStore):
        self._source, self._target = _with_ends(store.source), _with_ends(store.target)
        self.target_tokens = len(self._target.flat)

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, row: int) -> dict[str, list[int]]:
        if not 0 <= row < len(self):
            raise IndexError(row)  # ends a loop over all
        return {"input_ids": self._source[row], "labels": self._target[row]}


def _with_ends(rows: TokenRows) -> TokenRows:
    flat = np.insert(np.asarray(rows.flat), rows.offsets[1:], EOS)
    return TokenRows(flat, rows.offsets + np.arange(len(rows.offsets)))


def collate(examples: Sequence[dict[str, list[int]]]) -> dict[str, Tensor]:
    source = _padded([example["input_ids"] for example in examples], PAD)
    labels = _padded([example["labels"] for example in examples], IGNORED)
    read = labels.roll(1, dims=1)
    read[:, 0] = BOS
    return {
        "input_ids": source,
        "attention_mask": (source != PAD).long(),
        "labels": labels,
        "decoder_input_ids": read.masked_fill(read == IGNORED, PAD),
    }


def _padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    width = -(-max(map(len, rows)) // MULTIPLE) * MULTIPLE
    table = np.full((len(rows), width), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return torch.from_numpy(table)


def build(config: RunConfig, tokenizers: TokenizerPair, dropout: float | None = None) -> Any:
    """A new MarianMTModel of the shape of the Transformer that a configuration asks for."""
    shape = config.model
    if shape.name != "transformer" or not tokenizers.joint:
        what = f"the model is {shape.name}, the vocabulary {'joint' if tokenizers.joint else 'of two sides'}"
        raise ConfigError("marian", what, "Use model.name=transformer and tokenizer.joint=true, or --systems regard")
    encoder, decoder = shape.depth
    inner = shape.inner or 4 * shape.width
    settings = transformers.MarianConfig(
        vocab_size=tokenizers.source.size,
        d_model=shape.width,
        encoder_layers=encoder,
        decoder_layers=decoder,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=inner,
        decoder_ffn_dim=inner,
        activation_function=shape.activation,
        dropout=shape.dropout if dropout is None else dropout,
        attention_dropout=shape.attention_dropout,
        activation_dropout=shape.activation_dropout,
        max_position_embeddings=POSITIONS,
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        forced_eos_token_id=None,
        decoder_start_token_id=BOS,
    )
    torch.manual_seed(config.train.seed)
    return transformers.MarianMTModel(settings)


def has_trainer() -> bool:
    from transformers.utils.import_utils import is_accelerate_available

    return is_accelerate_available()


class Timer:
    """How much of the time is over, and how much of it since the first step was done."""

    def __init__(self, seconds: float):
        self.seconds, self.stepped = seconds, 0.0
        self.start()

    def start(self) -> None:
        self.began = time.monotonic()

    def part(self) -> float:
        return (time.monotonic() - self.began) / self.seconds

    def schedule(self, optimizer: torch.optim.Optimizer, peer: Peer) -> torch.optim.lr_scheduler.LambdaLR:
        def rate(step: int) -> float:
            part = self.part()
            if step <= 1:
                self.stepped = part
            return peer.rate(part, part - self.stepped)

        return torch.optim.lr_scheduler.LambdaLR(optimizer, rate)


def fit(model: Any, data: Pairs, peer: Peer, seconds: float, folder: Path) -> tuple[int, float]:
    """Trains for so many seconds; gives the steps taken and when it began. The device may be a few steps behind the clock."""
    timer = Timer(seconds)
    steps = (_by_trainer if has_trainer() else _by_loop)(model, data, peer, timer, folder)
    return steps, timer.began


def _by_trainer(model: Any, data: Pairs, peer: Peer, timer: Timer, folder: Path) -> int:
    class Stopping(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop |= timer.part() >= 1

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.on_log(args, state, control)

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step < 2:
                self.on_log(args, state, control)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            row = {"step": state.global_step, "seconds": round(timer.part() * timer.seconds, 2), **(logs or {})}
            with (folder / "log.jsonl").open("a") as log:
                log.write(json.dumps(row) + "\n")

    class Timed(transformers.Seq2SeqTrainer):
        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            self.lr_scheduler = timer.schedule(optimizer or self.optimizer, peer)
            return self.lr_scheduler

    folder.mkdir(parents=True, exist_ok=True)
    on_cuda = torch.cuda.is_available()
    kind = transformers.Seq2SeqTrainingArguments
    grouped = {"train_sampling_strategy": "group_by_length", "group_by_length": True}  # its name has changed
    known = {field.name for field in dataclasses.fields(kind)}
    name = next(name for name in grouped if name in known)
    arguments = kind(
        output_dir=str(folder),
        max_steps=NEVER,
        per_device_train_batch_size=peer.rows,
        learning_rate=peer.lr,
        label_smoothing_factor=peer.label_smoothing,
        max_grad_norm=peer.clip,
        weight_decay=0.0,
        adam_beta2=0.98,
        adam_epsilon=1e-9,
        optim="adamw_torch_fused" if on_cuda else "adamw_torch",
        bf16=on_cuda,
        use_cpu=not on_cuda,
        tf32=True if on_cuda else None,
        torch_compile=peer.compile,
        dataloader_num_workers=peer.workers,
        dataloader_pin_memory=on_cuda,
        dataloader_persistent_workers=peer.workers > 0,
        remove_unused_columns=False,
        save_strategy="no",
        logging_steps=peer.log_every,
        logging_nan_inf_filter=False,  # else it waits for the device at every step
        report_to="none",
        disable_tqdm=True,
        seed=peer.seed,
        **{name: grouped[name]},
    )
    trainer = Timed(model=model, args=arguments, train_dataset=data, data_collator=collate, callbacks=[Stopping()])
    trainer.remove_callback(transformers.PrinterCallback)
    timer.start()  # what it imports on the way does not count
    trainer.train()
    return trainer.state.global_step


def _by_loop(model: Any, data: Pairs, peer: Peer, timer: Timer, folder: Path) -> int:
    """What the Trainer does with these settings on one device."""
    from transformers.trainer_pt_utils import LabelSmoother

    del folder
    torch.manual_seed(peer.seed)
    device = _device()
    on_cuda = device.type == "cuda"
    if on_cuda:
        torch.set_float32_matmul_precision("high")
    model.to(device).train()
    forward = torch.compile(model) if peer.compile else model
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=peer.lr, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, fused=on_cuda
    )
    schedule = timer.schedule(optimizer, peer)
    smoothed = LabelSmoother(epsilon=peer.label_smoothing)
    step = 0
    for step, batch in enumerate(_batches(data, peer, on_cuda), 1):
        inputs = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        labels = inputs.pop("labels")
        with torch.autocast(device.type, torch.bfloat16, enabled=on_cuda):
            outputs = forward(**inputs, use_cache=False)
        outputs = {"logits": outputs.logits.float()}
        loss = smoothed(outputs, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), peer.clip)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % peer.log_every == 0:
            loss.item()  # waits for the device, as the Trainer's log does
        if timer.part() >= 1:
            break
    return step


def _batches(data: Pairs, peer: Peer, on_cuda: bool) -> Iterator[dict[str, Tensor]]:
    from transformers.trainer_pt_utils import LengthGroupedSampler

    lengths = [len(data[row]["input_ids"]) for row in range(len(data))]
    loader = DataLoader(
        data,
        batch_size=peer.rows,
        sampler=LengthGroupedSampler(peer.rows, lengths=lengths),
        collate_fn=collate,
        num_workers=peer.workers,
        pin_memory=on_cuda,
        persistent_workers=peer.workers > 0,
    )
    while True:
        yield from loader


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def translate(
    folder: Path, tokenizers: TokenizerPair, lines: Sequence[str], search: SearchConfig
) -> tuple[list[str], float]:
    """Translations by Hugging Face's generate with the beam, the length normalisation and the longest lengths of `search`; seconds.

    Lengths are the batch's, not a sentence's. Sentences of like length go together.
    """
    device = _device()
    model: Any = transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float32)
    model.to(device).eval()
    began = time.monotonic()
    sources = [[*ids[: POSITIONS - 1], EOS] for ids in tokenizers.source.encode(lines)]
    written: list[list[int]] = [[] for _ in lines]
    for rows in _by_length([len(source) for source in sources], DECODED_TOKENS[device.type]):
        tokens = _padded([sources[row] for row in rows], PAD).to(device)
        with torch.inference_mode():
            out = model.generate(
                input_ids=tokens,
                attention_mask=(tokens != PAD).long(),
                num_beams=search.beam,
                do_sample=False,
                length_penalty=search.alpha if search.length_norm == "plain" else 1.0,
                max_new_tokens=min(search.length_limit(tokens.shape[1] - 1), POSITIONS - 2),
                suppress_tokens=[PAD, BOS, *([UNK] if search.ban_unknown else [])],
            )
        for row, ids in zip(rows, out.tolist(), strict=True):
            ids = ids[1:]
            written[row] = ids[: ids.index(EOS)] if EOS in ids else ids
    return tokenizers.target.decode(written), time.monotonic() - began


def _by_length(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Rows of batches of at most so many tokens, the longest sentences first."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > most:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
