"""Fuzzing: whatever the bytes from outside are, a parser reads them or refuses them in one sentence, soon.

Good contents are flipped, cut, spliced, repeated and mixed with pieces that parsers stumble over. Here each parser gets some
dozens of them; `make soak` fuzzes each for a minute.
"""

from __future__ import annotations

import random
import shutil
import time
import warnings
from pathlib import Path

import pytest
from corruption import extend, flip, splice, truncate, zero
from fault_runs import SOAK
from outside_parsers import PARSERS, Outside

from regard.core.errors import RegardError
from regard.serving.refusals import Refused

SECONDS = 60.0 if SOAK else 0.2  # for each parser
LEAST = 2000 if SOAK else 12
LONGEST = 20.0  # seconds of the processor that a single small input may take
PIECES = [
    b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\n", b"\r\n", b"\t", b'"', b"{", b"}", b"[" * 3000, b"-1",
    b"1e999", b"NaN", b"9" * 400, b"99999999999", b"\xff" * 8, b"\x80" * 9 + b"\x01", b"<!DOCTYPE x [<!ENTITY a 'b'>]>",
    b"&a;", b"../../x", b"\\u0000", b"\xe2\x80\xa8", b"PK\x03\x04", b"\x1f\x8b", b"true", b"null", b"=", b"%00", b"x" * 5000,
]  # fmt: skip


def piece(content: bytes, draw: random.Random, _other: bytes) -> bytes:
    at = draw.randrange(len(content) + 1)
    return content[:at] + draw.choice(PIECES) + content[at + draw.choice([0, 0, 1, 4]) :]


def repeated(content: bytes, draw: random.Random, _other: bytes) -> bytes:
    begin, end = sorted(draw.randrange(len(content) + 1) for _ in range(2))
    return content[:begin] + content[begin:end] * draw.choice([2, 3, 50]) + content[end:]


def noise(content: bytes, draw: random.Random, _other: bytes) -> bytes:
    return draw.randbytes(draw.choice([1, 3, 9, 100, 2000]))


WAYS = [flip, flip, truncate, extend, zero, splice, piece, piece, piece, repeated, noise]


def mutated(outside: Outside, draw: random.Random) -> bytes:
    content, other = draw.choice(outside.seeds), draw.choice(outside.seeds)
    for _ in range(draw.choice([1, 1, 2, 4])):
        content = draw.choice(WAYS)(content or b"\0", draw, other)
    return content[: 1 << 20]


TAKES_ALL = {"log of metrics", "request, HTML"}  # what they do not understand, they leave out or leave as it is


def survives(outside: Outside, content: bytes, place: Path) -> bool:
    """Whether bytes are read; refusing them is well, too, and anything else fails the test."""
    shutil.rmtree(place / "x", ignore_errors=True)
    (place / "x").mkdir()
    path = place / "x" / outside.name
    path.write_bytes(content)
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outside.parse(path)
        return True
    except (RegardError, Refused):
        return False
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}, of {content[:400]!r}") from error
    finally:
        assert time.process_time() - began < LONGEST, content[:400]


@pytest.mark.parametrize("name", PARSERS)
def test_what_is_good_is_read(tmp_path, name):
    """So that what is fuzzed is near to something that is parsed to its end."""
    if name == "comparison's plan":
        return  # it says more than fits here
    assert any(survives(PARSERS[name], seed, tmp_path) for seed in PARSERS[name].seeds)


@pytest.mark.parametrize("name", PARSERS)
def test_whatever_comes_is_read_or_refused(tmp_path, name):
    outside = PARSERS[name]
    draw = random.Random(name)
    began, tried, refused = time.monotonic(), 0, 0
    while tried < LEAST or time.monotonic() - began < SECONDS:
        refused += not survives(outside, mutated(outside, draw), tmp_path)
        tried += 1
    assert refused or name in TAKES_ALL
    if SOAK:
        print(f"\n{name}: {tried} inputs, {refused} refused, {tried - refused} read")


FOUND = {  # by fuzzing, and mended
    "log of metrics": [b'{"step": ' + b"[" * 3000, b'{"step": ' + b"9" * 5000 + b"}"],
    "manifest": [b'{"format": 1, "files": {"' + b"x" * 5000 + b'": {"bytes": 1, "sha256": "0"}}}'],
    "recipe": [b"[train]\nlr = " + b"9" * 400],
    "pickle": [b"\x80\x04}\x8c\x01a](K\x01\x8c\x01x\x90N\x85es."],  # members are added to a list as to a set
    "CTranslate2 model": [  # an empty array of an absurd shape
        b"\x06\0\0\0\x02\0w\0\x07\0\0\0\x01\0\0\0\x02\0w\0\x06" + b"9999" * 5 + bytes(11),
    ],
    "SentencePiece model": [b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02\n\x02\x08\x22"],
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_mended(tmp_path, name):
    for content in FOUND[name]:
        survives(PARSERS[name], content, tmp_path)


def test_a_zip_file_with_a_name_that_is_no_text_is_refused(tmp_path):
    (good,) = PARSERS["archive"].seeds
    listed = good.index(b"PK\1\2")
    for at in (30, listed + 46):  # where the name of a member stands, and where the list of members has it
        damaged = bytearray(good)
        damaged[listed + 9] |= 8  # it says that names are UTF-8
        damaged[at] = 0xC9
        assert not survives(PARSERS["archive"], bytes(damaged), tmp_path)


def test_a_zip_file_that_points_before_its_beginning_is_refused(tmp_path):
    (good,) = PARSERS["archive"].seeds
    at = good.rindex(b"PK\5\6") + 16  # where the list of members begins
    for place in (len(good) * 3, 2**32 - 2, at + 100):
        assert not survives(PARSERS["archive"], good[:at] + place.to_bytes(4, "little") + good[at + 4 :], tmp_path)
