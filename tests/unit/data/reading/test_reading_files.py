"""Opening files: archives and bombs, what is no regular file, encodings, lines, and files that change meanwhile."""

import gzip
import importlib
import io
import lzma
import os
import re
import socket
import tracemalloc
from contextlib import contextmanager

import pytest
import zstandard

from regard.core.errors import DataError
from regard.data.reading import files, lines, open_pairs, read_lines
from regard.data.reading.archives import unpack
from regard.data.reading.files import BLOCK, ByteFile
from regard.data.reading.lines import line_blocks


def zstd(data):
    return zstandard.ZstdCompressor().compress(data)


PACKS = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd, ".zstd": zstd}


def refusal(call, *arguments):
    """The sentence with which a call is refused."""
    with pytest.raises(DataError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@contextmanager
def peak_memory():
    """A function that tells how much memory was held at most."""
    found = []
    tracemalloc.start()
    try:
        yield lambda: found[0]
    finally:
        found.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


@pytest.fixture(params=list(PACKS))
def packed(request, tmp_path):
    """A path with the ending of an archive, and its packing function."""
    return tmp_path / f"t{request.param}", PACKS[request.param]


def test_archives_give_back_their_text(packed):
    path, pack = packed
    path.write_bytes(pack("ä\nb\n".encode() * 5000))
    assert read_lines(path) == ["ä", "b"] * 5000


def test_archives_that_grow_much_at_once(packed):
    path, pack = packed
    text = b"".join(bytes([65 + i]) * (700_000 + i) for i in range(9))
    path.write_bytes(pack(text) + pack(text[::-1]))
    assert path.stat().st_size < 64_000
    assert b"".join(ByteFile(path).blocks()) == text + text[::-1]


def test_archives_one_after_another(packed):
    path, pack = packed
    path.write_bytes(pack(b"one\ntw") + pack(b"") + pack(b"o\n") + pack(b"three"))
    assert read_lines(path) == ["one", "two", "three"]
    path.write_bytes(pack(b"one\n") + bytes(8) + pack(b"two\n") + bytes(512))  # padded, as tape tools do
    assert read_lines(path) == ["one", "two"]


def test_text_after_an_archive_is_not_lost_in_silence(packed):
    path, pack = packed
    path.write_bytes(pack(b"one\n") + b"and more text\n")
    assert refusal(read_lines, path).startswith(f"{path}: the archive is corrupt (")


def test_archives_cut_anywhere_are_truncated(packed):
    path, pack = packed
    whole = pack(os.urandom(300).hex().encode() * 7)
    for cut in (*range(1, 40), *range(40, len(whole), 37), len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert refusal(read_lines, path) == (
            f"{path}: the archive is truncated. Download or compress the file again."
        ), cut


def test_archives_with_a_changed_byte_never_pass(packed):
    path, pack = packed
    text = os.urandom(2000).hex().encode()
    if "zst" in path.name:
        whole = zstandard.ZstdCompressor(write_checksum=True).compress(text)
    else:
        whole = pack(text)
    for place in range(len(whole) // 2, len(whole), 101):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        assert re.search(r"archive is (corrupt \(.+\)|truncated)\. Download or", refusal(read_lines, path)), place


def test_empty_archives_and_things_that_are_none(packed):
    path, pack = packed
    path.write_bytes(pack(b""))
    assert refusal(read_lines, path) == (f"{path}: the archive holds an empty file. Give a file with lines of text.")
    path.write_bytes(b"this is not an archive at all")
    assert refusal(read_lines, path).startswith(f"{path}: the archive is corrupt (")
    path.write_bytes(b"")
    assert refusal(read_lines, path) == f"{path}: the file is empty. Give a file with lines of text."


def test_bombs_are_refused_before_they_grow(tmp_path):
    zeros = bytes(1 << 20)
    gz, zst, xz = tmp_path / "bomb.gz", tmp_path / "bomb.zst", tmp_path / "bomb.xz"
    gz.write_bytes(gzip.compress(zeros) * 400)
    with zst.open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as writer:
        for _ in range(400):
            writer.write(zeros)
    xz.write_bytes(lzma.compress(zeros, preset=0) * 400)
    assert zst.stat().st_size < 100_000
    for path in (gz, zst, xz):
        with peak_memory() as peak:
            said = refusal(lambda path=path: [None for _ in ByteFile(path).blocks()])
        assert said == (
            f"{path}: the archive grows to more than 250 times its size, as a bomb does. "
            "If you trust it, decompress it yourself and give the plain file."
        )
        assert peak() < 48 << 20


def test_small_archives_may_grow_as_they_like(tmp_path):
    path = tmp_path / "t.xz"
    path.write_bytes(lzma.compress(b"the same line " * 400_000, preset=0))
    assert path.stat().st_size * 250 < 400_000 * 14
    assert len(read_lines(path)[0]) == 400_000 * 14


def test_total_size_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_TEXT_BYTES", 3 << 20)
    for path, pack in ((tmp_path / "a.gz", gzip.compress), (tmp_path / "a", bytes)):
        path.write_bytes(pack(b"a b c " * 700_000))
        assert refusal(lambda path=path: list(line_blocks(ByteFile(path)))) == (
            f"{path}: it holds more than 3 MiB of text. Divide it into smaller files."
        )


def test_memory_hungry_archives_are_named_as_such(tmp_path):
    path = tmp_path / "t.xz"
    filters = [
        {"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30, "mode": lzma.MODE_FAST, "mf": lzma.MF_HC3, "nice_len": 4}
    ]
    small = lzma.compress(b"text\n", filters=[{**filters[0], "dict_size": 1 << 20}])
    path.write_bytes(small)
    assert read_lines(path) == ["text"]
    # the stream's dictionary size is one byte of the block header, protected by a checksum
    header = bytearray(small)
    assert header[12 + 4] == 16  # 1 MiB
    header[12 + 4] = 36  # 1 GiB
    size = (header[12] + 1) * 4
    header[12 + size - 4 : 12 + size] = (
        importlib.import_module("zlib").crc32(header[12 : 12 + size - 4]).to_bytes(4, "little")
    )
    path.write_bytes(header)
    assert refusal(read_lines, path) == (
        f"{path}: opening the archive needs too much memory (Memory usage limit exceeded). "
        "Compress the file again with a lower level and without --long."
    )
    path = tmp_path / "t.zst"
    window = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=window).compressobj()
    path.write_bytes(packer.compress(b"text\n" * 1000) + packer.flush())
    assert "needs too much memory" in refusal(read_lines, path)


def test_zstd_without_the_package(tmp_path, monkeypatch):
    path = tmp_path / "t.zst"
    path.write_bytes(zstd(b"text\n"))

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert refusal(read_lines, path) == (
        f'{path}: reading zstd needs the package zstandard. Install it with pip install "regard[data]".'
    )


def test_zstd_of_the_standard_library(monkeypatch):
    """The module of Python 3.14, acted by lzma, whose decompressor has the same manners."""

    class Module:
        ZstdError = lzma.LZMAError

        class DecompressionParameter:
            window_log_max = "limit"

        class ZstdDecompressor:
            def __new__(cls, options):
                assert options == {"limit": 27}
                return lzma.LZMADecompressor()

    real = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: Module if name == "compression.zstd" else real(name))
    data = lzma.compress(b"a" * 3_000_000) + lzma.compress(b"b")
    pieces = [data[i : i + 100] for i in range(0, len(data), 100)]
    assert b"".join(unpack("x", pieces, "zstd")) == b"a" * 3_000_000 + b"b"
    assert refusal(list, unpack("x", [b"nonsense and more"], "zstd")).startswith("x: the archive is corrupt (")


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstd)])
@pytest.mark.parametrize("raw", [False, True])
def test_an_archive_without_its_ending(tmp_path, ending, pack, raw):
    path = tmp_path / "t"
    path.write_bytes(pack(b"text\n"))
    said = refusal(lambda: list(open_pairs([path, path]).chunks(raw=raw)))
    assert said.startswith(f"{path}, line 1: the text is not UTF-8 (it begins with the bytes ")
    assert said.endswith(f"It looks compressed: give its name the ending {ending}.")


