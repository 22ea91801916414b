"""The site's hooks: links out of the documentation's folder lead to the pages that stand for their targets."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("mkdocs")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Pages:
    """The pages of a small site."""

    names = ("shapes.md", "road/index.md", "reference/regard.models.kim.md", "project/CHANGELOG.md", "index.md")

    def get_file_from_path(self, name):
        return name if name in self.names else None


def rewritten(hooks, text, here):
    return hooks.on_page_markdown(text, SimpleNamespace(file=SimpleNamespace(src_uri=here)), None, Pages())


@pytest.mark.parametrize(
    ("here", "text", "expected"),
    [
        ("shapes.md", "[kim](../src/regard/models/kim.py)", "[kim](reference/regard.models.kim.md)"),
        ("road/index.md", "[k](../../src/regard/models/kim.py#x)", "[k](../reference/regard.models.kim.md#x)"),
        ("shapes.md", "see [it](../benchmarks/a.py) there", "see it there"),
        ("shapes.md", "[log](../CHANGELOG.md)", "[log](project/CHANGELOG.md)"),
        ("project/CHANGELOG.md", "[s](docs/shapes.md)", "[s](../shapes.md)"),
        ("shapes.md", "[w](https://a.b/c) [h](#here)", "[w](https://a.b/c) [h](#here)"),
        ("shapes.md", "[gone](nowhere.md)", "[gone](nowhere.md)"),
        (
            "shapes.md",
            "```\n[kim](../src/regard/models/kim.py)\n```\n[kim](../src/regard/models/kim.py)",
            "```\n[kim](../src/regard/models/kim.py)\n```\n[kim](reference/regard.models.kim.md)",
        ),
    ],
)
def test_links_are_rewritten(hooks, here, text, expected):
    assert rewritten(hooks, text, here) == expected


def test_reference_has_every_public_module(hooks):
    names = dict(hooks.modules())
    assert "regard" in names
    assert "regard.layers.attention.kernels" in names
    assert not any("._" in name for name in names)


def test_recipes_are_all_shown(hooks):
    text = hooks._recipes()
    for path in (ROOT / "src" / "regard" / "recipes").glob("*.toml"):
        assert f"## {path.stem}\n" in text
