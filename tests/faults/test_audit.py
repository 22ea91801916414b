"""The bill of materials and the audit: complete, repeatable, and never passed where nothing was asked."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


def tool(name: str):
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


audit, bill_of_materials = tool("audit"), tool("bill_of_materials")


@pytest.fixture(scope="module")
def bill():
    return bill_of_materials.bill()


def test_the_bill_names_what_is_imported_with_its_version_and_licence(bill):
    versions = {one["name"]: one["version"] for one in bill["components"]}
    for name in ("torch", "numpy", "safetensors", "tokenizers", "sacrebleu", "typer", "starlette", "uvicorn", "sympy"):
        assert versions[name] == metadata.version(name), name  # sympy is needed by torch only
    assert "pytest" not in versions
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    (licence,) = bill["metadata"]["component"]["licenses"]
    assert licence["expression"].split(" AND ")[0] == "Apache-2.0"  # the others are those of bundled texts
    known = sum(bool(one.get("licenses")) for one in bill["components"])
    assert known >= 0.8 * len(bill["components"])


def test_its_references_lead_somewhere(bill):
    places = [one["bom-ref"] for one in (*bill["components"], bill["metadata"]["component"])]
    assert len(set(places)) == len(places)
    assert {row["ref"] for row in bill["dependencies"]} == set(places)
    assert all(other in places for row in bill["dependencies"] for other in row["dependsOn"])
    reached, waiting = set(), [bill["metadata"]["component"]["bom-ref"]]
    below = {row["ref"]: row["dependsOn"] for row in bill["dependencies"]}
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting += below[one]
    assert reached == set(places)


def test_the_same_installation_gives_the_same_bill(bill):
    assert bill_of_materials.bill() == bill
    names = {one["name"] for one in bill_of_materials.bill(extras=frozenset({"dev"}))["components"]}
    assert {"pytest", "hypothesis"} <= names


RECORD = {
    "id": "TEST-1",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "Some_Thing"},
            "ranges": [
                {"type": "ECOSYSTEM", "events": [{"introduced": "1.2"}, {"fixed": "1.10"}, {"introduced": "2.0"}]}
            ],
            "versions": ["0.5"],
        }
    ],
}


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ("1.1", False),
        ("1.2", True),
        ("1.9.1", True),
        ("1.10", False),
        ("1.11", False),
        ("2.0", True),
        ("3", True),
        ("0.5", True),
    ],
)
def test_ranges_of_versions(version, affected):
    known = audit.look_up([("some-thing", version)], [RECORD])
    assert known == ({"some-thing": ["TEST-1"]} if affected else {})


def test_what_was_last_seen_in_a_version_is_not_in_later_ones():
    events = [{"introduced": "0"}, {"last_affected": "1.4"}]
    record = {"id": "X", "affected": [{"package": {"ecosystem": "PyPI", "name": "a"}, "ranges": [{"events": events}]}]}
    assert audit.look_up([("a", "1.4")], [record]) == {"a": ["X"]}
    assert audit.look_up([("a", "1.4.1")], [record]) == {}
    other = {**record, "affected": [{**record["affected"][0], "package": {"ecosystem": "npm", "name": "a"}}]}
    assert audit.look_up([("a", "1.0")], [other]) == {}


class Service(BaseHTTPRequestHandler):
    answer: bytes | None = None
    asked: list = []  # noqa: RUF012 (of this test)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        found = [{"vulns": [{"id": "OSV-7"}]} if q["package"]["name"] == "torch" else {} for q in body["queries"]]
        content = self.answer if self.answer is not None else json.dumps({"results": found}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def service():
    server = HTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join(5)


def run(bill, tmp_path, *words: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "bill.json").write_text(json.dumps(bill))
    command = [sys.executable, str(TOOLS / "audit.py"), "--bill", str(tmp_path / "bill.json"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_service_is_asked_of_every_distribution(bill, service, tmp_path):
    ended = run(bill, tmp_path, "--service", service)
    assert ended.returncode == 1
    assert "torch" in ended.stdout
    assert "OSV-7" in ended.stdout
    versions = {q["package"]["name"]: q["version"] for body in Service.asked for q in body["queries"]}
    assert len(versions) == len(bill["components"])
    assert versions["torch"] == metadata.version("torch").split("+")[0]


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"results": []}', b'{"results": null}', b"<html>"])
def test_an_answer_that_is_none_is_no_pass(bill, service, monkeypatch, answer):
    monkeypatch.setattr(Service, "answer", answer)
    with pytest.raises(audit.NotAsked):
        audit.ask(audit.packages(bill), service)


def test_without_a_network_it_fails_and_says_so(bill, tmp_path):
    ended = run(bill, tmp_path, "--service", "http://127.0.0.1:9/")
    assert ended.returncode == 2
    assert "nothing was checked" in ended.stderr
    (tmp_path / "advisories.json").write_text(json.dumps([RECORD]))
    ended = run(bill, tmp_path, "--advisories", str(tmp_path / "advisories.json"))
    assert ended.returncode == 0, ended.stderr
    assert "0 with known vulnerabilities" in ended.stdout
