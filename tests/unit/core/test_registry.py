"""Registries find their members by module name, and only those that the package has."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from regard.core.errors import ConfigError
from regard.core.registry import Registry
from regard.models.base import MODELS


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry over a package of two modules, `apple` and `pear`, which register three names."""
    package = tmp_path / "orchard"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from regard.core.registry import Registry\nFRUIT = Registry('fruit', 'orchard')\n"
    )
    (package / "apple.py").write_text("from orchard import FRUIT\nFRUIT.register('apple')('an apple')\n")
    more = "from orchard import FRUIT\nFRUIT.register('pear')('a pear')\nFRUIT.register('quince')('a quince')\n"
    (package / "pear.py").write_text(more)
    (package / "_rotten.py").write_text("raise RuntimeError('never import me')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import orchard  # type: ignore[import-not-found]

    yield orchard.FRUIT
    for name in [name for name in sys.modules if name.split(".")[0] == "orchard"]:
        del sys.modules[name]


def test_a_name_imports_its_own_module_only(registry: Registry) -> None:
    assert registry.get("apple") == "an apple"
    assert "orchard.apple" in sys.modules
    assert "orchard.pear" not in sys.modules


def test_a_name_without_its_own_module_is_found(registry: Registry) -> None:
    assert registry.get("quince") == "a quince"


def test_names_are_all_and_sorted(registry: Registry) -> None:
    assert registry.names() == ["apple", "pear", "quince"]


@pytest.mark.parametrize("name", ["aple", "zzz", "_rotten", "os", "..sys", "", "apple.py"])
def test_unknown_names_import_nothing_else(registry: Registry, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.get(name)
    assert str(caught.value).startswith(f"fruit {name!r}: there is none of that name. ")
    assert "known: apple, pear, quince" in str(caught.value)
    assert ("Perhaps you mean 'apple'" in str(caught.value)) == (name in ("aple", "apple.py"))


def test_a_file_that_forgot_to_register_is_said_to_be_there(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "orchard" / "plum.py").write_text("from orchard import FRUIT\nPLUM = 'a plum'\n")
    with pytest.raises(ConfigError, match=r"plum\.py is there, but registers no such name.*\.register\('plum'\)"):
        registry.get("plum")


def test_a_name_is_registered_once(registry: Registry) -> None:
    registry.names()
    with pytest.raises(ValueError, match="fruit 'apple' is registered twice"):
        registry.register("apple")("another")


def test_a_cell_that_registers_can_be_run_again(registry: Registry) -> None:
    cell = "@registry.register('fig')\nclass Fig: pass\n"
    for _ in range(2):
        names = {"registry": registry, "__name__": "__main__"}
        exec(cell, names)
        assert registry.get("fig") is names["Fig"]  # the newer one
    with pytest.raises(ValueError, match="fruit 'fig' is registered twice"):
        exec(cell, {"registry": registry, "__name__": "elsewhere"})
    with pytest.raises(ValueError, match="fruit 'fig' is registered twice"):
        exec(cell.replace("Fig", "Date"), {"registry": registry, "__name__": "__main__"})


def test_the_models_are_there() -> None:
    assert "transformer" in MODELS.names()
    assert MODELS.get("transformer").Config().name == "transformer"
