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
        "docs/tour.md",
        "docs/releasing.md",
        *(f"docs/cards/{path.name}" for path in (ROOT / "docs" / "cards").glob("*.md")),
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
        ("README.md", 1),
        ("docs/tour.md", 40),
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


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    """As it stands, but for a shorter training on less text."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    less = (
        "train.steps=2 train.device=cpu model.width=16 search.beam=1 "
        "data.max_pairs=1000 data.valid_size=9 data.test_size=9 data.check=false"
    )
    smaller = code.replace('"train.steps=300"', ", ".join(f'"{setting}"' for setting in less.split()))
    assert smaller != code
    exec(compile(smaller, "README.md", "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out.splitlines()
    assert "Wo ist der Bahnhof?" in printed
    assert any(re.search(r"müde.* \(\d+, \d+\)$", line) for line in printed), printed
    assert "müde" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_numbers_in_the_readme_are_those_of_the_results():
    """The two tables repeat what docs/results.md says, rounded or as it stands."""
    readme, results = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/results.md"))
    rows = [line for line in readme.splitlines() if re.match(r"\| \d\d\.\d \|", line)]
    assert len(rows) == 1
    for shown in re.findall(r"\d+\.\d", rows[0]):
        means = re.findall(r"\*?\*?(\d\d\.\d\d)\*?\*? ± \d", results)
        assert any(abs(float(mean) - float(shown)) <= 0.0501 for mean in means), shown
    (speeds,) = re.findall(r"\| ([\d./ ]+) \(\[script\]\(benchmarks/decode_gpu.py\)\)", readme)
    for shown in speeds.split(" / "):
        assert f"{shown} x" in results, shown
    said = {
        "34.2 BLEU": "34.21",
        "4.8 to 6.5": "**4.8**",
        "to 6.5": "**6.5**",
        "1.5 to 2.1": "JoeyNMT **2.07**",
        "2.7 (1.0)": "**2.7** |",
        "(1.0)": "**1.03** |",
        "38.1 for": "38.1 English-German",
        "41.02 for": "41.02 English-German",
        "3.3 to": "| 1 x 1 | **3.30** |",
        "to 6.1": "| 32 x 4 | **6.07** |",
        "1.4 to 2.1 (": "| 1 x 1 | **3.30** | 1.35 | 0.96 | 2.12 |",
        "3.1 to 7.8": "| 2.15 | **7.76** |",
        "3.1 to": "| 1.63 | **3.11** |",
        "3.7 to 5.7": "| **5.65, 5.41** |",
        "3.7 to": "4.42, 5.04, 3.71 and 3.97",
        "1.74 to 1.77 (": "1.74 x",
        "to 1.77 (": "1.77 x",
        "(1.55)": "1.55 x",
        "41.2 after 34 seconds": "| **mean** | **41.24** | 42.55 | **33.8** |",
    }
    for here, there in said.items():
        assert here in readme, here
        assert there in results, there
    for script in re.findall(r"\(benchmarks/(\w+\.py)\)", readme):
        assert f"benchmarks/{script}" in results, script


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
