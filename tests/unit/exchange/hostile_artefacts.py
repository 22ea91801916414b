"""Hostile artefacts: runs, checkpoints, weights and vocabularies that lie, climb, swell, or would run a program.

Each function writes one into a folder and gives the path to open. `@case(loader)` says what opens it (hostile_runner.py).
Payloads write a file `MARK` beside the folder if they ever run; `SECRET` lies there to be stolen.
"""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from import_checkpoints import fairseq, save_fairseq, save_opennmt
from import_checkpoints import opennmt as opennmt_parts

from regard.core.files import write_manifest

MARK, SECRET = "ran.txt", "secret.txt"


@dataclass(frozen=True)
class Bases:
    """Good artefacts to spoil: a finished run with its checkpoints, a CTranslate2 folder, a Marian folder."""

    run: Path
    ctranslate2: Path
    marian: Path


Maker = Callable[[Path, Bases], Path]
CASES: dict[str, tuple[str, Maker]] = {}


def case(loader: str) -> Callable[[Maker], Maker]:
    def add(make: Maker) -> Maker:
        CASES[make.__name__] = (loader, make)
        return make

    return add


class Payload:
    """Pickles as a call of os.system that would leave a mark."""

    def __init__(self, folder: Path):
        self.command = f"touch '{folder.parent / MARK}'"

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def run_of(folder: Path, bases: Bases, *, checkpoints: bool = False) -> Path:
    ignored = shutil.ignore_patterns("tensorboard", *([] if checkpoints else ["checkpoints"]))
    shutil.copytree(bases.run, folder / "run", ignore=ignored)
    return folder / "run"


def listed(run: Path) -> Path:
    """The manifest made right again: the artefact comes with hashes of its own."""
    names = json.loads((run / "manifest.json").read_text())["files"]
    write_manifest(run, [name for name in names if (run / name).is_file()])
    return run


def unfinished(run: Path) -> Path:
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**about, "status": "running"}))
    (run / "model.safetensors").unlink()
    listed(run)
    return run


