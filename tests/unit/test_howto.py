"""How-to pages: their Python runs, their commands exist with the options that are shown, and their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "howto").glob("*.md"))
RUN = [
    page
    for page in PAGES
    if page.stem.startswith("add_") or page.stem in ("five_minutes", "prepare_a_lecture", "tokenizers")
]


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def registries():
    """What pages register is forgotten again."""
    from regard.evaluation.metrics import METRICS
    from regard.layers.attention.scores import SCORES
    from regard.models.base import MODELS

    before = {registry: set(registry.names()) for registry in (METRICS, SCORES, MODELS)}
    yield
    for registry, names in before.items():
        for name in set(registry._members) - names:
            del registry._members[name]


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(page, registries, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem, "TOML": "\n".join(blocks(page, "toml"))}
    code = blocks(page, "python")
    assert code
    if page.stem.startswith("add_"):
        assert any("assert" in block for block in code), "nothing in it checks what the text says"
    for block in code:
        exec(compile(block, page.name, "exec", dont_inherit=True), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_exist_with_their_options(page):
    from typer.main import get_command

    from regard.cli.main import app

    verbs = get_command(app).commands
    lines = "\n".join(re.findall(r"```\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL))
    for verb, rest in re.findall(r"^(?:pip .*&& )?regard ([a-z]+)(.*)$", lines, flags=re.MULTILINE):
        command = verbs[verb]
        if hasattr(command, "commands"):
            command = command.commands[rest.split()[0]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<=\s)--[a-z-]+", rest)) <= known, (verb, rest)


@pytest.mark.parametrize("page", [*PAGES, DOCS / "index.md", DOCS / "road" / "index.md"], ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    made = {"reference/index.md"}
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        path = page.parent / target
        chapter = path.parent.name == "road" and path.with_suffix(".py").exists()
        assert target.startswith("http") or path.exists() or chapter or target in made, target


def test_settings_that_are_named_exist():
    settings = (DOCS / "settings.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^\| `([a-z_]+\.[a-z_]+)`", settings, flags=re.MULTILINE))
    found = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"(?:(?<=[\s`\"])|^)((?:train|data|tokenizer|augment|search)\.[a-z_]+)(?=[=`])", text):
            assert name in known or name.endswith((".tsv", ".conllu")), (page.name, name)
            found += 1
    assert found > 40
