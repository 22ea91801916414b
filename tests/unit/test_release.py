"""What a release says of itself: one version, all notices, cards with the true numbers, what a wheel must hold."""

from __future__ import annotations

import importlib.util
import json
import lzma
import re
import tomllib
import zipfile
from collections import Counter
from pathlib import Path

import pytest
import typer

import regard
from regard.cli.main import _version

ROOT = Path(__file__).parents[2]
BUNDLED = ROOT / "src" / "regard" / "data" / "bundled"
ASSETS = ROOT / "src" / "regard" / "looking" / "assets"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def words(name: str) -> str:
    """A file of the repository, its lines joined: what is said may run over their ends."""
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def test_there_is_one_version(capsys):
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "regard.__version__"}
    assert re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == regard.__version__
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == regard.__version__
    with pytest.raises(typer.Exit):
        _version(True)
    assert capsys.readouterr().out == f"regard {regard.__version__}\n"
    assert f"Version {regard.__version__}," in words("docs/releasing.md")


def test_the_licence_files_exist_and_the_expression_names_all():
    project = PROJECT["project"]
    for pattern in project["license-files"]:
        assert list(ROOT.glob(pattern)), pattern
    assert project["license"] == "Apache-2.0 AND MIT AND LicenseRef-CC-BY-2.0-FR AND CC-BY-SA-4.0"
    assert "Typing :: Typed" in project["classifiers"]
    assert (ROOT / "src" / "regard" / "py.typed").exists()
    supported = {entry.split(" :: ")[-1] for entry in project["classifiers"] if re.search(r":: 3\.\d+$", entry)}
    assert supported == {"3.11", "3.12", "3.13"}


def test_notice_names_everything_bundled_that_is_not_ours():
    notice = words("NOTICE")
    named = re.findall(r"src/regard/data/bundled/([\w.*-]+)", notice)
    for path in BUNDLED.iterdir():
        if not path.name.endswith(".LICENSE.md"):
            assert any(Path(path.name).match(name) for name in named), f"{path.name} has no notice"
    for name in named:
        assert list(BUNDLED.glob(name)), f"{name} is not bundled any more"
    for path in BUNDLED.glob("*.LICENSE.md"):
        assert path.name in notice