def test_what_is_no_regular_file(tmp_path, monkeypatch):
    assert refusal(read_lines, tmp_path / "missing") == (
        f"{tmp_path / 'missing'}: there is no such file. Check the path."
    )
    assert refusal(read_lines, tmp_path) == f"{tmp_path}: it is a directory, not a text file. Name a file in it."
    assert refusal(read_lines, "a\0b") == "a\0b: the file cannot be read (embedded null byte). Check the path."
    assert "cannot be read" in refusal(read_lines, tmp_path / ("n" * 300))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "cannot be read" in refusal(read_lines, tmp_path / "loop")
    device = refusal(read_lines, "/dev/null")
    assert device == "/dev/null: it is a device, not a text file. Write its content to a file first."
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        assert refusal(read_lines, "s") == "s: it is a socket, not a text file. Write its content to a file first."


def test_a_named_pipe_never_blocks(tmp_path):
    pipe = tmp_path / "pipe.tsv"
    os.mkfifo(pipe)
    said = (
        f"{pipe}: it is a named pipe, which can be read only once. "
        "Write its content to a file first, or give it on standard input as -."
    )
    assert refusal(read_lines, pipe) == said
    assert refusal(open_pairs, [pipe]) == said
    text = tmp_path / "t"
    text.write_text("a\tb\n")
    reader = open_pairs([text], "tsv")
    text.unlink()
    os.mkfifo(text)
    assert "the file changed while it was read" in refusal(lambda: list(reader.chunks()))


