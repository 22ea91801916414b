"""JSON that every parser takes."""

from __future__ import annotations

import json

from regard.data.checks.json_text import json_text


def test_half_characters_and_numbers_that_are_none_are_replaced() -> None:
    text = json_text({"a\udce4": ["x\ud800y", ("ü", 1.5)], "n": float("nan"), "i": float("inf"), "t": True, "z": None})
    text.encode("utf-8")
    assert text.endswith("}\n")
    assert "ü" in text

    def refuse(name: str) -> None:
        raise AssertionError(name)

    plain = json.loads(text, parse_constant=refuse)
    assert plain == {"a\ufffd": ["x\ufffdy", ["ü", 1.5]], "n": None, "i": None, "t": True, "z": None}
