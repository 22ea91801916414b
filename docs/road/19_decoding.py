# %% [markdown]
# # From scores to words
#
# The decoder's last state, times the output matrix, gives a **logit** for every word. Softmax makes probabilities of them, their logarithms are what
# we compute with, and the largest is the word that greedy search writes.

# %%
import math

import torch

import regard
from regard.core.types import BOS, EOS, pad_rows

translator = regard.load()
model, tokenizers = translator.model.eval(), translator.tokenizers
source = pad_rows([[*tokenizers.source.encode(["I am tired."])[0], EOS]])
with torch.inference_mode():
    memory, state = model.start(source)
    hidden, _ = model.step(torch.tensor([[BOS]]), memory, state)
    logits = model.output.logits(hidden)[0, 0]
log_probs = logits.log_softmax(-1)
top = log_probs.topk(5)
for log_prob, word in zip(top.values.tolist(), top.indices.tolist(), strict=True):
    (piece,) = tokenizers.target.pieces([word])
    print(
        f"{piece:8} logit {logits[word]:6.2f}  log-probability {log_prob:6.2f}  probability {math.exp(log_prob):.3f}"
    )
assert tokenizers.target.pieces([log_probs.argmax().item()]) == ["▁Ich"]
assert abs(log_probs.exp().sum().item() - 1) < 1e-4

# %% [markdown]
# ## Why logarithms
#
# The probability of a text is the product of those of its words. Products of many numbers below 1 leave what a computer can hold; sums
# of logarithms do not, and have the same winner.

# %%
product = torch.full((400,), 0.1).prod().item()
total = torch.full((400,), 0.1).log().sum().item()
print("400 words of probability 0.1: product", product, " sum of logs", round(total, 1))
assert product == 0.0
assert abs(total - 400 * math.log(0.1)) < 0.1

# %% [markdown]
# ## Greedy is short-sighted
#
# Two steps, two choices each. Greedy takes A (0.6 against 0.4) and regrets it:

# %%
first = {"A": 0.6, "B": 0.4}
second = {"A": {"x": 0.55, "y": 0.45}, "B": {"x": 0.95, "y": 0.05}}
texts = {a + b: first[a] * p for a in first for b, p in second[a].items()}
for text, probability in sorted(texts.items(), key=lambda item: -item[1]):
    print(
        f"{text}: {probability:.2f} = exp({math.log(first[text[0]]):.2f} + {math.log(second[text[0]][text[1]]):.2f})"
    )
greedy = "A" + max(second["A"], key=second["A"].get)
assert greedy == "Ax"
assert max(texts, key=texts.get) == "Bx"

# %% [markdown]
# **Beam search** keeps the k best beginnings instead of one. With k = 2 both A and B live on, and Bx (0.38) is found.
#
# ## A real beam, as a tree
#
# What the search looked at for one sentence: kept (a filled dot), dropped (a cross), ended (a square). The thick path was returned.

# %%
from regard import SearchConfig
from regard.looking.tracing import make_trace

text = "I have to go now."
translator.search = SearchConfig(beam=3)
tree = make_trace(translator, text).beam()
nodes = {node["id"]: node for node in tree["nodes"]}
states = [node["state"] for node in nodes.values()]
print(len(nodes), "nodes:", {state: states.count(state) for state in sorted(set(states))})

# %%
from matplotlib.figure import Figure

figure = Figure(figsize=(9, 4.2), layout="constrained")
axes = figure.add_subplot()
place = {}
for node in nodes.values():
    place[node["id"]] = (node["step"], -(node["rank"] or 0))
for node in nodes.values():
    if node["parent"] is None or (node["rank"] or 99) > 5:
        continue
    (x0, y0), (x1, y1) = place[node["parent"]], place[node["id"]]
    axes.plot(
        [x0, x1],
        [y0, y1],
        color="#0060a0" if node["best"] else "#c8d0da",
        linewidth=2.5 if node["best"] else 0.8,
        zorder=1,
    )
    mark = {"kept": "o", "pruned": "x", "finished": "s"}[node["state"]]
    axes.plot(
        x1, y1, mark, color="#0060a0" if node["best"] else "#4f5b6b", markersize=5, zorder=2
    )
    axes.annotate(
        f"{node['token'].strip('▁')} {node['total']:.1f}",
        (x1, y1),
        xytext=(4, 4),
        textcoords="offset points",
        fontsize=7,
        parse_math=False,
    )
axes.set_xlabel("step")
axes.set_ylabel("rank")
axes.set_yticks([-1, -2, -3, -4, -5], ["1", "2", "3", "4", "5"])
axes.set_title("Beam search with three hypotheses; numbers are sums of log-probabilities")
axes.spines[["top", "right"]].set_visible(False)
figure

# %% [markdown]
# ## Length
#
# Every word adds a negative number, so short texts win. Dividing by a power of the length mends that; GNMT's formula is
# ((5 + n)/6)^α. Wider is not always better, and rarely much better:

# %%
for beam in (1, 2, 5, 10):
    (best,) = translator.hypotheses(
        ["I would rather die than do something so unfair."], beam=beam
    )
    print(f"beam {beam:2}: log P {best[0].log_prob:6.2f}  {best[0].text}")

# %% [markdown]
# More: [decoding](../decoding.md): sampling, glossaries, constraints.
#
# **In the viewer:** `regard look`, then [Beam search](http://127.0.0.1:8020/#view=beam): the tree of your own sentence; give it a
# translation to see where the search lost it.
