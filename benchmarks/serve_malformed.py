"""Malformed requests against a running server: what LibreTranslate stumbles over, schemathesis, Hypothesis, raw sockets, damage.

    python benchmarks/serve_malformed.py                      # 20,000 requests, against a server of its own
    python benchmarks/serve_malformed.py --count 2000 --seed 7 --address http://127.0.0.1:5000

Every malformed request must get a 4xx; a 5xx, an answer that is not its facade's shape, or none at all is a failure. The
set of 25 bodies is counted apart. Schemathesis sends what the OpenAPI document allows, too: there, 5xx and answers that the
document does not describe are failures; Hypothesis sends any bytes and any JSON, of which some may be right by chance: there, only
5xx and wrong shapes are. Answers of 2xx are not counted as malformed requests. Prints a line of JSON for each part.
"""

from __future__ import annotations

import argparse
import collections
import http.client
import json
import logging
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PAIR = b'"source":"en","target":"de"'
DEEP = 100_000
# The bodies of one probe of LibreTranslate 1.9.6, which answered ten of them with 500.
BODIES: dict[str, bytes] = {
    "q int": b'{"q":1,%s}' % PAIR,
    "q true": b'{"q":true,%s}' % PAIR,
    "q [int]": b'{"q":[1],%s}' % PAIR,
    "q [null]": b'{"q":[null],%s}' % PAIR,
    "auto [int]": b'{"q":[1],"source":"auto","target":"de"}',
    "alternatives x": b'{"q":"a","alternatives":"x",%s}' % PAIR,
    "alternatives null": b'{"q":"a","alternatives":null,%s}' % PAIR,
    "alternatives {}": b'{"q":"a","alternatives":{},%s}' % PAIR,
    "alternatives 1e400": b'{"q":"a","alternatives":1e400,%s}' % PAIR,
    "deep": b'{"q":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "lone surrogate": b'{"q":"\\ud800",%s}' % PAIR,
    "q missing": b"{%s}" % PAIR,
    "q null": b'{"q":null,%s}' % PAIR,
    "q {}": b'{"q":{"a":"b"},%s}' % PAIR,
    "q [[]]": b'{"q":[["a"]],%s}' % PAIR,
    "source int": b'{"q":"a","source":1,"target":"de"}',
    "target list": b'{"q":"a","source":"en","target":["de"]}',
    "unknown language": b'{"q":"a","source":"xx","target":"de"}',
    "format int": b'{"q":"a","format":1,%s}' % PAIR,
    "alternatives negative": b'{"q":"a","alternatives":-1,%s}' % PAIR,
    "alternatives huge": b'{"q":"a","alternatives":%d,%s}' % (10**18, PAIR),
    "NaN": b'{"q":"a","alternatives":NaN,%s}' % PAIR,
    "not an object": b'["q"]',
    "not JSON": b'{"q":"a"',
    "not UTF-8": b'{"q":"\xff\xfe",%s}' % PAIR,
}
PATHS = {
    "/translate": (b'{"q":"Hello.",%s}' % PAIR, "libretranslate"),
    "/detect": (b'{"q":"Hello."}', "libretranslate"),
    "/v2/translate": (b'{"text":["Hello."],"target_lang":"DE"}', "deepl"),
    "/v1/completions": (b'{"model":"writer","prompt":"The cat","max_tokens":4}', "openai"),
    "/v1/classify": (b'{"model":"sorter","input":"The cat."}', "plain"),
    "/v1/tag": (b'{"model":"tagger","input":"The cat."}', "plain"),
    "/v1/fill": (b'{"model":"reader","input":"The <mask> sat."}', "plain"),
    "/v1/embeddings": (b'{"model":"reader","input":"The cat."}', "plain"),
}
WRONG = (
    "null", "true", "-1", "1.5", "1e400", "-1e999", "NaN", "Infinity", "1" * 400, '""', '"\\ud800"', '"\\u0000"', "[]",
    "[[]]", "[null]", "[1,2]", "{}", '{"a":{"b":1}}', '"' + "x" * 30_000 + '"', "[" * 5000, '"x', "'x'", "01", "+1", "0x1",
)  # fmt: skip


def right_shape(facade: str, body: bytes) -> bool:
    """Whether an error looks as this facade's errors do."""
    try:
        found = json.loads(body)
    except ValueError:
        return False
    if not isinstance(found, dict):
        return False
    if facade == "deepl":
        return isinstance(found.get("message"), str)
    error = found.get("error")
    if facade == "libretranslate":
        return isinstance(error, str)
    return isinstance(error, dict) and isinstance(error.get("message"), str) and {"type", "param", "code"} <= set(error)


