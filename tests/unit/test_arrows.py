"""Arrows point one way: which part of the package may import which, held by reading every import."""

from __future__ import annotations

import ast
from pathlib import Path

import regard

ROOT = Path(regard.__file__).parent
# A part may import the parts to its right.
ORDER = [
    "cli",
    "serving",
    "looking",
    "comparing",
    "exchange",
    "onnx",
    "training",
    "evaluation",
    "tasks",
    "engines",
    "search",
    "models",
    "data",
    "layers",
    "core",
]
FORBIDDEN = {("models", "data")}  # models know tensors, not text


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("regard."):
            found.add(node.module.split(".")[1])
        if isinstance(node, ast.ImportFrom) and node.module == "regard":
            found |= {alias.name for alias in node.names if (ROOT / alias.name).is_dir()}
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("regard.")}
    return found


def test_arrows_point_one_way():
    wrong = []
    for path in ROOT.rglob("*.py"):
        part = path.relative_to(ROOT).parts[0]
        if part in ORDER:
            for other in imports(path) & set(ORDER):
                if ORDER.index(other) < ORDER.index(part) or (part, other) in FORBIDDEN:
                    wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert wrong == []


def test_no_model_class_is_asked_for_outside_models():
    """Whoever needs to know something of a model asks the contract, not its class."""
    names = {
        node.name
        for path in (ROOT / "models").glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and path.name != "base.py"
    }
    wrong = []
    for path in ROOT.rglob("*.py"):
        if path.parent.name != "models":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                    asked = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                    wrong += [f"{path.name}: {name}" for name in asked & names]
    assert wrong == []


def test_no_pickle_and_no_evaluation():
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & {"pickle", "shelve", "marshal", "dill", "joblib"}, path
            if isinstance(node, ast.Call):
                assert getattr(node.func, "id", "") not in {"eval", "exec", "compile", "__import__"}, path
                if (
                    isinstance(node.func, ast.Attribute)
                    and isinstance(node.func.value, ast.Name)
                    and node.func.value.id == "torch"
                ):
                    assert node.func.attr not in {"load", "save"}, path
