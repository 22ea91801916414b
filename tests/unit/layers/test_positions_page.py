"""docs/positions.md says what the code does: its examples print what stands behind them, and its tables name all there is."""

from __future__ import annotations

import re
import typing
from pathlib import Path

from regard.layers.attention.relative import RELATIVE
from regard.layers.positions import Absolute

PAGE = (Path(__file__).parents[3] / "docs" / "positions.md").read_text(encoding="utf-8")


def test_the_page_prints_what_it_says(capsys):
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
    before = set(RELATIVE.names())
    try:
        exec(compile(code, "docs/positions.md", "exec"), {"__name__": "positions"})
    finally:
        for name in set(RELATIVE.names()) - before:
            RELATIVE._members.pop(name)
    said = re.findall(r"print\(.*\)  # (.*)", code)
    assert len(said) >= 6
    assert capsys.readouterr().out.splitlines() == said


def test_the_tables_name_all_schemes():
    named = re.findall(r"^\| `([a-z0-9-]+)` \|", PAGE, flags=re.MULTILINE)
    assert named == [*typing.get_args(Absolute), *sorted(RELATIVE.names(), key=named.index)]


def test_the_commands_name_recipes_and_settings_that_exist():
    from regard.core.config import apply_overrides
    from regard.training.config import build_run_config, read_recipe

    lines = re.findall(r"^regard train (\S+) (.*)$", PAGE, flags=re.MULTILINE)
    assert len(lines) == 2
    models = [build_run_config(apply_overrides(read_recipe(name), rest.split())).model for name, rest in lines]
    assert [(model.positions, model.relative) for model in models] == [("none", "t5"), ("learned", "none")]
