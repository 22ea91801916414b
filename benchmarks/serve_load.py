"""`regard serve` under load, on real sockets, from another process.

    python benchmarks/serve_load.py load [--clients 64] [--seconds 120]
    python benchmarks/serve_load.py overload [--seconds 30]
    python benchmarks/serve_load.py slow [--sockets 500]
    python benchmarks/serve_load.py gone [--count 1000]
    python benchmarks/serve_load.py throughput [--clients 32] [--seconds 10] [--turns 3] [--engines ctranslate2,torch] [--beam 1]
                                               [--device cpu]
    python benchmarks/serve_load.py pair [--clients 32] [--seconds 5] [--turns 3]

- load: clients ask all facades in turn (LibreTranslate, DeepL, OpenAI with and without streaming, classify, tag, fill, embed),
  as fast as answers come. Every answer is compared with the one that an idle server gave: texts must be equal, numbers within
  1e-5. Only 200, and 503 with Retry-After, are right.
- overload: ten times as many clients as the queue holds, none of which waits. Memory, what the accepted ones waited, and
  how soon a client is answered when it is over.
- slow: sockets that send a byte of their head every half second, beside one honest client.
- gone: clients that go away, half of them in the middle of a stream of 500 tokens, half while a text of 40 sentences is being
  translated. How soon nothing is left of their work, and whether a file stays open.
- throughput: clients with a sentence each, against servers that translate one request after the other. With CTranslate2 these are
  serve_peer.py, a server built as LibreTranslate is (Flask and waitress must be installed): with the threads that LibreTranslate
  takes ("one by one"), and with one thread a call, which is better for so small a model ("one by one, tuned"). With torch it is
  `regard serve` with batch_texts=1. Turns are taken in one run; ratios, of the batches to each, are medians over turns. `cpu_ms`
  are milliseconds of processor that the server used for an answer, which other programs on the machine change little.
- pair: two translators by torch on a CPU, in one server: one of them asked while the other has not been used yet, while it has
  been, and both at the same time; with `off`, each computes with as many threads as torch likes, whoever else does.

One JSON line per case, then a table. On a busy machine only ratios and counts mean something.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from regard.tasks.pretrained import find_model
from serve_client import TEXTS, Answer, Client, Process, percentile, server, small_models, started

BUNDLED = "tatoeba-en-de"
TOLERANCE = 1e-5  # of probabilities, their logarithms and vectors
PAIRS = {"one": ["one"], "one, the other idle": ["one"], "both": ["one", "two"]}
UNSHARED = (
    "from regard.serving.cores import Cores; Cores.take = lambda *_: None; from regard.cli.main import run; run()"
)
IGNORED = ("id", "created")
WORK = ("regard_requests_accepted ", "regard_requests_waiting{", "regard_slots_used{")  # of /metrics


def requests() -> list[tuple[str, str, Any]]:
    """Facade, path and body of everything that clients ask."""
    found: list[tuple[str, str, Any]] = []
    for number, text in enumerate(TEXTS):
        masked = " ".join(["[MASK]", *text.split()[1:]])
        prompt = {"model": "writer", "prompt": text, "max_tokens": 16, "seed": number}
        found += [
            ("libretranslate", "/translate", {"q": text, "source": "en", "target": "de"}),
            ("libretranslate", "/translate", {"q": text, "source": "en", "target": "de", "alternatives": 2}),
            ("deepl", "/v2/translate", {"text": [text, TEXTS[0]], "target_lang": "DE"}),
            ("openai", "/v1/completions", prompt),
            ("openai", "/v1/completions", {**prompt, "stream": True, "temperature": 0.7}),
            ("openai", "/v1/completions", {**prompt, "temperature": 0, "n": 1, "logprobs": 1}),
            ("plain", "/v1/classify", {"model": "sorter", "input": [text]}),
            ("plain", "/v1/tag", {"model": "tagger", "input": [text]}),
            ("plain", "/v1/fill", {"model": "reader", "input": [masked]}),
            ("openai", "/v1/embeddings", {"model": "reader", "input": text}),
        ]
    return found


def content(answer: Answer) -> Any:
    """What an answer says, without what is new each time."""
    if "event-stream" in answer.headers.get("content-type", ""):
        lines = [line[6:] for line in answer.body.decode().split("\n\n") if line.startswith("data: {")]
        return "".join(choice["text"] for line in lines for choice in json.loads(line)["choices"])
    found = answer.json()
    return {key: value for key, value in found.items() if key not in IGNORED} if isinstance(found, dict) else found


def difference(a: Any, b: Any, place: str = "answer") -> str | None:
    """Where two answers are not the same, if they are not: texts have to be equal, numbers but for rounding."""
    if isinstance(a, float) or isinstance(b, float):
        numbers = isinstance(b, int | float) and isinstance(a, int | float)
        return None if numbers and math.isclose(a, b, abs_tol=TOLERANCE) else f"{place}: {a!r}, not {b!r}"
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        parts = ((key, a[key], b[key]) for key in a)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        parts = ((i, *pair) for i, pair in enumerate(zip(a, b, strict=True)))
    else:
        return None if a == b else f"{place}: {a!r}, not {b!r}"
    return next((found for key, x, y in parts if (found := difference(x, y, f"{place}[{key!r}]"))), None)


async def run_load(found: Process, clients: int, seconds: float) -> dict[str, Any]:
    asked = requests()
    first = Client(found.port)
    expected = []
    for _, path, body in asked:
        answer = await first.ask(path, body)
        if answer.status != 200:
            raise SystemExit(f"{path} {body} gave {answer.status} {answer.body[:300]!r}")
        expected.append(content(answer))
    begin, memory, files = time.monotonic(), found.memory(), found.files()
    statuses: Counter[str] = Counter()
    waits: dict[str, list[float]] = {}
    wrong: list[str] = []

    async def go(number: int) -> None:
        client, draws = Client(found.port), random.Random(number)
        while time.monotonic() - begin < seconds:
            i = draws.randrange(len(asked))
            facade, path, body = asked[i]
            answer = await client.ask(path, body)
            statuses[str(answer.status) if answer.status != 503 else f"503 {answer.headers.get('retry-after')!r}"] += 1
            if answer.status == 200:
                waits.setdefault(facade, []).append(answer.seconds)
                if (why := difference(content(answer), expected[i])) is not None:
                    wrong.append(f"{why[:600]} ({path} {body})")
        client.close()

    await asyncio.gather(*(go(number) for number in range(clients)))
    first.close()
    passed = time.monotonic() - begin
    await asyncio.sleep(0.5)
    every = [wait for many in waits.values() for wait in many]
    return {
        "mode": "load",
        "clients": clients,
        "seconds": round(passed, 1),
        "answers": len(every),
        "per_second": round(len(every) / passed, 1),
        "statuses": dict(statuses),
        "wrong": len(wrong),
        "examples": wrong[:3],
        "p50_ms": round(1000 * percentile(every, 0.5), 1),
        "p99_ms": round(1000 * percentile(every, 0.99), 1),
        "memory_mib": [round(memory), round(found.memory())],
        "files": [files, found.files()],
    }


async def run_overload(
    found: Process, clients: int, seconds: float, *, steady_clients: int = 16, steady_seconds: float = 3.0
) -> dict[str, Any]:
    first = Client(found.port)
    body = {"q": TEXTS[2], "source": "en", "target": "de"}
    expected = content(await first.ask("/translate", body))
    steady = await run_closed(found, steady_clients, steady_seconds)
    memory, peak = found.memory(), found.memory()
    statuses: Counter[str] = Counter()
    accepted: list[float] = []
    late = wrong = 0
    begin = time.monotonic()

    async def go() -> None:
        nonlocal late, wrong
        client = Client(found.port)
        while time.monotonic() - begin < seconds:
            answer = await client.ask("/translate", body)
            statuses[str(answer.status)] += 1
            late += answer.status == 503 and "retry-after" not in answer.headers
            if answer.status == 200:
                accepted.append(answer.seconds)
                wrong += content(answer) != expected
        client.close()

    async def watch() -> None:
        nonlocal peak
        while time.monotonic() - begin < seconds:
            peak = max(peak, found.memory())
            await asyncio.sleep(0.2)

    await asyncio.gather(watch(), *(go() for _ in range(clients)))
    over = time.monotonic()
    while True:
        answer = await first.ask("/translate", body)
        if answer.status == 200 and answer.seconds < max(0.5, 5 * steady["p50_ms"] / 1000):
            break
        if time.monotonic() - over > 60:
            break
        await asyncio.sleep(0.05)
    recovered = time.monotonic() - over
    first.close()
    return {
        "mode": "overload",
        "clients": clients,
        "seconds": seconds,
        "steady_per_second": steady["per_second"],
        "accepted_per_second": round(len(accepted) / seconds, 1),
        "statuses": dict(statuses),
        "503_without_retry_after": late,
        "wrong": wrong,
        "p99_accepted_ms": round(1000 * percentile(accepted, 0.99)),
        "memory_mib": [round(memory), round(peak), round(found.memory())],
        "recovered_seconds": round(recovered, 2),
    }


async def run_closed(
    found: Process, clients: int, seconds: float, beam: int = 0, models: Sequence[str] = ()
) -> dict[str, Any]:
    """Clients that translate a sentence each, again and again. `beam`: 0 is the model's own. `models`: whom each asks, in turn."""
    waits: list[float] = []
    more = {"beam": beam} if beam else {}
    begin, before = time.monotonic(), found.processor_seconds()

    async def go(number: int) -> None:
        client = Client(found.port)
        asked = {**more, "model": models[number % len(models)]} if models else more
        while time.monotonic() - begin < seconds:
            text = TEXTS[(number + len(waits)) % len(TEXTS)]
            answer = await client.ask("/translate", {"q": text, "source": "en", "target": "de", **asked})
            if answer.status != 200:
                raise SystemExit(f"status {answer.status} {answer.body!r}")
            waits.append(answer.seconds)
        client.close()

    await asyncio.gather(*(go(number) for number in range(clients)))
    passed = time.monotonic() - begin
    return {
        "per_second": round(len(waits) / passed, 1),
        "cpu_ms": round(1000 * (found.processor_seconds() - before) / len(waits), 2),
        "p50_ms": round(1000 * percentile(waits, 0.5), 1),
        "p99_ms": round(1000 * percentile(waits, 0.99), 1),
    }


