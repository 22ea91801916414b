"""CTranslate2 is told to use AVX-512 where the processor has all of it, and nobody said otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from regard.engines.ctranslate2_engine import use_wide_registers

ISA = "CT2_FORCE_CPU_ISA"
ALL = "avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.mark.parametrize(
    ("flags", "given", "expected"),
    [
        (f"fpu sse2 avx2 {ALL} avx512_vnni", None, "AVX512"),
        (f"fpu sse2 avx2 {ALL}", "AVX2", "AVX2"),
        ("fpu sse2 avx2", None, None),
        ("fpu avx512f avx512cd", None, None),
        (None, None, None),
    ],
)
def test_only_where_all_of_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags, given, expected):
    if given is None:
        monkeypatch.setenv(ISA, "")  # so that it is put back
        monkeypatch.delenv(ISA)
    else:
        monkeypatch.setenv(ISA, given)
    file = tmp_path / "cpuinfo"
    if flags is not None:
        file.write_text(f"processor : 0\nmodel name : x\nflags : {flags}\n")
    use_wide_registers(file)
    assert os.environ.get(ISA) == expected