class Client:
    """One connection, opened again where the server closed it."""

    def __init__(self, address: str):
        parts = urlsplit(address)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self._open()

    def close(self) -> None:
        self.connection.close()

    def _open(self) -> None:
        self.connection = http.client.HTTPConnection(self.host, self.port, timeout=30)

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        for last in (False, True):
            try:
                self.connection.request(method, path, body, headers)
                answer = self.connection.getresponse()
                content = answer.read()
                if answer.will_close:
                    self.connection.close()
                return answer.status, content
            except (http.client.HTTPException, OSError):
                self.connection.close()
                self._open()
                if last:
                    raise
        raise AssertionError

    def raw(self, content: bytes, wait: float = 15.0) -> int:
        """The status of the answer to these bytes; 0: none."""
        with socket.create_connection((self.host, self.port), timeout=wait) as one:
            found = b""
            try:
                one.sendall(content)
                while b"\r\n" not in found and (more := one.recv(4096)):
                    found += more
            except OSError:  # closed while much was being sent, or no answer in time
                pass
        words = found.split(b" ", 2)
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


class Count:
    """What was answered, and what should not have been."""

    def __init__(self, name: str):
        self.name, self.began = name, time.monotonic()
        self.statuses: collections.Counter[int] = collections.Counter()
        self.wrong: list[str] = []

    def add(self, what: str, status: int, good: bool) -> None:
        self.statuses[status] += 1
        if not good and len(self.wrong) < 20:
            self.wrong.append(f"{status}: {what[:200]}")
        elif not good:
            self.wrong.append("")

    @property
    def malformed(self) -> int:
        """Requests that were not answered with what they asked for."""
        return sum(count for status, count in self.statuses.items() if not 200 <= status < 300)

    def plain(self) -> dict[str, object]:
        return {
            "part": self.name,
            "requests": sum(self.statuses.values()),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "wrong": len(self.wrong),
            "examples": [one for one in self.wrong[:20] if one],
            "seconds": round(time.monotonic() - self.began, 1),
        }


def bodies(client: Client) -> Count:
    count = Count("25 bodies")
    for name, body in BODIES.items():
        status, content = client.ask("POST", "/translate", body, JSON)
        count.add(f"{name} {content!r}", status, 400 <= status < 500 and right_shape("libretranslate", content))
    return count


def broken_fields(random_: random.Random) -> tuple[str, bytes]:
    """A right request with one field made wrong: never a value that would be right."""
    path = random_.choice(list(PATHS))
    fields = json.loads(PATHS[path][0])
    name = random_.choice(list(fields))
    given = {key: json.dumps(value) for key, value in fields.items()}
    change = random_.randrange(4)
    if change == 0:
        del given[name]
        if name in ("max_tokens",) or (name == "model" and path != "/v1/completions") or name == "prompt":
            given["input" if "input" in fields else "stop"] = random_.choice(("{}", "1", "[[1]]"))
    else:
        wrong = [w for w in WRONG if not _may_be_right(name, w)]
        given[name] = random_.choice(wrong)
    body = "{" + ",".join(f'"{key}":{value}' for key, value in given.items()) + "}"
    return path, body.encode()


def _may_be_right(name: str, value: str) -> bool:
    """What some field takes: null where it may be left out, lists of texts or tokens, an empty text."""
    if name in ("prompt", "model") and value == "null":
        return True
    if name in ("max_tokens", "top", "alternatives") and value in ("null",):
        return True
    return name in ("prompt", "text") and value in ('""', "[1,2]")


def damaged(random_: random.Random) -> tuple[str, bytes]:
    """A right request with bytes lost, doubled or changed so that it is no JSON any more."""
    path = random_.choice(list(PATHS))
    body = bytearray(PATHS[path][0])
    for _ in range(50):
        changed = bytearray(body)
        for _ in range(random_.randint(1, 4)):
            place = random_.randrange(len(changed)) if changed else 0
            action = random_.randrange(3)
            if action == 0 and changed:
                del changed[place]
            elif action == 1:
                changed.insert(place, random_.choice(b'{}[]",:\\\x00\xff'))
            elif changed:
                changed[place] = random_.randrange(256)
        try:
            json.loads(bytes(changed))
        except (ValueError, RecursionError):
            return path, bytes(changed)
    return path, b"{"


def noise(random_: random.Random) -> tuple[str, bytes]:
    path = random_.choice(list(PATHS))
    size = random_.choice((1, 5, 50, 500))
    return path, b"\x00" + random_.randbytes(size)


