"""The documentation says what the code does: settings, commands and recipes named there exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_settings_are_those_of_the_code():
    spec = importlib.util.spec_from_file_location("make_settings", ROOT / "docs" / "make_settings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == module.text(), "run docs/make_settings.py"


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/align.md",
        "docs/attention.md",
        "docs/compare.md",
        "docs/results.md",
        "docs/extending.md",
        "docs/data.md",
        "docs/positions.md",
        "docs/corpora.md",
        "docs/masked_models.md",
        "docs/exporting.md",
        "docs/scale.md",
        "CONTRIBUTING.md",
    ],
)
def test_links_lead_somewhere(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert target.startswith("http") or (path.parent / target).exists(), target


@pytest.mark.parametrize(
    ("page", "least"),
    [
        ("README.md", 10),
        ("docs/data.md", 5),
        ("docs/align.md", 4),
        ("docs/compare.md", 7),
        ("docs/masked_models.md", 6),
        ("docs/classifying.md", 7),
        ("docs/tagging.md", 6),
        ("docs/word_vectors.md", 8),
        ("docs/shapes.md", 12),
        ("docs/language_models.md", 12),
        ("docs/exporting.md", 4),
        ("docs/scale.md", 1),
    ],
)
def test_commands_on_a_page_exist_with_their_options(page, least):
    from typer.main import get_command

    from regard.cli.main import app

    verbs = get_command(app).commands
    text = (ROOT / page).read_text(encoding="utf-8")
    used = re.findall(r"^(?:pip .*&& )?regard ([a-z]+)(.*)$", text, flags=re.MULTILINE)
    assert len(used) >= least
    for verb, rest in used:
        command = verbs[verb]
        if hasattr(command, "commands"):
            command = command.commands[rest.split()[0]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, (verb, rest)


def test_the_attention_page_prints_what_it_says(capsys):
    """All its Python, in order; what stands behind `print(...)  #` is what it prints, up to a comma and 'and'."""
    from regard.layers.attention.scores import SCORES

    text = (ROOT / "docs" / "attention.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    before = set(SCORES.names())
    try:
        exec(compile(code, "docs/attention.md", "exec"), {"__name__": "attention"})
    finally:
        for name in set(SCORES.names()) - before:
            SCORES._members.pop(name)
    printed = capsys.readouterr().out.replace("\n", ", ")
    said = [re.sub(r", and .*|then ", "", line) for line in re.findall(r"print\(.*\)  # (.*)", code)]
    assert len(said) >= 9
    place = 0
    for line in said:
        assert line in printed[place:], (line, printed[place:])
        place = printed.index(line, place) + len(line)