async def run_slow(found: Process, sockets: int, receive_seconds: float) -> dict[str, Any]:
    async def honest(seconds: float) -> list[float]:
        client, waits, begin = Client(found.port), [], time.monotonic()
        while time.monotonic() - begin < seconds:
            answer = await client.ask("/translate", {"q": TEXTS[0], "source": "en", "target": "de"})
            waits.append(answer.seconds if answer.status == 200 else math.inf)
        client.close()
        return waits

    lifetimes: list[float] = []

    async def dribble() -> None:
        begin = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", found.port)
        with contextlib.suppress(OSError):
            for byte in b"POST /translate HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 1000:
                writer.write(bytes([byte]))
                await writer.drain()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        while await reader.read(1000):
                            pass
                        break
        lifetimes.append(time.monotonic() - begin)
        writer.close()

    await honest(receive_seconds / 10)
    alone = await honest(receive_seconds / 2)
    slow = asyncio.gather(*(dribble() for _ in range(sockets)))
    await asyncio.sleep(receive_seconds / 10)
    beside = await honest(receive_seconds / 2)
    await slow
    return {
        "mode": "slow",
        "sockets": sockets,
        "honest_alone_ms": [round(1000 * percentile(alone, share), 1) for share in (0.5, 0.99)],
        "honest_beside_ms": [round(1000 * percentile(beside, share), 1) for share in (0.5, 0.99)],
        "honest_failed": sum(map(math.isinf, beside)),
        "closed_after_s": [round(min(lifetimes), 1), round(max(lifetimes), 1)],
        "receive_seconds": receive_seconds,
    }