def newest(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*"))


def header(about: Any, content: bytes = b"") -> bytes:
    text = about if isinstance(about, bytes) else json.dumps(about).encode()
    return struct.pack("<Q", len(text)) + text + content


def tensor(shape: list[Any], begin: int, end: int, kind: str = "F32") -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


def torch_pickle(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


# Runs, for regard.load


def with_weights(folder: Path, bases: Bases, content: bytes) -> Path:
    run = run_of(folder, bases)
    (run / "model.safetensors").write_bytes(content)
    return listed(run)


@case("load")
def weights_are_a_pickle(folder, bases):
    return with_weights(folder, bases, pickle.dumps(Payload(folder)))


@case("load")
def weights_are_an_archive_of_torch(folder, bases):
    return with_weights(folder, bases, torch_pickle({"x": Payload(folder)}))


@case("load")
def weights_have_a_header_beyond_all_sizes(folder, bases):
    return with_weights(folder, bases, struct.pack("<Q", 1 << 62) + b"{}")


@case("load")
def weights_have_a_header_beyond_the_file(folder, bases):
    return with_weights(folder, bases, struct.pack("<Q", 50_000_000) + b"{}" * 100)


@case("load")
def weights_have_a_header_of_a_million_tensors(folder, bases):
    many = b",".join(b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(40_000))
    return with_weights(folder, bases, header(b"{" + many + b"}"))


@case("load")
def weights_have_a_deep_header(folder, bases):
    return with_weights(folder, bases, header(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"))


@case("load")
def weights_have_a_giant_shape(folder, bases):
    return with_weights(folder, bases, header({"output.bias": tensor([1 << 40, 1 << 20], 0, 8)}, b"\0" * 8))


@case("load")
def weights_have_a_shape_that_overflows(folder, bases):
    return with_weights(folder, bases, header({"output.bias": tensor([1 << 62, 8], 0, 0)}))


@case("load")
def weights_overlap(folder, bases):
    both = {"output.bias": tensor([4], 0, 16), "target_embedding.weight": tensor([4], 8, 24)}
    return with_weights(folder, bases, header(both, b"\0" * 24))


@case("load")
def weights_have_a_hole(folder, bases):
    both = {"output.bias": tensor([2], 0, 8), "target_embedding.weight": tensor([2], 16, 24)}
    return with_weights(folder, bases, header(both, b"\0" * 24))


@case("load")
def weights_have_a_name_twice(folder, bases):
    one = json.dumps(tensor([2], 0, 8))
    return with_weights(folder, bases, header(f'{{"a":{one},"a":{one}}}'.encode(), b"\0" * 8))


@case("load")
def weights_have_sizes_that_are_no_numbers(folder, bases):
    return with_weights(folder, bases, header(b'{"NaN":{"dtype":"F32","shape":[NaN],"data_offsets":[0,NaN]}}'))


@case("load")
def weights_have_an_unknown_type(folder, bases):
    return with_weights(folder, bases, header({"output.bias": tensor([1], 0, 8, "OBJECT")}, b"\0" * 8))


@case("load")
def weights_are_a_link(folder, bases):
    run = run_of(folder, bases)
    content = (run / "model.safetensors").read_bytes()
    (folder.parent / "stolen.safetensors").write_bytes(content)
    (run / "model.safetensors").unlink()
    (run / "model.safetensors").symlink_to(folder.parent / "stolen.safetensors")
    return run


@case("load")
def the_configuration_is_a_link(folder, bases):
    run = run_of(folder, bases)
    (folder.parent / "stolen.json").write_bytes((run / "config.json").read_bytes())
    (run / "config.json").unlink()
    (run / "config.json").symlink_to(folder.parent / "stolen.json")
    return run


@case("load")
def the_manifest_is_a_link(folder, bases):
    run = run_of(folder, bases)
    (folder.parent / "stolen manifest").write_bytes((run / "manifest.json").read_bytes())
    (run / "manifest.json").unlink()
    (run / "manifest.json").symlink_to(folder.parent / "stolen manifest")
    return run


@case("load")
def the_best_checkpoint_is_a_link(folder, bases):
    run = unfinished(run_of(folder, bases, checkpoints=True))
    shutil.copytree(run / "checkpoints" / "best", folder.parent / "stolen checkpoint", dirs_exist_ok=True)
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "best").symlink_to(folder.parent / "stolen checkpoint")
    return run


def configured(folder: Path, bases: Bases, change: Callable[[dict[str, Any]], Any]) -> Path:
    run = run_of(folder, bases)
    about = json.loads((run / "config.json").read_text())
    changed = change(about)
    (run / "config.json").write_text(changed if isinstance(changed, str) else json.dumps(about))
    return listed(run)


@case("load")
def the_configuration_names_a_module(folder, bases):
    (folder / "evil_module.py").write_text(f"open({str(folder.parent / MARK)!r}, 'w')")
    return configured(folder, bases, lambda about: about["model"].update(name="os.system"))


@case("load")
def the_configuration_climbs_to_a_module(folder, bases):
    return configured(folder, bases, lambda about: about["model"].update(name="../../evil_module"))


@case("load")
def the_configuration_has_a_class_to_import(folder, bases):
    return configured(folder, bases, lambda about: about["model"].update(_target_="subprocess.Popen"))


@case("load")
def the_configuration_asks_for_a_giant(folder, bases):
    return configured(folder, bases, lambda about: about["model"].update(width=16384, inner=1 << 18, layers=1000))


@case("load")
def the_configuration_has_a_vocabulary_beyond_all_sizes(folder, bases):
    return configured(folder, bases, lambda about: about["vocabulary"].update(source=1 << 60, target=1 << 60))


@case("load")
def the_configuration_has_a_number_of_thousands_of_digits(folder, bases):
    return configured(folder, bases, lambda about: '{"format": 1, "model": {"width": ' + "9" * 200_000 + "}}")


@case("load")
def the_configuration_is_deep(folder, bases):
    return configured(folder, bases, lambda about: "[" * 500_000)


@case("load")
def the_configuration_holds_no_numbers(folder, bases):
    return configured(
        folder, bases, lambda about: about["model"].update(dropout=float("nan"), norm_epsilon=float("inf"))
    )


@case("load")
def the_configuration_is_not_that_of_the_manifest(folder, bases):
    run = run_of(folder, bases)
    (run / "config.json").write_text((run / "config.json").read_text() + " ")
    return run


@case("load")
def the_weights_are_not_those_of_the_manifest(folder, bases):
    run = run_of(folder, bases)
    content = bytearray((run / "model.safetensors").read_bytes())
    content[-5] ^= 1
    (run / "model.safetensors").write_bytes(content)
    return run


def manifested(folder: Path, bases: Bases, files: dict[str, Any]) -> Path:
    run = run_of(folder, bases)
    about = json.loads((run / "manifest.json").read_text())
    about["files"] = {**files, **about["files"]}
    (run / "manifest.json").write_text(json.dumps(about))
    return run


@case("load")
def the_manifest_climbs(folder, bases):
    return manifested(folder, bases, {f"../../{SECRET}": {"bytes": 6, "sha256": "0" * 64}})


@case("load")
def the_manifest_names_a_file_of_the_system(folder, bases):
    return manifested(folder, bases, {str(folder.parent / SECRET): {"bytes": 6, "sha256": "0" * 64}})


@case("load")
def the_manifest_is_no_manifest(folder, bases):
    run = run_of(folder, bases)
    (run / "manifest.json").write_text('{"format": 1, "files": ["config.json"]}')
    return run


def tokenized(folder: Path, bases: Bases, content: bytes) -> Path:
    run = run_of(folder, bases)
    (run / "tokenizer.json").write_bytes(content)
    return listed(run)


def tokenizer_of(bases: Bases) -> dict[str, Any]:
    return json.loads((bases.run / "tokenizer.json").read_text())


@case("load")
def the_tokenizer_is_a_pickle(folder, bases):
    return tokenized(folder, bases, pickle.dumps(Payload(folder)))


@case("load")
def the_tokenizer_is_deep(folder, bases):
    return tokenized(folder, bases, b'{"a":' * 100_000)


@case("load")
def the_tokenizer_is_far_too_large(folder, bases):
    run = tokenized(folder, bases, b"{}")
    with open(run / "tokenizer.json", "r+b") as file:
        file.truncate(300 << 20)  # takes no room on the disk
    about = json.loads((run / "manifest.json").read_text())
    about["files"]["tokenizer.json"]["bytes"] = 300 << 20
    (run / "manifest.json").write_text(json.dumps(about))
    return run


@case("load")
def the_tokenizer_has_a_map_that_swells(folder, bases):
    about = tokenizer_of(bases)
    trie = struct.pack("<I", 1 << 10) + struct.pack("<1I", 1 << 8) * 255 + b"\xff\xff\xff\x7f" + b"x" * 5000
    charsmap = base64.b64encode(struct.pack("<I", (1 << 32) - 4) + trie).decode()
    step = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    about["normalizer"] = {"type": "Sequence", "normalizers": [step]}
    return tokenized(folder, bases, json.dumps(about).encode())


@case("load")
def the_tokenizer_has_a_map_by_itself(folder, bases):
    about = tokenizer_of(bases)
    wild = base64.b64encode(struct.pack("<I", 16) + struct.pack("<4I", *[0xFFFFFFFF] * 4) + b"x").decode()
    about["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": wild}
    return tokenized(folder, bases, json.dumps(about).encode())


@case("load")
def the_tokenizer_has_numbers_beyond_all_sizes(folder, bases):
    about = tokenizer_of(bases)
    about["model"]["vocab"]["evil"] = (1 << 32) - 2
    return tokenized(folder, bases, json.dumps(about).encode())


@case("engine")
def a_kept_model_of_ctranslate2_lies(folder, bases):
    """Files that a run brings along where converted models are kept, with hashes of their own."""
    import regard

    run = run_of(folder, bases)
    regard.load(run, "cpu", engine="ctranslate2", compute="float32")
    (kept,) = (run / "ctranslate2").iterdir()
    content = bytearray((kept / "model.bin").read_bytes())
    at = content.index(b"decoder/embeddings/weight\0") + len("decoder/embeddings/weight\0") + 1
    content[at : at + 4] = struct.pack("<I", 0x7FFFFFFF)
    (kept / "model.bin").write_bytes(content)
    write_manifest(kept)
    return run


# Checkpoints of runs, for regard.resume


def resumed(folder: Path, bases: Bases, name: str, content: bytes) -> Path:
    run = unfinished(run_of(folder, bases, checkpoints=True))
    for step in (run / "checkpoints").glob("step-*"):
        (step / name).write_bytes(content)
        write_manifest(step)
    return run


@case("resume")
def the_state_of_the_optimizer_is_a_pickle(folder, bases):
    return resumed(folder, bases, "optimizer.safetensors", pickle.dumps(Payload(folder)))


@case("resume")
def the_state_of_training_is_a_pickle(folder, bases):
    return resumed(folder, bases, "state.json", pickle.dumps(Payload(folder)))


@case("resume")
def the_state_of_training_is_deep(folder, bases):
    return resumed(folder, bases, "state.json", b"[" * 300_000)


@case("resume")
def the_weights_of_a_checkpoint_are_a_pickle(folder, bases):
    return resumed(folder, bases, "model.safetensors", torch_pickle([Payload(folder)]))


@case("resume")
def a_checkpoint_is_a_link(folder, bases):
    run = unfinished(run_of(folder, bases, checkpoints=True))
    step = newest(run)
    shutil.copytree(step, folder.parent / "stolen step", dirs_exist_ok=True)
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / step.name).symlink_to(folder.parent / "stolen step")
    return run


@case("resume")
def the_request_of_a_run_is_none(folder, bases):
    run = unfinished(run_of(folder, bases, checkpoints=True))
    (run / "run.json").write_text('{"status": "running", "given": {"model": {"name": "os.system"}}}')
    (run / "config.json").unlink()
    (run / "manifest.json").unlink()
    return run


# Models of other programs, for regard.import_model


def marian_of(folder: Path, bases: Bases) -> Path:
    shutil.copytree(bases.marian, folder / "theirs")
    return folder / "theirs"


def with_pickle(folder: Path, bases: Bases, content: bytes) -> Path:
    theirs = marian_of(folder, bases)
    (theirs / "model.safetensors").unlink()
    (theirs / "pytorch_model.bin").write_bytes(content)
    return theirs


@case("import")
def marian_weights_are_a_pickle(folder, bases):
    theirs = marian_of(folder, bases)
    (theirs / "model.safetensors").write_bytes(pickle.dumps(Payload(folder)))
    return theirs


@case("import")
def marian_pickle_calls_the_system(folder, bases):
    return with_pickle(folder, bases, torch_pickle({"model.shared.weight": Payload(folder)}))


@case("import")
def marian_old_pickle_calls_the_system(folder, bases):
    file = io.BytesIO()
    torch.save({"model.shared.weight": Payload(folder)}, file, _use_new_zipfile_serialization=False)
    return with_pickle(folder, bases, file.getvalue())


@case("import")
def marian_config_names_code(folder, bases):
    theirs = marian_of(folder, bases)
    about = json.loads((theirs / "config.json").read_text())
    about["auto_map"] = {"AutoModelForSeq2SeqLM": "evil_module.Model"}
    (theirs / "config.json").write_text(json.dumps(about))
    (theirs / "evil_module.py").write_text(f"open({str(folder.parent / MARK)!r}, 'w')")
    return theirs


@case("import")
def marian_config_is_a_link(folder, bases):
    theirs = marian_of(folder, bases)
    (folder.parent / "stolen config").write_bytes((theirs / "config.json").read_bytes())
    (theirs / "config.json").unlink()
    (theirs / "config.json").symlink_to(folder.parent / "stolen config")
    return theirs


@case("import")
def marian_index_climbs(folder, bases):
    theirs = marian_of(folder, bases)
    (folder.parent / "stolen.safetensors").write_bytes((theirs / "model.safetensors").read_bytes())
    (theirs / "model.safetensors").unlink()
    about = {"weight_map": {"model.shared.weight": "../../stolen.safetensors"}}
    (theirs / "model.safetensors.index.json").write_text(json.dumps(about))
    return theirs


@case("import")
def marian_vocabulary_is_deep(folder, bases):
    theirs = marian_of(folder, bases)
    (theirs / "vocab.json").write_text('{"a":' * 50_000)
    return theirs


@case("import")
def marian_vocabulary_lies(folder, bases):
    theirs = marian_of(folder, bases)
    (theirs / "vocab.json").write_text(json.dumps({"</s>": 0, "<unk>": 1, "x": 1 << 62}))
    return theirs


@case("import")
def marian_pieces_lie_of_their_length(folder, bases):
    theirs = marian_of(folder, bases)
    (theirs / "source.spm").write_bytes(b"\x0a\xff\xff\xff\xff\x07" + b"x" * 1000)
    return theirs


@case("import")
def marian_pieces_have_a_map_that_lies(folder, bases):
    theirs = marian_of(folder, bases)
    unknown = b"\x0a\x09\x0a\x05<unk>\x18\x02"
    charsmap = b"\xff\xff\xff\xff" + b"\0" * 100
    (theirs / "source.spm").write_bytes(
        unknown + b"\x1a" + bytes([len(charsmap) + 2]) + b"\x12" + bytes([len(charsmap)]) + charsmap
    )
    return theirs


def checkpoint(folder: Path, content: bytes) -> Path:
    (folder / "model.pt").write_bytes(content)
    return folder / "model.pt"


def zipped(members: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def pickled(steps: bytes, **members: bytes) -> bytes:
    return zipped({"a/data.pkl": b"\x80\x02" + steps, "a/byteorder": b"little", **members})


@case("import")
def a_checkpoint_is_a_bare_pickle(folder, bases):
    return checkpoint(folder, pickle.dumps({"model": Payload(folder)}))


@case("import")
def a_checkpoint_evaluates(folder, bases):
    line = f"open({str(folder.parent / MARK)!r}, 'w')".encode()
    return checkpoint(folder, pickled(b"c__builtin__\neval\n(X" + struct.pack("<I", len(line)) + line + b"tR."))


@case("import")
def a_checkpoint_makes_an_instance(folder, bases):
    return checkpoint(folder, pickled(b"(S'touch x'\niposix\nsystem\n."))


@case("import")
def a_checkpoint_builds_a_name_on_the_stack(folder, bases):
    return checkpoint(folder, pickled(b"\x8c\x02os\x8c\x06system\x93\x8c\x01x\x85R."))


@case("import")
def a_checkpoint_has_a_pickle_inside(folder, bases):
    inner = pickle.dumps(Payload(folder))
    steps = b"}X\x05\x00\x00\x00modelctorch.storage\n_load_from_bytes\nB" + struct.pack("<I", len(inner)) + inner
    return checkpoint(folder, pickled(steps + b"\x85RsX\x04\x00\x00\x00argsNs."))


@case("import")
def a_checkpoint_points_outside(folder, bases):
    secret = str(folder.parent / SECRET).encode()
    return checkpoint(folder, pickled(b"X" + struct.pack("<I", len(secret)) + secret + b"Q."))


@case("import")
def a_checkpoint_uses_registered_extensions(folder, bases):
    return checkpoint(folder, pickled(b"\x82\x01."))


@case("import")
def a_checkpoint_has_a_memory_beyond_all_sizes(folder, bases):
    return checkpoint(folder, pickled(b"Nr\xff\xff\xff\xff0" * 50_000 + b"j\xfe\xff\xff\xff."))


@case("import")
def a_checkpoint_has_a_text_beyond_all_sizes(folder, bases):
    return checkpoint(folder, pickled(b"\x8d" + struct.pack("<Q", 1 << 62) + b"x."))


@case("import")
def a_checkpoint_has_a_number_of_a_billion_digits(folder, bases):
    return checkpoint(folder, pickled(b"\x8b" + struct.pack("<I", 1 << 20) + b"\x7f" * (1 << 20) + b"."))


@case("import")
def a_checkpoint_copies_itself_again_and_again(folder, bases):
    steps = b"(" + b"K\x01" * 100_000 + b"lq\x00" + b"c__builtin__\nlist\nq\x010" + b"h\x01h\x00\x85R" * 20_000
    return checkpoint(folder, pickled(steps + b"."))


@case("import")
def a_checkpoint_has_countless_objects(folder, bases):
    objects = b"cargparse\nNamespace\nq\x00" + b"h\x00)R" * 40_000
    return checkpoint(folder, pickled(b"(" + objects + b"l."))


@case("import")
def a_checkpoint_has_countless_lists(folder, bases):
    return checkpoint(folder, pickled(b"(" + b"]" * 400_000 + b"l."))


@case("import")
def a_checkpoint_has_endless_steps(folder, bases):
    return checkpoint(folder, pickled(b"N0" * 3_000_000 + b"."))


@case("import")
def an_archive_climbs(folder, bases):
    return checkpoint(folder, zipped({"a/data.pkl": b"\x80\x02}.", "a/../../../ran.txt": b"x"}))


@case("import")
def an_archive_has_a_path_of_the_system(folder, bases):
    return checkpoint(folder, zipped({"a/data.pkl": b"\x80\x02}.", f"{folder.parent / MARK}": b"x"}))


@case("import")
def an_archive_is_a_bomb(folder, bases):
    return checkpoint(
        folder, zipped({"a/data.pkl": b"\x80\x02}.", "a/data/0": b"\0" * (100 << 20)}, zipfile.ZIP_DEFLATED)
    )


@case("import")
def an_archive_has_a_packed_pickle(folder, bases):
    return checkpoint(folder, zipped({"a/data.pkl": b"\x80\x02" + b"N0" * 1_000_000 + b"}."}, zipfile.ZIP_DEFLATED))


@case("import")
def an_archive_lies_of_its_sizes(folder, bases):
    content = bytearray(zipped({"a/data.pkl": b"\x80\x02}.", "a/data/0": b"x" * 10}))
    at = content.rindex(b"PK\x01\x02")
    content[at + 20 : at + 28] = struct.pack("<II", 0x7FFFFFFF, 0x7FFFFFFF)
    return checkpoint(folder, bytes(content))


@case("import")
def an_archive_has_no_end(folder, bases):
    return checkpoint(folder, zipped({"a/data.pkl": b"\x80\x02}."})[:-10])


def fairseq_with(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    parts = fairseq()
    change(parts)
    return save_fairseq(parts, folder / "theirs")


@case("import")
def a_tensor_is_larger_than_its_storage(folder, bases):
    def change(parts):
        name = "decoder.layers.0.fc1.bias"
        parts["model"][name] = torch.zeros(1).expand(12)

    return fairseq_with(folder, change)


@case("import")
def a_tensor_is_beyond_all_sizes(folder, bases):
    def change(parts):
        parts["model"]["decoder.layers.0.fc1.weight"] = torch.zeros(1).expand(1 << 40)

    return fairseq_with(folder, change)


@case("import")
def a_storage_is_shorter_than_it_says(folder, bases):
    path = fairseq_with(folder, lambda parts: None)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    longest = max((name for name in members if "/data/" in name), key=lambda name: len(members[name]))
    members[longest] = members[longest][:8]
    path.write_bytes(zipped(members))
    return path


@case("import")
def an_old_file_lies_of_its_storages(folder, bases):
    path = save_fairseq(fairseq(), folder / "theirs", old=True)
    content = bytearray(path.read_bytes())
    count = struct.pack("<q", 160)  # numbers of the first table
    at = content.rindex(count) if count in content else len(content) - 100
    content[at : at + 8] = struct.pack("<q", 1 << 50)
    path.write_bytes(content)
    return path


@case("import")
def a_language_climbs(folder, bases):
    path = save_fairseq(fairseq(), folder / "theirs")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    (name,) = (name for name in members if name.endswith("data.pkl"))
    climbing = f"/../../../{SECRET}"[:40].encode()
    members[name] = members[name].replace(b"X\x02\x00\x00\x00xx", b"X" + struct.pack("<I", len(climbing)) + climbing)
    path.write_bytes(zipped(members))
    return path


@case("import")
def options_are_of_other_kinds(folder, bases):
    return save_opennmt(opennmt_parts(heads=[2], enc_layers={"a": 1}), folder / "model.pt")


def arrays_of(folder: Path, bases: Bases, change: Callable[[bytearray], Any]) -> Path:
    shutil.copytree(bases.ctranslate2, folder / "theirs")
    content = bytearray((folder / "theirs" / "model.bin").read_bytes())
    change(content)
    (folder / "theirs" / "model.bin").write_bytes(content)
    return folder / "theirs"


COUNT_AT = 4 + 2 + len("TransformerSpec\0") + 4


def put(content: bytearray, at: int, new: bytes) -> None:
    content[at : at + len(new)] = new


@case("import")
def ctranslate2_says_four_billion_arrays(folder, bases):
    return arrays_of(folder, bases, lambda content: put(content, COUNT_AT, b"\xff\xff\xff\xff"))


@case("import")
def ctranslate2_has_an_array_of_four_gigabytes(folder, bases):
    name = b"decoder/embeddings/weight\0"

    def change(content):
        at = content.index(name) + len(name)
        put(content, at + 1, struct.pack("<II", 1 << 16, 1 << 14))
        put(content, at + 9, struct.pack("<BI", 0, 0xFFFFFFFC))

    return arrays_of(folder, bases, change)


@case("import")
def ctranslate2_has_a_name_without_an_end(folder, bases):
    return arrays_of(folder, bases, lambda content: put(content, COUNT_AT + 4, b"\xff\xff"))


@case("import")
def ctranslate2_has_two_hundred_axes(folder, bases):
    def change(content):
        at = content.index(b"decoder/embeddings/weight\0") + len(b"decoder/embeddings/weight\0")
        content[at] = 200

    return arrays_of(folder, bases, change)


@case("import")
def ctranslate2_is_a_pickle(folder, bases):
    theirs = arrays_of(folder, bases, lambda content: None)
    (theirs / "model.bin").write_bytes(pickle.dumps(Payload(folder)))
    return theirs


@case("import")
def ctranslate2_scales_are_zero(folder, bases):
    theirs = folder / "theirs"
    theirs.mkdir()
    shutil.copytree(bases.ctranslate2, theirs, dirs_exist_ok=True)
    content = bytearray((theirs / "model.bin").read_bytes())
    name = b"decoder/embeddings/weight_scale\0"
    if name not in content:
        name = b"decoder/embeddings/weight\0"
    at = content.index(name) + len(name)
    axes = content[at]
    size_at = at + 1 + 4 * axes + 1
    size = struct.unpack_from("<I", content, size_at)[0]
    put(content, size_at + 4, np.full(size // 4, np.nan, np.float32).tobytes())
    (theirs / "model.bin").write_bytes(content)
    return theirs


@case("import")
def ctranslate2_model_is_a_link(folder, bases):
    theirs = arrays_of(folder, bases, lambda content: None)
    (folder.parent / "stolen.bin").write_bytes((theirs / "model.bin").read_bytes())
    (theirs / "model.bin").unlink()
    (theirs / "model.bin").symlink_to(folder.parent / "stolen.bin")
    return theirs


@case("import")
def ctranslate2_vocabulary_is_deep(folder, bases):
    theirs = arrays_of(folder, bases, lambda content: None)
    (theirs / "shared_vocabulary.json").write_text("[" * 300_000)
    return theirs


# ONNX, for regard.onnx


def field(number: int, content: bytes) -> bytes:
    size, found = len(content), b""
    while size >= 128:
        found, size = found + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + found + bytes([size]) + content


@case("graph")
def a_graph_has_its_data_elsewhere(folder, bases):
    location = field(1, b"location") + field(2, f"../{SECRET}".encode())
    initializer = field(8, b"w") + b"\x08\x02\x10\x01" + field(13, location) + b"\x70\x01"
    (folder / "model.onnx").write_bytes(b"\x08\x08" + field(7, field(5, initializer)))
    return folder / "model.onnx"


@case("graph")
def a_graph_lies_of_its_length(folder, bases):
    (folder / "model.onnx").write_bytes(b"\x3a\xff\xff\xff\xff\x07" + b"x" * 100)
    return folder / "model.onnx"


@case("onnx")
def a_folder_of_graphs_climbs(folder, bases):
    from regard.onnx.manifest import NAME

    theirs = folder / "theirs"
    theirs.mkdir()
    (theirs / NAME).write_text("{}")
    (theirs / "manifest.json").write_text(
        json.dumps({"format": 1, "files": {f"../../{SECRET}": {"bytes": 1, "sha256": ""}}})
    )
    return theirs


@case("onnx")
def a_folder_of_graphs_is_a_pickle(folder, bases):
    from regard.onnx.manifest import NAME

    theirs = folder / "theirs"
    theirs.mkdir()
    (theirs / NAME).write_bytes(pickle.dumps(Payload(folder)))
    write_manifest(theirs)
    return theirs
