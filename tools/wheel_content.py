"""Whether a wheel and a source archive hold what they must, and nothing else.

    python tools/wheel_content.py dist

The wheel is compared with src/regard, file by file; what is no Python has to be of a kind that is listed here. Prints the sizes.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tarfile
import zipfile
from collections import Counter
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
DATA = (  # what may be there beside Python
    "regard/py.typed",
    "regard/recipes/*.toml",
    "regard/data/catalogue.toml",
    "regard/data/bundled/*.LICENSE.md",
    "regard/data/bundled/*.xz",
    "regard/data/bundled/model/*",
    "regard/looking/assets/*",
    "regard/serving/assets/*",
)
LICENCES = (
    "LICENSE",
    "NOTICE",
    "tatoeba-en-de.LICENSE.md",
    "tinyshakespeare.LICENSE.md",
    "ud-ewt.LICENSE.md",
    "THIRD-PARTY.txt",
)
ARCHIVE = (
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "NOTICE", "README.md", "constraints.txt",
    "mkdocs.yml", "pyproject.toml", "docs/index.md", "tests/conftest.py", "tools/try_wheel.py",
    "viewer/package-lock.json", "viewer/src/main.tsx",
)  # fmt: skip
MOST_BYTES = 20_000_000  # a wheel; the bundled model is 13 MB of it


def expected() -> dict[str, Path]:
    """The files of the package, by their names in a wheel."""
    python = [path for path in (SOURCE / "regard").rglob("*.py") if "__pycache__" not in path.parts]
    data = [path for pattern in DATA for path in SOURCE.glob(pattern)]
    return {path.relative_to(SOURCE).as_posix(): path for path in [*python, *data]}


def check_wheel(path: Path) -> list[str]:
    """What is wrong with a wheel."""
    wrong = []
    sizes: Counter[str] = Counter()
    wanted = expected()
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if not name.endswith("/")]
        about = {name for name in names if ".dist-info/" in name}
        for name in sorted(set(wanted) - set(names)):
            wrong.append(f"{name} is missing")
        for name in sorted(set(names) - set(wanted) - about):
            wrong.append(f"{name} does not belong there")
        for name in sorted(set(names) & set(wanted)):
            if hashlib.sha256(wheel.read(name)).digest() != hashlib.sha256(wanted[name].read_bytes()).digest():
                wrong.append(f"{name} is not that of the source")
        for name in names:
            info = wheel.getinfo(name)
            parts = name.split("/")
            part = (
                "/".join(parts[:3])
                if "bundled" in parts or "assets" in parts
                else "code"
                if name.endswith(".py")
                else "other"
            )
            sizes[part] += info.compress_size
        licences = {name.rsplit("/", 1)[-1] for name in about if "/licenses/" in name}
        wrong += [f"the licence file {name} is missing" for name in sorted(set(LICENCES) - licences)]
        metadata = next((name for name in about if name.endswith("/METADATA")), None)
        if metadata is None:
            return [*wrong, "there is no METADATA"]
        wrong += check_metadata(wheel.read(metadata).decode(), path.name)
    size = path.stat().st_size
    if size > MOST_BYTES:
        wrong.append(f"it has {size:,} bytes, more than {MOST_BYTES:,}")
    print(f"{path.name}: {len(names)} files, {size / 1e6:.1f} MB")
    for part, count in sizes.most_common():
        print(f"  {count / 1e6:6.2f} MB  {part}")
    return wrong


def check_metadata(text: str, name: str) -> list[str]:
    """What is missing of what an index shows."""
    found = Parser().parsestr(text)
    wrong = [
        f"{key} is missing in its metadata"
        for key in (
            "Name",
            "Version",
            "Summary",
            "License-Expression",
            "Keywords",
            "Requires-Python",
            "Author",
            "License-File",
        )
        if not found.get(key)
    ]
    if f"-{found['Version']}-" not in name:
        wrong.append(f"it is named {name}, and its version is {found['Version']}")
    return wrong


def check_archive(path: Path) -> list[str]:
    """What is wrong with a source archive: it must hold all of the package, and what is needed to test and document it."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {f"src/{name}" for name in expected()} | set(ARCHIVE)
    print(f"{path.name}: {len(names)} files, {path.stat().st_size / 1e6:.1f} MB")
    wrong = [f"{name} is missing" for name in sorted(wanted - names)]
    unwanted = ("node_modules", "__pycache__", ".git/", "build/", "carry/", "/runs/run", ".venv")
    return wrong + [f"{name} does not belong there" for name in sorted(names) if any(part in name for part in unwanted)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "dist")
    folder = parser.parse_args().folder
    wheels, archives = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(archives) != 1:
        print(f"{folder}: one wheel and one archive are expected, found {len(wheels)} and {len(archives)}")
        return 1
    wrong = [f"{wheels[0].name}: {what}" for what in check_wheel(wheels[0])]
    wrong += [f"{archives[0].name}: {what}" for what in check_archive(archives[0])]
    print("\n".join(wrong) or "Both hold what they must, and nothing else.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
