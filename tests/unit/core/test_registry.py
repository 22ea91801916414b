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


def test_a_name_is_registered_once(registry: Registry) -> None:
    registry.names()
    with pytest.raises(ValueError, match="fruit 'apple' is registered twice"):
        registry.register("apple")("another")


def test_the_models_are_there() -> None:
    assert "transformer" in MODELS.names()
    assert MODELS.get("transformer").Config().name == "transformer"
