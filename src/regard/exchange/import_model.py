"""Models of other programs, by whatever they are: one function that looks at the files and calls the right reader.

    regard.import_model("opus-mt-en-de", "run")                       # Hugging Face: Marian, GPT-2, BERT
    regard.import_model("ctranslate2-folder", "run")                  # model.bin, dequantised
    regard.import_model("checkpoint.pt", "run", pieces="spm.model")   # OpenNMT-py, fairseq

Nothing of a file is run, whatever it is (docs/importing.md).
"""

from __future__ import annotations

from pathlib import Path

from regard.core.errors import CheckpointError, ConfigError
from regard.core.files import check_place
from regard.exchange.fairseq_import import CHECKPOINTS

KINDS = "a Hugging Face Marian, GPT-2 or BERT, a CTranslate2 Transformer, or a checkpoint of OpenNMT-py or fairseq"


def import_model(
    path: str | Path,
    out: str | Path,
    *,
    pieces: str | Path | None = None,
    target_pieces: str | Path | None = None,
    source_end: bool | None = None,
    two_texts: bool = False,
) -> Path:
    """Makes a run folder of another program's model: for `regard.load`, and for all commands.

    `pieces` is the SentencePiece model that texts are cut by, `target_pieces` the target's, where it has its own; both are for
    CTranslate2, OpenNMT-py and fairseq. `source_end`, for CTranslate2, says whether sources end with EOS. `two_texts`, for BERT,
    says that a classifier reads pairs of texts.
    """
    path, out = Path(path), Path(out)
    given = _existing(pieces), _existing(target_pieces)
    kind, file = kind_of(path)
    options = {
        "pieces": (pieces is not None or target_pieces is not None, ("ctranslate2", "checkpoint")),
        "source_end": (source_end is not None, ("ctranslate2",)),
        "two_texts": (two_texts, ("bert",)),
    }
    for name, (asked, kinds) in options.items():
        if asked and kind not in kinds:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(option, f"it is not for models of this kind ({kind})", "Leave it out")
    if kind == "ctranslate2":
        from regard.exchange.import_ctranslate2 import import_ctranslate2

        return import_ctranslate2(path, out, pieces=given, source_end=source_end)
    if kind == "checkpoint":
        return _import_checkpoint(file, out, given)
    if kind == "marian":
        from regard.exchange.huggingface_marian_import import import_marian

        return import_marian(path, out)
    if kind == "gpt2":
        from regard.exchange.huggingface_gpt2 import import_gpt2

        return import_gpt2(path, out)
    from regard.exchange.huggingface_bert import import_bert

    return import_bert(path, out, two_texts=two_texts)


def kind_of(path: Path) -> tuple[str, Path]:
    """Which reader a path is for, and the file that says so."""
    if not path.exists():
        raise CheckpointError(path, "there is no such file or folder", f"Give {KINDS}")
    if path.is_file():
        return "checkpoint", path
    for entry in path.iterdir():
        check_place(entry)
    if (path / "run.json").is_file():
        raise CheckpointError(path, "it is a run of regard's own", "Use it as it is")
    if (path / "model.bin").is_file():
        return "ctranslate2", path
    if (path / "config.json").is_file():
        from regard.exchange.huggingface_files import model_type

        kind = model_type(path)
        if kind not in ("marian", "gpt2", "bert"):
            what = "it has no model_type" if kind is None else f"model_type={kind[:60]!r} is not known"
            raise CheckpointError(path / "config.json", what, f"Give {KINDS}")
        return kind, path / "config.json"
    for name in CHECKPOINTS:
        if (path / name).is_file():
            return "checkpoint", path / name
    raise CheckpointError(path, "there is no model of a known kind in it", f"Give {KINDS}")


def _import_checkpoint(path: Path, out: Path, pieces: tuple[Path | None, Path | None]) -> Path:
    from regard.exchange.fairseq_import import import_fairseq, is_fairseq
    from regard.exchange.opennmt_import import import_opennmt, is_opennmt
    from regard.exchange.restricted_unpickling_torch import TorchFile

    file = TorchFile(path)
    if is_opennmt(file.value):
        return import_opennmt(file, out, pieces=pieces)
    if is_fairseq(file.value):
        return import_fairseq(file, out, pieces=pieces)
    raise CheckpointError(path, "it is neither of OpenNMT-py nor of fairseq", f"Give {KINDS}")


def _existing(path: str | Path | None) -> Path | None:
    if path is not None and not Path(path).is_file():
        raise CheckpointError(path, "there is no such file", "Give a SentencePiece model")
    return None if path is None else Path(path)