async def run_gone(found: Process, count: int, at_once: int = 16) -> dict[str, Any]:
    stream = {"model": "writer", "prompt": TEXTS[0], "max_tokens": 500, "seed": 1, "stream": True}
    asked = [("/v1/completions", stream), ("/translate", {"q": TEXTS[2] * 40, "source": "en", "target": "de"})]
    first, body = Client(found.port), {"q": TEXTS[0], "source": "en", "target": "de"}
    expected = content(await first.ask("/translate", body))
    await first.ask("/v1/completions", {**stream, "stream": False, "max_tokens": 1})
    files, free = found.files(), asyncio.Semaphore(at_once)

    async def leave(number: int) -> None:
        path, wanted = asked[number % 2]
        given = json.dumps(wanted).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(given)}\r\n\r\n"
        )
        async with free:
            reader, writer = await asyncio.open_connection("127.0.0.1", found.port)
            writer.write(head.encode() + given)
            if "stream" in wanted:
                await reader.readuntil(b"data: ")
            else:
                await asyncio.sleep(0.005)
            writer.transport.abort()

    async def left() -> float:
        lines = (await first.ask("/metrics")).body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(WORK))

    await asyncio.gather(*(leave(number) for number in range(count)))
    over = time.monotonic()
    while await left() and time.monotonic() - over < 60:
        await asyncio.sleep(0.02)
    idle = time.monotonic() - over
    answer = content(await first.ask("/translate", body))
    first.close()
    return {
        "mode": "gone",
        "clients": count,
        "idle_after_s": round(idle, 2),
        "wrong": int(answer != expected),
        "files": [files, found.files()],
        "memory_mib": round(found.memory()),
    }


def throughput_cases(engine: str, device: str, beam: int) -> dict[str, Callable[[], Any]]:
    """How each server is started: ours first, then those it is compared with."""
    patient = {"answer_seconds": 3600}  # nothing is refused, however slow the machine is
    options = ("--engine", engine, "--device", device, "--no-page")
    cases = {"batches": lambda: server([BUNDLED], *options, limits=patient)}
    if engine == "torch":
        single = {**patient, "batch_texts": 1, "wait_ms": 0}
        return {**cases, "one by one": lambda: server([BUNDLED], *options, limits=single)}
    peer = [str(Path(__file__).with_name("serve_peer.py")), "--beam", str(beam)]
    return {
        **cases,
        "one by one": lambda: started(peer),
        "one by one, tuned": lambda: started([*peer, "--intra", "1"]),
    }


