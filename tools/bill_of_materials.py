"""Writes a software bill of materials (CycloneDX 1.6, JSON) of regard and all that is installed for it.

    python tools/bill_of_materials.py [--extra dev ...] [--out bill.json]

It is made from the metadata of the installed distributions alone: nothing is downloaded. The same installation gives the same
bill, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "regard"


def needed(name: str, extras: frozenset[str]) -> list[Requirement]:
    """What a distribution asks for here, with the extras that are wanted of it."""
    found = []
    for line in metadata.requires(name) or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *sorted(extras))):
            found.append(requirement)
    return found


def closure(
    root: str, extras: frozenset[str]
) -> tuple[dict[str, metadata.Distribution], dict[str, set[str]], set[str]]:
    """Distributions by their names, what each of them needs, and what is asked for but not installed."""
    installed: dict[str, metadata.Distribution] = {}
    edges: dict[str, set[str]] = {}
    missing: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(canonicalize_name(root), extras)]
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        try:
            installed[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            missing.add(name)
            continue
        for requirement in needed(name, wanted):
            other = canonicalize_name(requirement.name)
            if other != name:
                edges.setdefault(name, set()).add(other)
            waiting.append((other, frozenset(requirement.extras) | (wanted if other == name else frozenset())))
    return installed, edges, missing


def licences(found: metadata.Distribution) -> list[dict[str, Any]]:
    about: Any = found.metadata
    if expression := about.get("License-Expression"):
        return [{"expression": expression}]
    names = [line.rsplit(" :: ", 1)[-1] for line in about.get_all("Classifier") or () if line.startswith("License :: ")]
    short = about.get("License", "").strip()
    if not names and short and "\n" not in short and len(short) < 80:
        names = [short]
    return [{"license": {"name": name}} for name in names]


def address(name: str, version: str) -> str:
    """The package's purl."""
    return f"pkg:pypi/{name}@{version.replace('+', '%2B')}"


def bill(root: str = ROOT, extras: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The bill as plain values."""
    installed, edges, missing = closure(root, extras)
    if canonicalize_name(root) in missing:
        raise SystemExit(f"{root}: it is not installed. Install it first, for example with `make install`.")
    places = {name: address(name, found.version) for name, found in sorted(installed.items())}
    components = []
    for name, found in sorted(installed.items()):
        one: dict[str, Any] = {
            "type": "application" if name == canonicalize_name(root) else "library",
            "bom-ref": places[name],
            "name": name,
            "version": found.version,
            "purl": places[name],
        }
        if known := licences(found):
            one["licenses"] = known
        components.append(one)
    top = next(one for one in components if one["type"] == "application")
    libraries = [one for one in components if one is not top]
    depends = [
        {"ref": place, "dependsOn": sorted(places[other] for other in edges.get(name, ()) if other in places)}
        for name, place in places.items()
    ]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([libraries, depends], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": top},
        "components": libraries,
        "dependencies": depends,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--extra", action="append", default=[], help="an extra of regard, such as dev; may be repeated")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    text = json.dumps(bill(extras=frozenset(arguments.extra)), indent=1, ensure_ascii=False) + "\n"
    if arguments.out is None:
        sys.stdout.write(text)
    else:
        arguments.out.write_text(text, encoding="utf-8")
        print(f"{arguments.out}: {text.count('bom-ref')} distributions")


if __name__ == "__main__":
    main()