def test_a_pipe_that_takes_the_place_of_a_file_between_look_and_opening(tmp_path, monkeypatch):
    text = tmp_path / "t"
    text.write_text("a\tb\n")
    file, state = ByteFile(text), os.stat(text)
    text.unlink()
    os.mkfifo(text)
    monkeypatch.setattr(os, "stat", lambda *_, **__: state)
    assert "named pipe" in refusal(list, file.blocks())


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_forbidden_file(tmp_path):
    path = tmp_path / "t"
    path.write_text("x\n")
    path.chmod(0)
    assert (
        refusal(read_lines, path) == f"{path}: reading the file is not permitted. Change its permissions, or copy it."
    )


def test_failing_disks_and_forbidden_files_are_said(tmp_path, monkeypatch):
    path = tmp_path / "t"
    path.write_text("x\n")
    file = ByteFile(path)

    def failing(error):
        def fail(*_, **__):
            raise error

        monkeypatch.setattr(os, "open", fail)
        return refusal(list, file.blocks())

    assert failing(PermissionError(13, "Permission denied")) == (
        f"{path}: reading the file is not permitted. Change its permissions, or copy it."
    )
    assert failing(OSError(5, "Input/output error")) == (
        f"{path}: the file cannot be read (Input/output error). Check the path."
    )


def test_only_line_feeds_end_a_line(tmp_path):
    odd = "a\u2028b\x0bc\x85d\x0ce\u2029f\x1cg\rh"
    path = tmp_path / "t"
    path.write_bytes(b"\xef\xbb\xbf" + f"{odd}\r\nsecond\n\n\ufefflast".encode())
    assert read_lines(path) == [odd, "second", "", "\ufefflast"]
    (raw,) = open_pairs([path, path]).chunks(raw=True)
    assert raw.sources == raw.targets == [f"\ufeff{odd}\r", "second", "", "\ufefflast"]
    path.write_bytes(b"\xef\xbb\xbf")
    assert "the file is empty" in refusal(read_lines, path)
    path.write_bytes(b"\n")
    assert read_lines(path) == [""]
    path.write_bytes(b"one\r")
    assert read_lines(path) == ["one"]


def test_lines_across_blocks(tmp_path):
    path = tmp_path / "t"
    text = ["é" * (i * 37 % 1000) + ("\r" if i % 3 else "") for i in range(6000)] + ["x" * 3_000_000, "", "é" * 700_000]
    path.write_bytes("\n".join(text).encode())
    assert path.stat().st_size > 5 * BLOCK
    assert read_lines(path) == [line.removesuffix("\r") for line in text]
    assert [line for block in line_blocks(ByteFile(path), raw=True) for line in block] == text


def test_long_lines(tmp_path, monkeypatch):
    path = tmp_path / "t"
    path.write_text("short\n" + "long " * 20_000 + "\nshort\n")
    assert [len(line) for line in read_lines(path)] == [5, 100_000, 5]
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 3 << 20)
    for content in (b"a\nb\n" + b"x" * (3 << 20) + b"x\nc\n", b"a\nb\n" + b"x" * ((3 << 20) + 1)):
        path.write_bytes(content)
        assert refusal(read_lines, path) == (
            f"{path}, line 3: the line is longer than 3 MiB. Divide it, or check that a line feed ends each line."
        )
    path.write_bytes(b"a\nb\n" + b"x" * (3 << 20) + b"\nc\n")
    assert len(read_lines(path)) == 4


