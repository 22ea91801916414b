"""Runs the chapters of the road and writes, from the one source of each, a page with its outputs and a notebook.

    python docs/make_road.py [--out build/road] [NAME ...]

A chapter is a Python file in docs/road: `# %% [markdown]` begins a text (comment lines), `# %%` begins code. What a cell prints,
its last expression and its picture become part of the page.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import dataclasses
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROAD = Path(__file__).parent / "road"
MARK = re.compile(r"^# %%(?P<text> \[markdown\])?\s*$")


@dataclasses.dataclass
class Cell:
    """A piece of a chapter; `text` cells are Markdown. Outputs are there once it has been run."""

    kind: str  # text or code
    source: str
    printed: str = ""
    picture: bytes | None = None
    caption: str = ""


@dataclasses.dataclass
class Chapter:
    name: str
    cells: list[Cell]

    @property
    def title(self) -> str:
        first = self.cells[0].source.splitlines()[0] if self.cells else ""
        if not first.startswith("# "):
            raise ValueError(f"{self.name}: the first cell has to begin with a title")
        return first.removeprefix("# ")


def chapters() -> list[Path]:
    return sorted(ROAD.glob("[0-9][0-9]_*.py"))


def read(path: Path) -> Chapter:
    """The cells of a chapter."""
    cells: list[Cell] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if (found := MARK.match(line)) is not None:
            cells.append(Cell("text" if found["text"] else "code", ""))
        elif not cells:
            if line.strip():
                raise ValueError(f"{path.name}, line {number}: it stands before the first cell")
        elif cells[-1].kind == "text":
            if line.strip() and not line.startswith("#"):
                raise ValueError(f"{path.name}, line {number}: code in a cell of text")
            cells[-1].source += line.removeprefix("#").removeprefix(" ") + "\n"
        else:
            cells[-1].source += line + "\n"
    for cell in cells:
        cell.source = cell.source.strip("\n")
    return Chapter(path.stem, cells)


def run(chapter: Chapter) -> Chapter:
    """Executes the code cells in order, in an empty folder, and keeps what they show."""
    names: dict[str, Any] = {"__name__": chapter.name}
    with _elsewhere():
        for number, cell in enumerate(chapter.cells):
            if cell.kind == "code":
                _run_cell(cell, names, f"{chapter.name}, cell {number}")
    return chapter


def _run_cell(cell: Cell, names: dict[str, Any], where: str) -> None:
    tree = ast.parse(cell.source, where)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, where, "exec", dont_inherit=True), names)
        shown: Any = None
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), where, "eval", dont_inherit=True), names)
        if shown is not None and not hasattr(shown, "savefig"):
            print(repr(shown))
    cell.printed = printed.getvalue().rstrip()
    if shown is not None and hasattr(shown, "savefig"):
        cell.picture, cell.caption = _png(shown), next((a.get_title() for a in shown.axes if a.get_title()), "")


def _png(figure: Any) -> bytes:
    from regard.evaluation.plots import save_figure

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.png"
        save_figure(figure, path)
        return path.read_bytes()


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def page(chapter: Chapter) -> tuple[str, dict[str, bytes]]:
    """The chapter as Markdown, and its pictures by file name."""
    parts, pictures = [], {}
    for cell in chapter.cells:
        if cell.kind == "text":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        if cell.printed:
            parts.append(f"```text\n{cell.printed}\n```")
        if cell.picture is not None:
            name = f"{chapter.name}_{len(pictures) + 1}.png"
            pictures[name] = cell.picture
            parts.append(f"![{cell.caption or f'Picture {len(pictures)}'}]({name})")
    parts.append(f"*This chapter as a [notebook]({chapter.name}.ipynb).*")
    return "\n\n".join(parts) + "\n", pictures


def portable(text: str) -> tuple[str, dict[str, dict[str, str]]]:
    """A text for a notebook, which may be opened anywhere: its pictures go with it (as attachments), other chapters are
    notebooks beside it, and other pages are named."""
    docs = Path(__file__).parent
    carried: dict[str, dict[str, str]] = {}

    def replaced(link: re.Match[str]) -> str:
        picture, said, target = link.groups()
        path = (docs / "road" / target.partition("#")[0]).resolve()
        if target.startswith("http"):
            return link[0]
        if picture:
            carried[path.name] = {"image/png": base64.b64encode(path.read_bytes()).decode()}
            return f"![{said}](attachment:{path.name})"
        if path.parent.name == "road" and path.with_suffix(".py").exists():
            return f"[{said}]({path.stem}.ipynb)"
        return f"{said} ({path.relative_to(docs.parent.resolve()).as_posix()})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", replaced, text), carried


def notebook(chapter: Chapter) -> dict[str, Any]:
    """The chapter as a Jupyter notebook (nbformat 4.5), with its outputs."""
    cells: list[dict[str, Any]] = []
    for number, cell in enumerate([Cell("code", "%matplotlib inline"), *chapter.cells]):
        common = {"id": f"cell-{number}", "metadata": {}}
        if cell.kind == "text":
            text, carried = portable(cell.source)
            more = {"attachments": carried} if carried else {}
            cells.append({"cell_type": "markdown", **common, "source": text.splitlines(keepends=True), **more})
            continue
        common["source"] = cell.source.splitlines(keepends=True)
        outputs: list[dict[str, Any]] = []
        if cell.printed:
            lines = cell.printed.splitlines(keepends=True)
            outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
        if cell.picture is not None:
            data = {"image/png": base64.b64encode(cell.picture).decode()}
            outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
        cells.append({"cell_type": "code", "execution_count": None, "outputs": outputs, **common})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def write(chapter: Chapter, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    text, pictures = page(chapter)
    for old in out.glob(f"{chapter.name}_*.png"):
        old.unlink()
    for name, data in pictures.items():
        (out / name).write_bytes(data)
    (out / f"{chapter.name}.md").write_text(text, encoding="utf-8")
    (out / f"{chapter.name}.ipynb").write_text(json.dumps(notebook(chapter), indent=1), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "build" / "road")
    parser.add_argument("names", nargs="*", help="beginnings of names of chapters; default: all")
    asked = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    for path in chapters():
        if asked.names and not path.stem.startswith(tuple(asked.names)):
            continue
        began = time.perf_counter()
        write(run(read(path)), asked.out.absolute())
        print(f"{path.stem}: {time.perf_counter() - began:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
