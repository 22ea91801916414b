"""The keys that clients must show: kept as checksums, compared in constant time, never written anywhere."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from regard.core.errors import ConfigError, DataError

VARIABLE = "REGARD_KEYS"  # keys with white space or commas between them
MAX_FILE_BYTES = 1 << 20
MOST_KEYS = 10_000
LEAST, MOST = 8, 256  # characters


class Keys:
    """A set of keys. Without any, everybody is let in: `bool(keys)` says whether there are some."""

    def __init__(self, keys: Iterable[str] = ()):
        self._digests = tuple(dict.fromkeys(_digest(key) for key in keys))

    @classmethod
    def read(cls, path: Path | None = None, environment: Mapping[str, str] | None = None) -> Keys:
        """Those of a file (one on each line; # begins a comment), or of the environment's REGARD_KEYS."""
        if path is not None:
            return cls(_checked(_lines(path), str(path)))
        text = (os.environ if environment is None else environment).get(VARIABLE, "")
        return cls(_checked(text.replace(",", " ").split(), VARIABLE))

    def __bool__(self) -> bool:
        return bool(self._digests)

    def __len__(self) -> int:
        return len(self._digests)

    def allow(self, key: str | None) -> bool:
        """Whether a key is one of these. Takes as long for a wrong one as for a right one."""
        return self.number(key) is not None

    def number(self, key: str | None) -> int | None:
        """Which key it is, to tell clients apart without keeping keys; None: none of them."""
        digest, found = _digest(key or ""), None
        for number, known in enumerate(self._digests):  # all of them, whichever is right
            if hmac.compare_digest(known, digest):
                found = number
        return found if key else None

    def __repr__(self) -> str:
        return f"Keys({len(self)})"


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise DataError(path, f"it cannot be read ({error.strerror})", "Give a file with a key on each line") from None
    if len(content) > MAX_FILE_BYTES:
        raise DataError(path, f"it has more than {MAX_FILE_BYTES:,} bytes", "Give a file with a key on each line")
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise DataError(path, "it is not UTF-8", "Give a text file with a key on each line") from None
    keys = [line.partition("#")[0].strip() for line in lines]
    if not any(keys):
        raise DataError(path, "there is no key in it", "Write one on each line, or leave --key-file out")
    return [key for key in keys if key]


def _checked(keys: list[str], where: str) -> list[str]:
    """The keys, if they can be used. Messages name a key by its place, not by itself."""
    if len(keys) > MOST_KEYS:
        raise ConfigError(where, f"it has more than {MOST_KEYS:,} keys", "Give fewer")
    for number, key in enumerate(keys, start=1):
        if not LEAST <= len(key) <= MOST or not key.isascii() or not key.isprintable() or " " in key:
            what = f"key {number} is not {LEAST} to {MOST} printable ASCII characters without spaces"
            raise ConfigError(
                where, what, 'Make one, for example with python -c "import secrets; print(secrets.token_urlsafe())"'
            )
    return keys
