"""Is a translation the same alone and in a batch with others? Sentences of the bundled model's test text, by each engine.

    python benchmarks/serve_same.py [--sentences 2000] [--engines ctranslate2,torch] [--compute auto,float32] [--clients 64]

Padding and company change the order in which a processor adds numbers, and so the last bits of scores; where two translations are
almost equally good, the other one may win. Each sentence is translated by itself, then by a service with so many clients, whose
batches come as they come. One JSON line per engine: how many texts differ, and what the differing ones are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time

from regard.data.corpus import read_tsv
from regard.serving.limits import Limits
from regard.serving.service import Service
from regard.serving.shelf import Shelf


def sentences(count: int) -> list[str]:
    pairs = read_tsv("bundled:tatoeba-en-de")
    step = max(1, len(pairs) // count)
    return [pairs.sources[i] for i in range(0, len(pairs), step)][:count]


async def compare(texts: list[str], engine: str, compute: str, clients: int) -> dict[str, object]:
    shelf = Shelf.open(device="cpu", engine=engine, compute=compute)  # type: ignore[arg-type]
    (served,) = shelf
    model = served.load()
    begin = time.monotonic()
    alone = [model.translate(text) for text in texts]
    between = time.monotonic()
    service = Service(shelf, Limits(queue=100_000, queue_tokens=1 << 30))
    free = asyncio.Semaphore(clients)

    async def ask(text: str) -> str:
        async with free:
            ((best,),) = await service.translate(served, [text])
            return best

    together = await asyncio.gather(*map(ask, texts))
    end = time.monotonic()
    service.close()
    other = [(a, b) for a, b in zip(alone, together, strict=True) if a != b]
    return {
        "engine": engine,
        "compute": compute,
        "sentences": len(texts),
        "differ": len(other),
        "examples": other[:5],
        "seconds_alone": round(between - begin, 1),
        "seconds_together": round(end - between, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--engines", default="ctranslate2,torch")
    parser.add_argument("--compute", default="auto,float32", help="of ctranslate2; torch computes in float32")
    parser.add_argument("--clients", type=int, default=64)
    asked = parser.parse_args()
    texts = sentences(asked.sentences)
    for engine in asked.engines.split(","):
        for compute in asked.compute.split(",") if engine == "ctranslate2" else ["float32"]:
            found = asyncio.run(compare(texts, engine, compute, asked.clients))
            print(json.dumps(found, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