def test_wrong_encodings(tmp_path):
    path = tmp_path / "t"
    path.write_bytes(b"\xef\xbb\xbfone\ntwo\nf\xfcr\n")
    assert refusal(read_lines, path) == (
        f"{path}, line 3: the text is not UTF-8 (byte 0xfc at offset 12). "
        "Convert it, for example with iconv -f ISO-8859-1 -t UTF-8."
    )
    path.write_bytes(b"line\n" * 300_000 + b"cut \xe2\x82")
    assert f"{path}, line 300001: the text is not UTF-8 (byte 0xe2 at offset 1500004)." in refusal(read_lines, path)
    for codec, name in (
        ("utf-16", "UTF-16"),
        ("utf-16-le", "UTF-16LE"),
        ("utf-16-be", "UTF-16BE"),
        ("utf-32", "UTF-32"),
    ):
        path.write_bytes("A few words of text, für alle\n".encode(codec))
        for raw in (False, True):
            said = refusal(lambda raw=raw: list(open_pairs([path, path]).chunks(raw=raw)))
            assert said == (
                f"{path}, line 1: the text is not UTF-8. "
                f"It looks like {name[:6]}: convert it, for example with iconv -f {name} -t UTF-8."
            )
    path.write_bytes(b"some\0 nulls\0 are text\n" + bytes(50))  # damage, but not UTF-16: for the checks to find
    assert read_lines(path) == ["some\0 nulls\0 are text", "\0" * 50]


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (b"PK\x03\x04\x14\0", "it is not text but looks like a zip archive. Unpack it first."),
        (b"BZh91AY&SY\0", "it is not text but looks like a bzip2 archive. Unpack it first."),
        (b"PAR1\x15\0", "it is not text but looks like a Parquet file. Name it as one file with the ending .parquet."),
    ],
)
def test_other_kinds_of_files(tmp_path, begin, said):
    path = tmp_path / "t"
    path.write_bytes(begin + b"more")
    assert refusal(read_lines, path) == f"{path}: {said}"


