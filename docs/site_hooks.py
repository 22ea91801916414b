"""What the site has beside the written pages: the road, a reference page for each module, and the project's own files.

Pages of this folder link to source files, as they are read in the repository; on the site these links lead to the reference.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ROAD = ROOT / "build" / "road"
CARD = "src/regard/data/bundled/model/CARD.md"
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", CARD)  # those that are there
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~)", re.MULTILINE)


def modules() -> Iterator[tuple[str, Path]]:
    """All public modules by name."""
    for path in sorted((ROOT / "src" / "regard").rglob("*.py")):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(part.startswith("_") for part in parts):
            yield ".".join(parts), path


def on_config(config: Any) -> Any:
    """Adds to the contents what no list has to be kept of."""
    docs = Path(config.docs_dir)
    named = set(re.findall(r"[\w/]+\.md", str(config.nav)))
    others = [path.name for path in sorted(docs.glob("*.md")) if path.name not in named]

    def folder(name: str, pattern: str) -> list[str]:
        return [path.relative_to(docs).as_posix() for path in sorted((docs / name).glob(pattern))]

    packages: dict[str, list[str]] = {}
    for name, _ in modules():
        packages.setdefault(".".join(name.split(".")[:2]) if name.count(".") > 1 else "regard", []).append(name)
    reference = [
        {package: [{name.removeprefix(f"{package}."): _reference(name)} for name in names]}
        for package, names in sorted(packages.items())
    ]
    listed = next(part["Guide"] for part in config.nav if "Guide" in part)
    listed += [{"Comparisons": folder("compared", "*/README.md")}, *([{"More": others}] if others else [])]
    config.nav += [
        {"Reference": ["reference/index.md", *reference]},
        {"Project": [
            *(_project(name) for name in PROJECT if (ROOT / name).exists()),
            {"Decisions": folder("adr", "*.md")},
            {"Lab notes": folder("lab", "*.md")},
        ]},
    ]  # fmt: skip
    return config


def on_files(files: Files, config: Any) -> Files:
    if not list(ROAD.glob("*.md")):
        raise PluginError("The chapters of the road are not there: run docs/make_road.py first (make docs does)")
    for path in sorted(ROAD.iterdir()):
        _add(files, File.generated(config, f"road/{path.name}", abs_src_path=str(path)))
    _add(files, File.generated(config, "road/gallery.md", content=_gallery()))
    for name, _ in modules():
        _add(files, File.generated(config, _reference(name), content=f"# {name}\n\n::: {name}\n"))
    listed = "\n".join(f"- [{name}]({_reference(name).removeprefix('reference/')})" for name, _ in modules())
    text = f"# Reference\n\nAll public modules, from their docstrings. Begin with [regard](regard.md).\n\n{listed}\n"
    _add(files, File.generated(config, "reference/index.md", content=text))
    for name in PROJECT:
        if (ROOT / name).exists():
            _add(files, File.generated(config, _project(name), content=(ROOT / name).read_text(encoding="utf-8")))
    _add(files, File.generated(config, "recipes.md", content=_recipes()))
    return files


def _add(files: Files, file: File) -> None:
    old = files.get_file_from_path(file.src_uri)
    if old is not None:
        files.remove(old)
    files.append(file)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turns links out of this folder into links to the pages that stand for their targets."""
    here = page.file.src_uri
    if here.startswith("reference/"):
        return markdown
    origin = next((name for name in PROJECT if _project(name) == here), None)
    base = posixpath.dirname(origin) if origin is not None else posixpath.join("docs", posixpath.dirname(here))

    def link(found: re.Match[str]) -> str:
        mark, text, target = found.groups()
        path, hash_, anchor = target.partition("#")
        if "://" in path or not path or path.startswith("mailto:"):
            return found[0]
        wanted = posixpath.normpath(posixpath.join(base, path))
        place = _on_site(wanted, files)
        if place is None:
            return found[0] if wanted.startswith("docs/") else text
        return f"{mark}[{text}]({posixpath.relpath(place, posixpath.dirname(here) or '.')}{hash_}{anchor})"

    pieces = FENCE.split(markdown)  # text, fence, code, fence, text ...
    for i in range(0, len(pieces), 4):
        pieces[i] = LINK.sub(link, pieces[i])
    return "".join(pieces)


def _on_site(path: str, files: Files) -> str | None:
    """The page for a file of the repository."""
    if path.startswith("src/regard/") and path.endswith(".py"):
        name = path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return _reference(name) if files.get_file_from_path(_reference(name)) else None
    if path in PROJECT:
        return _project(path)
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/") if files.get_file_from_path(path.removeprefix("docs/")) else None
    return None


def _gallery() -> str:
    """All pictures of the road, each with a link to its chapter."""
    parts = ["# Gallery", "All pictures of the road. Each was drawn by its chapter when this site was built."]
    for path in sorted(ROAD.glob("[0-9]*.md")):
        text = path.read_text(encoding="utf-8")
        pictures = re.findall(rf"^!\[[^\]]*\]\({path.stem}_\d+\.png\)$", text, flags=re.MULTILINE)
        if pictures:
            title = text.splitlines()[0].removeprefix("# ")
            parts += [f"## {title}", f"[The chapter]({path.name})", *pictures]
    return "\n\n".join(parts) + "\n"


def _recipes() -> str:
    """All recipes that ship, as they are."""
    parts = [
        "# Recipes",
        "`regard recipes` lists them, `regard train NAME --out run` takes one, and settings go over it.",
    ]
    for path in sorted((ROOT / "src" / "regard" / "recipes").glob("*.toml")):
        parts += [f"## {path.stem}", f"```toml\n{path.read_text(encoding='utf-8').strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def _reference(name: str) -> str:
    return f"reference/{name}.md"


def _project(name: str) -> str:
    return f"project/{posixpath.basename(name)}"