def with_hypothesis(client: Client, count: int, seed: int) -> Count:
    """Any bytes under any type, and any JSON values in the places of fields, as Hypothesis thinks of them."""
    from hypothesis import HealthCheck, given, settings
    from hypothesis import seed as seeded
    from hypothesis import strategies as st

    result = Count("hypothesis")
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
    kinds = st.sampled_from(
        (JSON["Content-Type"], FORM["Content-Type"], "multipart/form-data; boundary=x", "text/plain")
    )
    paths = st.sampled_from(list(PATHS))

    def send(path: str, body: bytes, kind: str) -> None:
        status, content = client.ask("POST", path, body, {"Content-Type": kind})
        good = 200 <= status < 300 or (400 <= status < 500 and right_shape(PATHS[path][1], content))
        result.add(f"{path} {kind} {body[:150]!r} {content[:150]!r}", status, good)

    @seeded(seed)
    @settings(max_examples=count // 2, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(paths, st.binary(max_size=300), kinds)
    def any_bytes(path: str, body: bytes, kind: str) -> None:
        send(path, body, kind)

    @seeded(seed)
    @settings(max_examples=count // 2, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(paths, st.data(), values)
    def any_fields(path: str, data: Any, value: Any) -> None:
        fields = json.loads(PATHS[path][0])
        fields[data.draw(st.sampled_from([*fields, "alternatives", "format", "n", "stop", "top", "beam"]))] = value
        send(path, json.dumps(fields).encode(), JSON["Content-Type"])

    any_bytes()
    any_fields()
    return result


def random_bodies(client: Client, count: int, seed: int) -> Count:
    """Bodies made wrong by chance; some of them sent as what they are not, or to wrong methods and places."""
    random_, result = random.Random(seed), Count("random bodies")
    ways: list[Callable[[random.Random], tuple[str, bytes]]] = [broken_fields, broken_fields, damaged, noise]
    for _ in range(count):
        path, body = random_.choice(ways)(random_)
        facade, method, headers = PATHS[path][1], "POST", dict(JSON)
        dice = random_.random()
        if dice < 0.04:
            headers = {"Content-Type": random_.choice(("text/plain", "application/xml", "application/json2", "x"))}
        elif dice < 0.07:
            headers = {"Content-Type": "multipart/form-data" + random_.choice(("", "; boundary=", "; boundary=x"))}
        elif dice < 0.10:
            method = random_.choice(("GET", "PUT", "DELETE", "PATCH", "TRACE", "FOO"))
        elif dice < 0.12:
            path += random_.choice(("/", "x", "/../x", "%00", "%ff", "?a=%zz&q=%ff"))
            body = b"{"
        status, content = client.ask(method, path, body, headers)
        good = 400 <= status < 500 and right_shape(facade, content)
        result.add(f"{method} {path} {body[:150]!r} {content[:150]!r}", status, good)
    return result


def raw_requests(random_: random.Random) -> bytes:
    """Bytes that are no right request of HTTP, or lie about the one they are."""
    body = PATHS["/translate"][0]
    head = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    length = b"Content-Length: %d\r\n" % len(body)
    size = random_.randint(1, 9)
    return random_.choice(
        [
            head + b"Content-Length: -1\r\n\r\n" + body,
            head + b"Content-Length: %d\r\n\r\n" % 10**12 + body,
            head + b"Content-Length: %dx\r\n\r\n" % len(body) + body,
            head + length + b"Content-Length: %d\r\n\r\n" % (len(body) + size) + body,
            head + length + b"Transfer-Encoding: chunked\r\n\r\n" + body,
            head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + body,
            head + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n" + body,
            head + b"Transfer-Encoding: chunked\r\n\r\n" + b"F" * 40 + b"\r\n" + body,
            head + b"Transfer-Encoding: xchunked\r\n\r\n" + body,
            head + length + b"Bad Header : x\r\n\r\n" + body,
            head + length + b"X: " + b"a" * 200_000 + b"\r\n\r\n" + body,
            head.replace(b"HTTP/1.1", b"HTTP/9.9") + length + b"\r\n" + body,
            head.replace(b"HTTP/1.1", b"HTP/1.1") + length + b"\r\n" + body,
            head.replace(b"/translate", b"/tr anslate") + length + b"\r\n" + body,
            head.replace(b"/translate", b"/" + b"a" * 100_000) + length + b"\r\n" + body,
            head.replace(b"POST", b"PO\x00ST") + length + b"\r\n" + body,
            head.replace(b"\r\n", b"\n\r") + length + b"\r\n" + body,
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random_.randbytes(50) + b"\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            random_.randbytes(size * 20) + b"\r\n\r\n",
            b"\r\n" * size + b"%s\r\n\r\n" % random_.randbytes(10).hex().encode(),
            b"GET\r\n\r\n",
        ]
    )


def raw_sockets(client: Client, count: int, seed: int) -> Count:
    random_, result = random.Random(seed), Count("raw sockets")
    for _ in range(count):
        content = raw_requests(random_)
        status = client.raw(content)
        result.add(repr(content[:150]), status, 400 <= status < 500)
    return result


def with_schemathesis(address: str, examples: int, seed: int) -> Count:
    """What schemathesis makes of the OpenAPI document: right and wrong requests, and its own judgement of the answers."""
    result = Count("schemathesis")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "events.ndjson"
        command = [
            sys.executable, "-m", "schemathesis.cli", "run", f"{address}/spec", "--url", address,
            "--max-examples", str(examples), "--seed", str(seed), "--continue-on-failure", "--no-shrink",
            "--phases", "examples,coverage,fuzzing", "--exclude-checks", "positive_data_acceptance",
            "--suppress-health-check", "all", "--report", "ndjson", "--report-ndjson-path", str(report), "--workers", "1",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        for status, failed in answers_in(report):
            result.add(failed, status, not failed and status < 500)
    if done.returncode not in (0, 1) or not result.statuses:
        result.wrong.append(done.stdout[-2000:] + done.stderr[-2000:])
    return result


def answers_in(report: Path) -> Iterator[tuple[int, str]]:
    """The statuses of a report of schemathesis, each with what its checks found."""
    for line in report.read_text(encoding="utf-8").splitlines() if report.exists() else ():
        event = json.loads(line)
        recorder = event.get("ScenarioFinished", {}).get("recorder", {})
        checks = recorder.get("checks", {})
        for name, interaction in recorder.get("interactions", {}).items():
            failed = [
                f"{check.get('name')}: {check['failure_info']['failure'].get('message', '')}"
                for check in checks.get(name, ())
                if check.get("failure_info")
            ]
            response = interaction.get("response")
            if response:
                yield response["status_code"], "; ".join(failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--address", help="a server with the models that this script serves itself otherwise")
    parser.add_argument(
        "--examples", type=int, default=0, help="of schemathesis, for each operation (0: a share of --count)"
    )
    chosen = parser.parse_args()
    with own_server(chosen.address) as address:
        client = Client(address)
        parts = [bodies(client)]
        print(json.dumps(parts[-1].plain()), flush=True)
        parts.append(with_schemathesis(address, chosen.examples or max(5, chosen.count // 60), chosen.seed))
        print(json.dumps(parts[-1].plain()), flush=True)
        parts.append(raw_sockets(client, chosen.count // 10, chosen.seed))
        print(json.dumps(parts[-1].plain()), flush=True)
        parts.append(with_hypothesis(client, chosen.count // 4, chosen.seed))
        print(json.dumps(parts[-1].plain()), flush=True)
        left = max(chosen.count // 10, chosen.count - sum(part.malformed for part in parts))
        parts.append(random_bodies(client, left, chosen.seed))
        print(json.dumps(parts[-1].plain()), flush=True)
        alive = client.ask("GET", "/health", b"", {})[0] == 200
    wrong = sum(len(part.wrong) for part in parts)
    total = sum(sum(part.statuses.values()) for part in parts)
    malformed = sum(part.malformed for part in parts)
    print(json.dumps({"part": "all", "requests": total, "malformed": malformed, "wrong": wrong, "alive": alive}))
    return 1 if wrong or not alive else 0


def own_server(address: str | None):
    """A server of the bundled translator and of small untrained models for everything else; or the one that is given."""
    import contextlib

    if address is not None:
        return contextlib.nullcontext(address.rstrip("/"))
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit" / "serving"))
    from served_folders import NAMES, listening, open_service, small_folder

    from regard.serving.limits import Limits

    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it tells of each

    @contextlib.contextmanager
    def opened() -> Iterator[str]:
        limits = Limits(characters=200, request_characters=1000, texts=5, new_tokens=16, beam=4, alternatives=2)
        with tempfile.TemporaryDirectory() as folder:
            folders = {name: small_folder(kind, Path(folder) / name) for name, kind in NAMES.items()}
            with listening(open_service(folders, limits)) as found:
                yield found

    return opened()


if __name__ == "__main__":
    sys.exit(main())
