"""Which numbers a model computes with, as users ask for them. Asked without torch, which takes seconds to import."""

from __future__ import annotations

from typing import Literal

from regard.core.errors import ConfigError

Asked = Literal["auto", "float32", "bfloat16", "int8", "int8_float32"]  # auto: of CTranslate2 int8, of torch float32
ASKED: tuple[Asked, ...] = ("auto", "float32", "bfloat16", "int8", "int8_float32")


def check_asked(compute: str) -> None:
    if compute not in ASKED:
        raise ConfigError("compute", f"{compute!r} is not one of {', '.join(ASKED)}", "Choose one of them")