def test_notices_name_every_package_of_the_viewer():
    """As the lock file has them: what the page depends on, and what that does; and their licences."""
    locked = json.loads((ROOT / "viewer" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    shipped = {
        name.removeprefix("node_modules/"): entry for name, entry in locked.items() if name and not entry.get("dev")
    }
    assert set(json.loads((ROOT / "viewer" / "package.json").read_text())["dependencies"]) <= set(shipped)
    texts = (ASSETS / "THIRD-PARTY.txt").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^(\S+) (\S+) \(MIT\)$", texts, flags=re.MULTILINE))
    assert listed == {name: entry["version"] for name, entry in shipped.items()}
    notice = words("NOTICE").lower()
    for name, entry in shipped.items():
        assert entry["license"] == "MIT", name
        assert name in notice, f"{name} has no notice"
    assert not [
        path for path in ROOT.glob("src/regard/*/assets/*") if path.suffix in (".woff", ".woff2", ".ttf", ".otf")
    ]
    for page in ROOT.glob("src/regard/*/assets/*.css"):
        assert "@font-face" not in page.read_text(encoding="utf-8")


def test_every_bundled_thing_has_a_card():
    cards = {path.stem for path in (ROOT / "docs" / "cards").glob("*.md")}
    assert cards == {
        "index",
        "model-en-de",
        *(path.name.removesuffix(".LICENSE.md") for path in BUNDLED.glob("*.LICENSE.md")),
    }
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for card in cards:
        assert f"cards/{card}.md" in listed
        assert card == "index" or f"({card}.md)" in words("docs/cards/index.md")


def test_the_models_card_says_what_lies_beside_it():
    card = words("docs/cards/model-en-de.md")
    scores = json.loads((BUNDLED / "model" / "scores.json").read_text())["scores"]
    for score in scores.values():
        shown = f"{score['name']} | {score['value']:.2f} [{score['low']:.1f}, {score['high']:.1f}]"
        assert shown in card
        assert score["signature"].replace("|", r"\|") in card
    pairs = json.loads((BUNDLED / "model" / "data.json").read_text())["pairs"]
    assert f"{pairs['train']:,} pairs" in card
    assert f"{pairs['set_apart']:,} set apart" in card
    assert f"{(BUNDLED / 'model' / 'model.safetensors').stat().st_size:,} bytes" in card
    own = (BUNDLED / "model" / "CARD.md").read_text(encoding="utf-8")
    for row in re.findall(r"^\| [\d-]+ \| \d+ \| [\d.]+ \|$", own, flags=re.MULTILINE):
        assert row in card
    assert re.search(r"\(([\d,]+) parameters", own)[1] in card
    run = json.loads((BUNDLED / "model" / "run.json").read_text())["summary"]
    assert f"{run['steps']:,} steps, {run['seconds']:.0f} s" in card


def text_of(name: str) -> str:
    return lzma.decompress((BUNDLED / name).read_bytes()).decode("utf-8")


def test_the_card_of_the_pairs_counts_right():
    card = words("docs/cards/tatoeba-en-de.md")
    pairs = [line.split("\t") for line in text_of("tatoeba-en-de.tsv.xz").splitlines()]
    english, german = zip(*pairs, strict=True)
    for count in (len(pairs), len(set(english)), len(set(german)), (BUNDLED / "tatoeba-en-de.tsv.xz").stat().st_size):
        assert f"{count:,}" in card
    for side, shown in ((english, "English"), (german, "German")):
        lengths = sorted(len(line.split()) for line in side)
        assert f"{sum(lengths):,} {shown}" in card
        assert (lengths[len(lengths) // 2], lengths[int(0.95 * len(lengths))]) == (6, 11)
    assert round(100 * sum("Tom" in line for line in english) / len(pairs)) == 23


def test_the_cards_of_the_other_corpora_count_right():
    card = words("docs/cards/tinyshakespeare.md")
    text = text_of("tinyshakespeare.txt.xz")
    for shown in (
        f"{text.count(chr(10)):,} lines",
        f"{len(text.split()):,} words",
        f"{len(text):,} characters ({len(set(text))}",
    ):
        assert shown in card
    card = words("docs/cards/ud-ewt.md")
    tags: Counter[str] = Counter()
    for part in ("train", "valid", "test"):
        sentences = [block for block in text_of(f"ud-ewt-{part}.tagged.xz").split("\n\n") if block.strip()]
        columns = [line.split("\t") for block in sentences for line in block.split("\n") if "\t" in line]
        genres = text_of(f"ud-ewt-genres-{part}.labelled.xz").splitlines()
        assert f"| {part} | {len(sentences):,} | {len(columns):,} | {len(genres):,} |" in card
        tags.update(tag for _, tag in columns)
        for genre in {line.split("\t")[0] for line in genres}:
            assert genre in card
    assert len(tags) == 17


@pytest.fixture(scope="module")
def content():
    spec = importlib.util.spec_from_file_location("wheel_content", ROOT / "tools" / "wheel_content.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_package_data_covers_what_a_wheel_must_hold(content):
    """Every file of the package that is not Python is matched by a pattern of pyproject.toml, and known to the check."""
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["regard"]
    package = ROOT / "src" / "regard"
    shipped = {path for pattern in patterns for path in package.glob(pattern) if path.is_file()}
    found = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    found = {path for path in found if path.name != ".DS_Store"}
    assert shipped == found
    assert {f"regard/{path.relative_to(package).as_posix()}" for path in found} <= set(content.expected())
    folders = {path.parent for path in package.rglob("*.py") if "__pycache__" not in path.parts}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()], "setuptools would not find them"


def test_the_check_of_a_wheel_finds_faults(content, tmp_path, capsys, monkeypatch):
    wanted = {name: path for name, path in content.expected().items() if path.stat().st_size < 2000}
    assert len(wanted) > 20
    monkeypatch.setattr(content, "expected", lambda: wanted)
    metadata = (
        "Metadata-Version: 2.4\nName: regard\nVersion: 0.1.0\nSummary: s\nLicense-Expression: MIT\nKeywords: a\n"
        "Requires-Python: >=3.11\nAuthor: a\nLicense-File: LICENSE\n"
    )
    about = {"METADATA": metadata, **{f"licenses/{name}": "" for name in content.LICENCES}}

    def wheel(changed: dict[str, bytes | None]) -> list[str]:
        path = tmp_path / "regard-0.1.0-py3-none-any.whl"
        files = {name: place.read_bytes() for name, place in wanted.items()} | changed
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            for name, data in files.items():
                if data is not None:
                    file.writestr(name, data)
            for name, data in about.items():
                file.writestr(f"regard-0.1.0.dist-info/{name}", data)
        return content.check_wheel(path)

    assert wheel({}) == []
    assert wheel({"regard/py.typed": None}) == ["regard/py.typed is missing"]
    assert wheel({"regard/secret.txt": b"x"}) == ["regard/secret.txt does not belong there"]
    assert wheel({"regard/__main__.py": b"x"}) == ["regard/__main__.py is not that of the source"]
    assert wheel({"tests/conftest.py": b"x"}) == ["tests/conftest.py does not belong there"]
    del about["licenses/NOTICE"]
    about["METADATA"] = metadata.replace("0.1.0", "0.2.0").replace("Keywords: a\n", "")
    assert wheel({}) == [
        "the licence file NOTICE is missing",
        "Keywords is missing in its metadata",
        "it is named regard-0.1.0-py3-none-any.whl, and its version is 0.2.0",
    ]
    assert "MB" in capsys.readouterr().out
