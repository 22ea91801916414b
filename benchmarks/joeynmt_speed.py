"""The JoeyNMT 2.3.0 side of `recurrent_speed.py` and `train_cpu.py`, which run this with the python of JoeyNMT's own environment.

    pip install joeynmt==2.3.0 importlib_metadata    # it imports the latter without asking for it

Reads batches and settings from the folder it is given, says how many parameters its model has, then trains through all
batches for each line of input and says what the first loss per token was and how much processor time it took.

The model, the batches, the loss, the clipping and the optimizer are JoeyNMT's own, and so is the training step:
`TrainManager._train_step`, then what `train_and_validate` does with a batch, less its logs, validations and checkpoints.
Changed from outside: `ReduceLROnPlateau` no longer takes `verbose`, which JoeyNMT still gives, so the word is dropped; a
scheduler has to be named, and this one acts only after validations.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import joeynmt.builders  # pyright: ignore[reportMissingImports]
import numpy as np
import torch
from joeynmt.batch import Batch  # pyright: ignore[reportMissingImports]
from joeynmt.config import parse_train_args  # pyright: ignore[reportMissingImports]
from joeynmt.model import build_model  # pyright: ignore[reportMissingImports]
from joeynmt.training import TrainManager  # pyright: ignore[reportMissingImports]
from joeynmt.vocabulary import Vocabulary  # pyright: ignore[reportMissingImports]

SYMBOLS = SimpleNamespace(
    unk_token="<unk>",
    pad_token="<pad>",
    bos_token="<s>",
    eos_token="</s>",
    sep_token=None,
    lang_tags=[],
    unk_id=0,
    pad_id=1,
    bos_id=2,
    eos_id=3,
)
THEIRS = np.array([1, 2, 3, 0])  # regard's padding, begin, end and unknown token, in JoeyNMT's order


def without_verbose(optimizer, verbose, **settings):
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **settings)


def recurrent(settings: dict) -> dict:
    """A Bahdanau translator, in JoeyNMT's words."""
    embedding, hidden = settings["embedding"], settings["hidden"]
    return {
        "initializer": "xavier_uniform",
        "encoder": {
            "type": "recurrent",
            "rnn_type": "gru",
            "bidirectional": True,
            "embeddings": {"embedding_dim": embedding, "dropout": 0.0},
            "hidden_size": hidden,
            "num_layers": 1,
            "dropout": 0.0,
        },
        "decoder": {
            "type": "recurrent",
            "rnn_type": "gru",
            "embeddings": {"embedding_dim": embedding, "dropout": 0.0},
            "hidden_size": hidden,
            "num_layers": 1,
            "dropout": 0.0,
            "hidden_dropout": 0.0,
            "attention": "bahdanau",
            "init_hidden": "bridge",
            "input_feeding": True,
        },
    }


def transformer(settings: dict) -> dict:
    """A Transformer with normalised inputs of its sub-layers and one table for all that are tied."""
    part = {
        "type": "transformer",
        "num_layers": settings["layers"],
        "num_heads": settings["heads"],
        "embeddings": {"embedding_dim": settings["width"], "scale": True, "dropout": settings["dropout"]},
        "hidden_size": settings["width"],
        "ff_size": settings["inner"],
        "dropout": settings["dropout"],
        "layer_norm": "pre",
    }
    tied = {"tied_embeddings": True, "tied_softmax": True}
    return {"initializer": "xavier_uniform", **tied, "encoder": dict(part), "decoder": dict(part)}


def make_manager(settings: dict, folder: Path) -> TrainManager:
    joeynmt.builders.ReduceLROnPlateau = without_verbose
    config = transformer(settings) if "heads" in settings else recurrent(settings)
    smoothing = settings.get("smoothing", 0.0)
    training = {
        "optimizer": "adam",
        "adam_betas": settings["betas"],
        "learning_rate": settings["lr"],
        "scheduling": "plateau",
        "clip_grad_norm": settings["clip"],
        "normalization": "tokens",
        "label_smoothing": smoothing,
        "batch_size": 1,  # of a data loader that is not used
    }
    words = [f"word{i}" for i in range(settings["vocabulary"] - len(THEIRS))]
    source = Vocabulary(words, SYMBOLS)
    target = source if config.get("tied_embeddings") else Vocabulary(words, SYMBOLS)
    model = build_model(config, source, target)
    model.loss_function = ("crossentropy", smoothing)
    return TrainManager(
        rank=0,
        model=model,
        model_dir=folder,
        device=torch.device("cpu"),
        autocast={"device_type": "cpu", "enabled": False},
        seed=settings["seed"],
        train_args=parse_train_args(training),
    )


def make_batches(folder: Path) -> list[Batch]:
    with np.load(folder / "batches.npz", allow_pickle=False) as arrays:
        batches = []
        for i in range(len(arrays.files) // 3):
            lengths = torch.from_numpy(arrays[f"lengths{i}"])
            source, target = (
                torch.from_numpy(np.where(ids < len(THEIRS), THEIRS[np.minimum(ids, len(THEIRS) - 1)], ids))
                for ids in (arrays[f"source{i}"], arrays[f"target{i}"])
            )
            batches.append(
                Batch(
                    src=source,
                    src_length=lengths,
                    src_prompt_mask=None,
                    trg=target,
                    trg_prompt_mask=None,
                    indices=torch.arange(len(source)),
                    device=torch.device("cpu"),
                    pad_index=SYMBOLS.pad_id,
                    eos_index=SYMBOLS.eos_id,
                )
            )
    return batches


def train(manager: TrainManager, batches: list[Batch]) -> dict[str, float]:
    began = time.process_time()
    losses = []
    for batch in batches:
        loss, _ = manager._train_step(batch)
        manager.clip_grad_fun(parameters=manager.model.parameters())
        manager.optimizer.step()
        manager.model.zero_grad()
        losses.append(loss)
    return {"loss": losses[0], "cpu_seconds": time.process_time() - began}


def main() -> None:
    folder = Path(sys.argv[1])
    settings = json.loads((folder / "settings.json").read_text())
    torch.set_num_threads(settings["threads"])
    torch.manual_seed(settings["seed"])
    manager, batches = make_manager(settings, folder), make_batches(folder)
    print(json.dumps({"parameters": sum(p.numel() for p in manager.model.parameters())}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(train(manager, batches)), flush=True)


if __name__ == "__main__":
    main()