async def run_throughput(
    clients: int, seconds: float, turns: int, engine: str, beam: int, device: str = "cpu"
) -> list[dict[str, Any]]:
    """Servers that take turns."""
    cases = throughput_cases(engine, device, beam)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(start()) for name, start in cases.items()}
        for process in servers.values():
            await run_closed(process, 4, 1.0, beam)
        for _ in range(turns):
            for name, process in servers.items():
                found[name].append(await run_closed(process, clients, seconds, beam))
    rows = []
    for name, several in found.items():
        pairs = list(zip(found["batches"], several, strict=True))
        rows.append(
            {
                "mode": "throughput",
                "engine": engine,
                "device": device,
                "beam": beam or "own",
                "clients": clients,
                "serving": name,
                **{key: statistics.median(one[key] for one in several) for key in several[0]},
                "ratio": round(statistics.median(a["per_second"] / b["per_second"] for a, b in pairs), 2),
                "cpu_ratio": round(statistics.median(b["cpu_ms"] / a["cpu_ms"] for a, b in pairs), 2),
            }
        )
    return rows


async def run_pair(clients: int, seconds: float, turns: int) -> list[dict[str, Any]]:
    """Servers that share the cores out, and such that do not, in turns."""
    models = [f"{name}={find_model(BUNDLED)}" for name in ("one", "two")]
    words = ["serve", "--port", "0", *models, "--engine", "torch", "--device", "cpu", "--no-page"]
    begun = {"on": ["-m", "regard"], "off": ["-c", UNSHARED]}
    found: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for _ in range(turns):
        for shares, program in begun.items():
            with started([*program, *words, "--limit=answer_seconds=3600"]) as process:
                await run_closed(process, 2, 2.0, models=["one"])
                for case, asked in PAIRS.items():
                    if case != "one":
                        await run_closed(process, 2, 2.0, models=["two"])
                    for count in (2, clients):
                        made = await run_closed(process, count, seconds, models=asked)
                        found.setdefault((case, shares, count), []).append(made)
    rows = []
    for (case, shares, count), several in found.items():
        pairs = zip(several, found[case, "off", count], strict=True)
        rows.append(
            {
                "mode": "pair",
                "asked": case,
                "shared": shares,
                "clients": count,
                **{key: statistics.median(one[key] for one in several) for key in several[0]},
                "ratio": round(statistics.median(a["per_second"] / b["per_second"] for a, b in pairs), 2),
            }
        )
    return rows


def table(rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        print()
        for key, value in row.items():
            print(f"{key:24} {value}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["load", "overload", "slow", "gone", "throughput", "pair"])
    parser.add_argument("--clients", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--sockets", type=int, default=500)
    parser.add_argument("--count", type=int, default=1000, help="of gone")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--queue", type=int, default=64, help="of overload: the clients are ten times as many")
    parser.add_argument("--engines", default="ctranslate2,torch")
    parser.add_argument("--device", default="cpu", help="of throughput, with torch")
    parser.add_argument("--beam", type=int, default=0, help="of throughput; 0: the model's own")
    return parser.parse_args()


def run(use: Callable[[Process], Awaitable[dict[str, Any]]], *words: str, **limits: Any) -> dict[str, Any]:
    """One mode with all models served."""
    with tempfile.TemporaryDirectory() as place:
        folders = [f"{name}={folder}" for name, folder in small_models(Path(place)).items()]
        with server([BUNDLED, *folders], *words, limits=limits) as found:
            return asyncio.run(use(found))  # type: ignore[arg-type]


def main() -> None:
    asked = parsed()
    if asked.mode == "load":
        rows = [run(lambda found: run_load(found, asked.clients or 64, asked.seconds or 120))]
    elif asked.mode == "overload":
        clients = asked.clients or 10 * asked.queue
        limits = {"queue": asked.queue, "connections": 2 * clients}
        rows = [run(lambda found: run_overload(found, clients, asked.seconds or 30), **limits)]
    elif asked.mode == "slow":
        rows = [run(lambda found: run_slow(found, asked.sockets, 10.0), receive_seconds=10.0)]
    elif asked.mode == "gone":
        rows = [run(lambda found: run_gone(found, asked.count))]
    elif asked.mode == "pair":
        rows = asyncio.run(run_pair(asked.clients or 32, asked.seconds or 5, asked.turns))
    else:
        rows = []
        for engine in asked.engines.split(","):
            rows += asyncio.run(
                run_throughput(asked.clients or 32, asked.seconds or 10, asked.turns, engine, asked.beam, asked.device)
            )
    for row in rows:
        print(json.dumps(row), flush=True)
    table(rows)


if __name__ == "__main__":
    main()
