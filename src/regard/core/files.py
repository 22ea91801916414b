"""Files that survive a crash: atomic writes, folders that appear whole, and manifests of SHA-256 checksums."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from regard.core.errors import CheckpointError

if TYPE_CHECKING:
    import torch

MANIFEST = "manifest.json"
MAX_JSON_BYTES = 64 << 20
MAX_HEADER_BYTES = 8 << 20  # of a safetensors file: it takes many times as much memory
FEW_HEADER_BYTES = 1 << 19  # of a small one


def quoted(path: Path) -> str:
    """A path as it is typed into a shell, for the commands that messages name."""
    return shlex.quote(str(path))


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Makes sure that a file, or the names in a folder, are on the disk."""
    if os.name == "nt":  # Windows syncs neither folders nor files opened for reading
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Makes a folder and those above it that are missing, on the disk too; one that is there already is well."""
    if not path.parent.exists():
        make_folder(path.parent)
    made = not path.exists()
    path.mkdir(exist_ok=True)
    if made:
        sync(path.parent)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes its place once it is whole: whatever happens, either the old or the new content is there."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync(path.parent)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk does not say which file it has no room for
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file so that, whatever happens, either the old or the new content is there."""
    with whole_file(path) as file:
        file.write(content)


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def check_place(path: Path) -> None:
    """Refuses a link that leads out of its folder. Hugging Face's cache is spared, where a snapshot's files are links to blobs."""
    if not path.is_symlink():
        return
    home, real = path.parent.resolve(), path.resolve()
    blobs = home.parent.parent / "blobs"
    if not real.is_relative_to(home) and not (home.parent.name == "snapshots" and real.parent == blobs):
        raise CheckpointError(path, "it is a link to another place", "Put the file itself into the folder")


def read_json(path: Path) -> Any:
    """Reads a JSON file of bounded size; a damaged one, or a link that leads elsewhere, is a CheckpointError."""
    check_place(path)
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise CheckpointError(path, "the file is too large to be what it claims", "Restore it from a copy")
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            path, "the file is missing", "Check that the folder is a whole run or checkpoint"
        ) from None
    except OSError as error:
        raise CheckpointError(path, f"the file cannot be read ({error.strerror})", "Restore it from a copy") from None
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or a number of thousands of digits
        raise CheckpointError(path, "the file is damaged: it is not valid JSON", "Restore it from a copy") from None


def write_folder(final: Path, fill: Callable[[Path], None]) -> None:
    """Makes a folder appear whole or not at all: filled beside its place, checksummed, synced, then renamed."""
    partial = final.with_name(f".{final.name}.partial-{os.getpid()}")
    replaced = final.with_name(f".{final.name}.replaced-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        fill(partial)
        write_manifest(partial)
        for file in partial.iterdir():
            sync(file)
        sync(partial)
        if final.exists():
            os.rename(final, replaced)
            os.rename(partial, final)
            sync(final.parent)  # before the old one goes: names and contents may reach the disk in any order
            shutil.rmtree(replaced, ignore_errors=True)
        else:
            os.rename(partial, final)
            sync(final.parent)
    except BaseException:
        if replaced.exists() and not final.exists():
            os.rename(replaced, final)
        shutil.rmtree(partial, ignore_errors=True)
        raise


def remove_partials(folder: Path) -> None:
    """Removes what a killed process left half-written in a folder."""
    for entry in folder.glob(".*.partial-*"):
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                entry.unlink()
    for entry in folder.glob(".*.replaced-*"):
        whole = entry.with_name(entry.name[1:].rsplit(".replaced-", 1)[0])
        if not whole.exists():
            os.rename(entry, whole)
        else:
            shutil.rmtree(entry, ignore_errors=True)


def write_manifest(folder: Path, names: Iterable[str] | None = None) -> None:
    """Writes size and SHA-256 of the named files (all, by default) into the folder's manifest."""
    chosen = (
        sorted(names)
        if names is not None
        else sorted(p.name for p in folder.iterdir() if p.is_file() and p.name != MANIFEST)
    )
    files = {name: {"bytes": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)} for name in chosen}
    write_json(folder / MANIFEST, {"format": 1, "files": files})


def check_manifest(folder: Path, needed: Iterable[str] = ()) -> None:
    """Raises a CheckpointError unless every listed file is what the manifest says and every needed one is listed."""
    manifest = read_json(folder / MANIFEST)
    files = manifest.get("files") if isinstance(manifest, dict) and manifest.get("format") == 1 else None
    if not isinstance(files, dict):
        raise CheckpointError(folder / MANIFEST, "it is not a manifest", "Restore the folder from a copy")
    for name in [*files, *(name for name in needed if name not in files)]:
        entry = files.get(name)
        path = folder / name
        if not isinstance(entry, dict) or Path(name).name != name:
            raise CheckpointError(path, "the manifest does not list it", "Restore the folder from a copy")
        try:
            if path.is_symlink() or not path.is_file():
                raise CheckpointError(path, "the file is missing", "Restore the folder from a copy")
            size, digest = path.stat().st_size, sha256_of(path)
        except OSError as error:
            raise CheckpointError(
                path, f"the file cannot be read ({error.strerror})", "Restore it from a copy"
            ) from None
        if size != entry.get("bytes"):
            raise CheckpointError(
                path,
                f"the file is truncated or changed ({size} bytes, not {entry.get('bytes')})",
                "Restore it from a copy",
            )
        if digest != entry.get("sha256"):
            raise CheckpointError(
                path, "the file is corrupted: its SHA-256 is not the one in the manifest", "Restore it from a copy"
            )


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors as safetensors, atomically.

    Those that lie on the host, each in memory of its own, are not copied: a thread that copies by torch gets threads of its own
    from OpenMP, and with more of these than processors all that torch does on the host is slower from then on.
    """
    import safetensors.torch  # brings torch, which not all who write files need

    plain: dict[str, torch.Tensor] = {}
    places: set[int] = set()
    for name, given in tensors.items():
        tensor = given.detach().to("cpu").contiguous()
        storage = tensor.untyped_storage()
        if storage.data_ptr() in places or storage.nbytes() != tensor.numel() * tensor.element_size():
            tensor = tensor.clone()  # the format refuses tensors that share memory
        places.add(tensor.untyped_storage().data_ptr())
        plain[name] = tensor
    write_bytes(path, safetensors.torch.save(plain, dict(metadata) if metadata else None))


def check_header(path: Path) -> None:
    """Bounds the header of a safetensors file before it is read. What else is wrong with it, its reader says."""
    check_place(path)
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            whole = file.seek(0, 2)
    except OSError:
        return
    if size > min(MAX_HEADER_BYTES, FEW_HEADER_BYTES + whole // 8):
        what = "it is not a readable safetensors file (header too large)"
        raise CheckpointError(path, what, "Restore it from a copy")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A safetensors file whose header holds together; a foreign or damaged one is a CheckpointError."""
    from safetensors import SafetensorError, safe_open

    check_header(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            yield file
    except FileNotFoundError:
        raise CheckpointError(path, "the weights are missing", "Check that the folder is a whole run") from None
    except IsADirectoryError:
        raise CheckpointError(path, "it is a directory, not a weight file", "Check the folder") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            path, f"it is not a readable safetensors file ({error})", "Restore it from a copy"
        ) from None


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Reads a safetensors file; a foreign or damaged one is a CheckpointError."""
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)


def check_tensors(path: Path) -> None:
    """Raises a CheckpointError unless the header of a safetensors file holds together."""
    with _opened(path):
        pass
