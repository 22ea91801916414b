"""Asks whether any installed distribution has a known vulnerability: of the OSV database, or of a copy of it in a file.

    python tools/audit.py [--bill bill.json] [--extra dev ...]            # asks api.osv.dev
    python tools/audit.py --advisories advisories.json                    # a list of OSV records, without a network

Ends with 0 if nothing is known, with 1 if something is, and with 2 if it could not be asked: that is never taken for a pass.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

SERVICE = "https://api.osv.dev/v1/querybatch"
SECONDS = 30
MOST_BYTES = 64 << 20
AT_ONCE = 500
CLEAN, FOUND, NOT_ASKED = 0, 1, 2


class NotAsked(Exception):
    """The question could not be put, or the answer not be read."""


def packages(bill: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and versions of a bill's libraries. A local build such as 2.13.0+cpu is asked about as 2.13.0."""
    return [(one["name"], one["version"].split("+")[0]) for one in bill["components"]]


def ask(wanted: list[tuple[str, str]], service: str = SERVICE) -> dict[str, list[str]]:
    """What the service knows of each distribution, by its name."""
    known: dict[str, list[str]] = {}
    for begin in range(0, len(wanted), AT_ONCE):
        part = wanted[begin : begin + AT_ONCE]
        queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in part]
        body = json.dumps({"queries": queries}).encode()
        request = urllib.request.Request(service, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                content = answer.read(MOST_BYTES + 1)
            results = json.loads(content)["results"]
            if len(results) != len(part):
                raise NotAsked(f"{service} answered {len(results)} of {len(part)} questions")
            for (name, _), result in zip(part, results, strict=True):
                if found := [str(one["id"]) for one in (result or {}).get("vulns", ())]:
                    known[name] = found
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise NotAsked(f"{service} could not be asked ({reason}): nothing was checked") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise NotAsked(f"{service} gave an answer that is none ({error}): nothing was checked") from None
    return known


def look_up(wanted: Iterable[tuple[str, str]], advisories: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The same from OSV records."""
    versions = {canonicalize_name(name): version for name, version in wanted}
    known: dict[str, list[str]] = {}
    for record in advisories:
        for affected in record.get("affected", ()):
            package = affected.get("package", {})
            name = canonicalize_name(str(package.get("name", "")))
            if package.get("ecosystem") == "PyPI" and name in versions and _is_affected(versions[name], affected):
                known.setdefault(name, []).append(str(record["id"]))
    return {name: sorted(set(ids)) for name, ids in known.items()}


def _is_affected(version: str, affected: Mapping[str, Any]) -> bool:
    if version in affected.get("versions", ()):
        return True
    return any(
        _is_inside(version, one.get("events", ())) for one in affected.get("ranges", ()) if one.get("type") != "GIT"
    )


def _is_inside(version: str, events: Iterable[Mapping[str, str]]) -> bool:
    """Whether a version is in a range: introduced at or before it, and neither fixed at or before it nor last seen before it."""
    try:
        here, inside = Version(version), False
        for event in events:
            if (begin := event.get("introduced")) is not None and (begin == "0" or here >= Version(begin)):
                inside = True
            if (end := event.get("fixed")) is not None and here >= Version(end):
                inside = False
            if (last := event.get("last_affected")) is not None and here > Version(last):
                inside = False
        return inside
    except InvalidVersion:
        return True  # what cannot be compared is looked at by a person


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bill", type=Path, help="of tools/bill_of_materials.py; made anew if it is not given")
    parser.add_argument("--extra", action="append", default=[])
    parser.add_argument("--advisories", type=Path)
    parser.add_argument("--service", default=SERVICE)
    arguments = parser.parse_args()
    if arguments.bill is not None:
        content = json.loads(arguments.bill.read_text(encoding="utf-8"))
    else:
        sys.path.insert(0, str(Path(__file__).parent))
        from bill_of_materials import bill

        content = bill(extras=frozenset(arguments.extra))
    wanted = packages(content)
    try:
        if arguments.advisories is not None:
            known = look_up(wanted, json.loads(arguments.advisories.read_text(encoding="utf-8")))
        else:
            known = ask(wanted, arguments.service)
    except NotAsked as error:
        print(f"audit: {error}. Use --advisories FILE without a network.", file=sys.stderr)
        return NOT_ASKED
    for name, ids in sorted(known.items()):
        print(f"{name} {dict(wanted)[name]}: {', '.join(ids)}")
    print(f"{len(wanted)} distributions, {len(known)} with known vulnerabilities")
    return FOUND if known else CLEAN


if __name__ == "__main__":
    sys.exit(main())
