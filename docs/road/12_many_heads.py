# %% [markdown]
# # Many heads
#
# One softmax can look at one thing. A word may want several: its subject, its object, what "it" stands for. So the Transformer runs
# eight small attentions side by side, each with its own W_Q, W_K and W_V of width 512 / 8 = 64, writes their answers one after the
# other, and mixes them with a last matrix W_O:
#
# > MultiHead(X) = [Z₁; Z₂; …; Z₈] W_O

# %%
import torch

import regard
from regard.layers.attention.multihead import SelfAttention

torch.manual_seed(0)
layer = SelfAttention(512, heads=8, bias=False)
x = torch.randn(1, 2, 512)  # Thinking, Machines
joined, weights = layer(x, None, causal=False, explicit=True)

w_q, w_k, w_v = layer.query_key_value.weight.T.chunk(3, dim=1)
heads = [
    regard.attend(*(x[0] @ w[:, 64 * h : 64 * (h + 1)] for w in (w_q, w_k, w_v))).values
    for h in range(8)
]
by_hand = torch.cat(heads, -1) @ layer.out.weight.T
print(
    "8 heads of",
    tuple(heads[0].shape),
    "joined to",
    tuple(torch.cat(heads, -1).shape),
    "times W_O",
    tuple(layer.out.weight.shape),
)
assert torch.allclose(joined[0], by_hand, atol=1e-5)
assert weights.shape == (1, 8, 2, 2)

# %% [markdown]
# It costs what one wide head costs: 8 × 64 = 512.
#
# ## Where does "it" look?
#
# "The animal didn't cross the street because it was too tired." What was tired? Here is the row of "it" in every head of the
# translator inside regard: five layers of four heads, trained on nothing but pairs of sentences.

# %%
from regard.evaluation.drawing import draw_matrix

seen = regard.look(
    regard.load(), "The animal didn't cross the street because it was too tired."
)
weights, words = (
    seen.weights("encoder.self"),
    [token.strip("▁") for token in seen.trace.source.tokens],
)
it = words.index("it")
rows = weights[:, :, it].reshape(-1, len(words))
names = [f"layer {i + 1}, head {j + 1}" for i in range(5) for j in range(4)]
draw_matrix(rows, names, words, numbers="", title='What "it" looks at')

# %% [markdown]
# In layer 3, head 2 looks at the animal ("an-imal" is two pieces here), and head 3 at the street: both things that "it" could stand for.

# %%
by_head = {name: words[row.argmax()] for name, row in zip(names, rows, strict=True)}
print(
    {
        name: by_head[name]
        for name in ("layer 3, head 2", "layer 3, head 3", "layer 4, head 1")
    }
)
print(seen.trace.answer)
assert by_head["layer 3, head 2"] == "imal"
assert by_head["layer 3, head 3"] == "street"

# %% [markdown]
# And then the translation says "weil *sie* zu müde war": the street (die Straße), not the animal (das Tier, *es*). A head that looks
# at the right word is no proof that the model uses it. This model is small; pictures of attention are a place to look, not an
# explanation.
#
# ## Who did what to whom
#
# Do heads learn grammar? `regard heads` counts on a parsed text how often a head's strongest weight goes from a verb to its subject,
# or back. For the bundled model the counts are in its folder:

# %%
import json

counts = json.loads((regard.load().folder / "heads.json").read_text())
for relation, what in (("nsubj", "who"), ("obj", "did what"), ("iobj", "to whom")):
    found = counts["relations"][relation]
    best = max(
        value for side in ("dependent", "head") for row in found[side] for value in row
    )
    print(
        f"{what:9} ({relation}): best head {best:.0%}, always the same distance {found['distance']:.0%}, of {found['count']:,}"
    )
assert counts["relations"]["nsubj"]["count"] > 2000

# %% [markdown]
# One head finds subjects a little more often than a fixed distance would; for objects none does. So small a model has mostly learned
# distances. (For large ones, such heads have been found.)
#
# **In the viewer:** `regard look`, then [Attention](http://127.0.0.1:8020/#view=heads): all layers and heads at once; click a word to see where it
# looks.