def test_raw_keeps_undecodable_bytes(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_bytes(b"a\xff\tb\r\nc\xed\xa0\x80\td\n")
    (chunk,) = open_pairs([path]).chunks(raw=True)
    assert (chunk.sources, chunk.targets) == (["a\udcff", "c\udced\udca0\udc80"], ["b\r", "d"])
    assert chunk.sources[0].encode("utf-8", "surrogateescape") == b"a\xff"


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_a_file_that_shrinks_between_chunks(tmp_path, ending):
    path, other = tmp_path / f"t.tsv{ending}", tmp_path / "n.tsv"
    text = "".join(f"source {os.urandom(20).hex()}\ttarget {i}\n" for i in range(40_000)).encode()
    path.write_bytes(PACKS[ending](text) if ending else text)
    size = path.stat().st_size
    chunks = open_pairs([path]).chunks(size=100)
    assert len(next(chunks)) == 100
    os.truncate(path, size // 2)
    assert refusal(list, chunks) == (
        f"{path}: the file changed while it was read (from {size:,} to {size // 2:,} bytes). "
        "Wait until nothing writes to it, then start again."
    )
    other.write_bytes(b"a\tb\n")  # smaller than a block: all of it was read before it shrank
    chunks = open_pairs([other]).chunks(size=1)
    other.write_bytes(b"a\tb\nc\td\n")
    assert "changed while it was read (from 4 to 8 bytes)" in refusal(list, chunks)


def test_a_file_that_grows_is_not_read_for_ever(tmp_path):
    path = tmp_path / "t.tsv"
    text = (b"a" * 1023 + b"\t" + b"b" * 1023 + b"\n") * 1024
    path.write_bytes(text * 2)
    written = 2

    def follow():
        nonlocal written
        for _ in open_pairs([path]).chunks(size=512):
            with path.open("ab") as file:
                file.write(text)
            written += 1

    assert "changed while it was read (from 4,194,304 to " in refusal(follow)
    assert written < 8


def test_a_file_that_changes_without_changing_its_size(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_bytes(b"a\tb\n")
    reader = open_pairs([path])
    assert len(list(reader.chunks())) == 1
    first = reader.content_hash()
    state = path.stat()
    path.write_bytes(b"c\td\n")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    for call in (lambda: list(reader.chunks()), reader.content_hash):
        assert "the file changed while it was read (it was written anew)" in refusal(call)
    assert open_pairs([path]).content_hash() != first
    path.unlink()
    assert "the file changed while it was read (it is gone)" in refusal(lambda: list(reader.chunks()))


def test_a_file_that_changed_before_it_is_read_again_gives_nothing(tmp_path):
    path = tmp_path / "t"
    path.write_bytes(b"a" * BLOCK * 2)
    file = ByteFile(path)
    next(file.blocks())
    path.write_bytes(b"b" * BLOCK * 2)
    os.utime(path, ns=(0, 0))
    assert "the file changed while it was read (it was written anew)" in refusal(next, file.blocks())


def test_a_file_that_is_replaced_or_removed_while_it_is_read(tmp_path):
    path, other = tmp_path / "t.tsv", tmp_path / "u.tsv"
    for replace in (lambda: os.replace(other, path), path.unlink):
        path.write_bytes(b"a" * BLOCK + b"\tb\n" * 10)
        other.write_bytes(b"c" * BLOCK + b"\td\n" * 10)
        os.utime(other, ns=(0, path.stat().st_mtime_ns))
        blocks = ByteFile(path).blocks()
        next(blocks)
        replace()
        assert re.search(r"changed while it was read \((it was written anew|it is gone)\)", refusal(list, blocks))


def test_a_changed_file_explains_other_errors(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_bytes((b"one " * 100 + b"\ttwo\n") * (BLOCK // 100))
    chunks = open_pairs([path]).chunks(size=100)
    next(chunks)
    with path.open("r+b") as file:
        file.seek(BLOCK + 100)
        file.write(b"\xff" * 100)
    os.utime(path, ns=(0, 0))
    assert "the file changed while it was read" in refusal(list, chunks)


def test_files_are_closed_when_reading_stops_early(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_bytes((b"one " * 100 + b"\ttwo\n") * (BLOCK // 100))
    chunks = open_pairs([path]).chunks(size=10)
    next(chunks)
    opened = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    chunks.close()
    if opened:
        assert len(os.listdir("/proc/self/fd")) == opened - 1


def test_hash_and_size(tmp_path):
    one, two = tmp_path / "a", tmp_path / "b"
    one.write_bytes(b"1\n2\n")
    two.write_bytes(b"3\n4\n")
    reader = open_pairs([one, two])
    assert reader.size_on_disk() == 8
    assert reader.content_hash() == open_pairs([str(one), str(two)]).content_hash()
    assert len(reader.content_hash()) == 64
    found = {reader.content_hash(), open_pairs([two, one]).content_hash(), open_pairs([one, one]).content_hash()}
    one.write_bytes(b"1\n2\n3\n")  # the border moves, the bytes stay
    two.write_bytes(b"4\n")
    assert len(found | {open_pairs([one, two]).content_hash()}) == 4


def test_bundled_corpora():
    reader = open_pairs(["bundled:tatoeba-en-de"])
    first = next(reader.chunks(size=3))
    assert (first.sources[0], first.targets[0]) == ("Hi.", "Hallo!")
    assert reader.names == ("bundled:tatoeba-en-de",)
    assert "Did you mean bundled:tatoeba-en-de" in refusal(open_pairs, ["bundled:tatoeba-en-da"])


def test_memory_is_bounded_by_the_chunk(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_bytes((b"a source sentence " + b"of some words " * 20 + b"\tand its target sentence\n") * 80_000)
    with peak_memory() as peak:
        count = sum(len(chunk) for chunk in open_pairs([path]).chunks(size=1000))
    assert count == 80_000
    assert peak() < 12 << 20 < path.stat().st_size // 2


def test_blocks_are_even(tmp_path):
    path = tmp_path / "t.zst"
    path.write_bytes(zstd(b"x" * (5 << 20) + b"y"))
    assert [len(block) for block in ByteFile(path).blocks()] == [BLOCK] * 5 + [1]
    assert io.BytesIO(b"".join(ByteFile(path).blocks())).read()[-1:] == b"y"
