"""Every chapter of the road runs, and what its text says is what its cells find; pages and notebooks come from the same source."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


road = _load("make_road")
CHAPTERS = road.chapters()


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_runs_and_becomes_a_page_and_a_notebook(path, tmp_path):
    chapter = road.run(road.read(path))
    code = [cell for cell in chapter.cells if cell.kind == "code"]
    assert any("assert" in cell.source for cell in code), "nothing in it checks what the text says"
    road.write(chapter, tmp_path)
    text = (tmp_path / f"{path.stem}.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        places = (tmp_path / target, ROOT / "docs" / "road" / target, ROOT / "docs" / "road" / f"{target[:-3]}.py")
        assert target.startswith("http") or any(place.exists() for place in places), target
    book = json.loads((tmp_path / f"{path.stem}.ipynb").read_text(encoding="utf-8"))
    check_notebook(book)
    assert "".join(book["cells"][1]["source"]).startswith(f"# {chapter.title}")
    assert sum(cell["cell_type"] == "code" for cell in book["cells"]) == len(code) + 1


def check_portable(cell):
    """A notebook may be opened anywhere: pictures are inside, links lead to notebooks beside it or into the web."""
    carried = cell.get("attachments", {})
    for picture, target in re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", "".join(cell["source"])):
        if picture:
            assert base64.b64decode(carried[target.removeprefix("attachment:")]["image/png"]).startswith(b"\x89PNG")
        else:
            assert target.startswith("http") or (ROOT / "docs" / "road" / target).with_suffix(".py").exists(), target


def check_notebook(book):
    """What nbformat 4.5 asks for, of the kinds of cells and outputs that are written here."""
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert set(book) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    ids = [cell["id"] for cell in book["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in ids)
    for cell in book["cells"]:
        common = {"id", "cell_type", "metadata", "source"}
        if cell["cell_type"] == "markdown":
            check_portable(cell)
            common |= {"attachments"} & set(cell)
        assert set(cell) == common | ({"execution_count", "outputs"} if cell["cell_type"] == "code" else set())
        assert all(isinstance(line, str) for line in cell["source"])
        for output in cell.get("outputs", ()):
            expected = {"stream": {"name", "text"}, "display_data": {"data", "metadata"}}[output["output_type"]]
            assert set(output) == expected | {"output_type"}


def _chapter(tmp_path, text):
    path = tmp_path / "99_made_up.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_cells_show_what_they_print_their_last_line_and_their_picture(tmp_path):
    source = (
        "# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\na = 2\nprint('hello')\na * 21\n\n# %%\n"
        "from regard.evaluation.drawing import draw_bars\nfigure = draw_bars({'x': 1.0}, title='one bar')\nfigure\n"
    )
    chapter = road.run(road.read(_chapter(tmp_path, source)))
    text, pictures = road.page(chapter)
    assert text.startswith("# Title\n\nText.\n\n```python\na = 2")
    assert "```text\nhello\n42\n```" in text
    assert "![one bar](99_made_up_1.png)" in text
    assert pictures["99_made_up_1.png"].startswith(b"\x89PNG")
    check_notebook(road.notebook(chapter))


def test_a_cell_that_fails_fails_the_chapter(tmp_path):
    chapter = road.read(_chapter(tmp_path, "# %% [markdown]\n# # T\n\n# %%\nassert 1 + 1 == 3\n"))
    with pytest.raises(AssertionError):
        road.run(chapter)


@pytest.mark.parametrize("text", ["a = 1\n# %%\n", "# %% [markdown]\na = 1\n"])
def test_what_stands_in_no_cell_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match=r"99_made_up\.py, line"):
        road.read(_chapter(tmp_path, text))


def test_every_chapter_is_in_the_contents():
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.findall(r"road/(\d\d_\w+)\.md", contents) == [path.stem for path in CHAPTERS]


def test_every_page_of_the_contents_is_there():
    made = {"recipes.md", "road/gallery.md"}  # by docs/site_hooks.py
    pages = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert len(pages) > 50
    for page in pages:
        path = ROOT / "docs" / page
        assert path.exists() or (page.startswith("road/") and path.with_suffix(".py").exists()) or page in made, page


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_cell_that_trains_can_be_run_again(path):
    """A folder that holds a run is refused: whoever runs the cell again needs a new one."""
    for cell in road.read(path).cells:
        if cell.kind == "code" and "regard.train(" in cell.source:
            assert cell.source.index("mkdtemp(") < cell.source.index("regard.train(")


def test_every_chapter_links_into_the_viewer():
    from regard.cli.look import FIRST_PORT
    from regard.looking.views import VIEWS

    for path in CHAPTERS:
        views = re.findall(rf"http://127\.0\.0\.1:{FIRST_PORT}/#view=(\w+)", path.read_text(encoding="utf-8"))
        assert views, path.name
        assert set(views) <= set(VIEWS), path.name
