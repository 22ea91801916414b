"""Which parts of torch multiply float32 matrices fastest on this CPU, and how attention over short sentences is trained fastest.

    python benchmarks/cpu_products.py [--threads 2] [--rounds 40]

- products: torch's own (MKL, as a rule) beside oneDNN's (`layers/cpu_products.py`), forward (x Wᵀ), backward to the states (d W)
  and to the weights (dᵀ x), in thousand million operations a second; shapes of the demo's Transformer and of the base shape.
- attention: torch's fused kernel beside batched products (`layers/attention/few_queries.py`), forward and backward, microseconds.

Medians of rounds in turns. One JSON line per case, a table at the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.layers import cpu_products
from regard.layers.attention.few_queries import attend_few

# rows, inputs, outputs
SHAPES = [(1, 512, 512), (4, 512, 2048), (32, 512, 512), (128, 512, 2048), (560, 128, 512), (560, 512, 128), (560, 128, 4000),
          (2048, 512, 2048)]  # fmt: skip
# sentences, heads, tokens, width of a head
ATTENTION = [(100, 4, 7, 32), (60, 4, 12, 32), (35, 4, 20, 32), (60, 8, 32, 32), (20, 8, 64, 64), (8, 8, 128, 64)]


def in_turns(works: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 3):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            if turn >= 3:
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(some) for name, some in seconds.items()}


def products(rows: int, inputs: int, outputs: int, rounds: int) -> dict[str, Any]:
    x, weight, d_y = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(rows, outputs)
    by = cpu_products._by_onednn
    found = in_turns(
        {
            "torch": lambda: F.linear(x, weight),
            "oneDNN": lambda: by(x, weight, None),
            "torch, to states": lambda: d_y @ weight,
            "oneDNN, to states": lambda: by(d_y, weight.t(), None),
            "torch, to weights": lambda: d_y.t() @ x,
            "oneDNN, to weights": lambda: by(d_y.t(), x.t(), None) if outputs <= inputs else by(x.t(), d_y.t(), None),
        },
        rounds,
    )
    operations = 2 * rows * inputs * outputs / 1e9
    return {"case": f"{rows} x {inputs} x {outputs}", **{name: round(operations / own) for name, own in found.items()}}


def attention(sentences: int, heads: int, tokens: int, width: int, rounds: int) -> dict[str, Any]:
    given = [torch.randn(sentences, tokens, heads, width).transpose(1, 2).requires_grad_() for _ in range(3)]
    d_y, hidden = torch.randn(sentences, heads, tokens, width), torch.zeros(sentences, 1, 1, tokens)

    def trained(way: Callable[..., Tensor]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(way(*given, hidden), given, d_y)

    fused: Callable[..., Tensor] = lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # noqa: E731
    found = in_turns({"fused": trained(fused), "batched products": trained(attend_few)}, rounds)
    case = f"{sentences} x {heads} heads x {tokens} tokens x {width}"
    return {"case": case, **{name: round(1e6 * own) for name, own in found.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if not cpu_products.works():
        raise SystemExit("this build of torch does not multiply by oneDNN")
    facts = {"torch": torch.__version__, "capability": torch.backends.cpu.get_cpu_capability()}
    facts |= {"vendor": cpu_products.vendor(), "threads": torch.get_num_threads(), "taken": cpu_products.pays()}
    print(json.dumps(facts), flush=True)
    tables: list[list[dict[str, Any]]] = [[], []]
    for rows, work, cases in ((tables[0], products, SHAPES), (tables[1], attention, ATTENTION)):
        for case in cases:
            rows.append(work(*case, arguments.rounds))
            print(json.dumps(rows[-1]), flush=True)
    for rows in tables:
        print("\n| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
        for row in rows:
            print("| " + " | ".join(map(str, row.values())) + " |")


if __name__ == "__main__":
    main()
