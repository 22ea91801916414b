# %% [markdown]
# # Masks: what must not be seen
#
# Two things must be hidden from attention.
#
# - **Padding.** Sentences of a batch have different lengths; the short ones are filled up with a token that means nothing.
# - **The future.** In training the decoder gets the whole target at once. If the place that should write word 3 could look at word 3,
#   it would learn to copy, and at test time there is nothing to copy.
#
# The way is always the same: a score of minus infinity, *before* the softmax. Then the weight is exactly 0 and the others still sum
# to 1.
#
# ## "I am space invader"
#
# Scores of four words with each other:

# %%
import torch

from regard.evaluation.drawing import draw_matrix
from regard.layers.attention.masked_softmax import masked_softmax
from regard.layers.attention.windows import causal_keep

words = ["I", "am", "space", "invader"]
scores = torch.tensor(
    [
        [0.11, 0.04, 0.05, 0.3],
        [0.19, 0.53, 0.42, 0.37],
        [0.81, 0.21, 0.05, 0.09],
        [0.51, 0.43, 0.12, 0.03],
    ]
)
keep = causal_keep(4)
masked = scores.masked_fill(~keep, float("-inf"))
draw_matrix(masked, words, words, title="Scores, with the future at minus infinity")

# %%
weights = masked.softmax(-1)
print(weights.numpy().round(3))
assert torch.allclose(weights[1, :2], torch.tensor([0.416, 0.584]), atol=5e-4)
assert torch.allclose(weights.sum(-1), torch.ones(4))
assert torch.allclose(weights, masked_softmax(scores, keep), atol=1e-6)
draw_matrix(
    weights,
    words,
    words,
    numbers=".3f",
    title="Weights: each word sees itself and what was before",
)

# %% [markdown]
# The first word sees only itself: weight 1. The second divides its attention 0.416 to 0.584, which is e^0.19 and e^0.53, each divided
# by their sum:

# %%
import math

first, second = math.exp(0.19), math.exp(0.53)
print(round(first / (first + second), 3), round(second / (first + second), 3))
assert round(first / (first + second), 3) == 0.416
assert round(second / (first + second), 3) == 0.584

# %% [markdown]
# (Setting weights to 0 *after* the softmax would be a mistake: rows would no longer sum to 1, and the future would have had its say
# in the denominator.)

# %%
late = scores.softmax(-1) * keep
print("masked too late, rows sum to", late.sum(-1).numpy().round(2))
assert late[0].sum() < 0.3

# %% [markdown]
# ## A mask that works
#
# The test of a causal mask: change the last word, and nothing before it may change. Here with a whole decoder.

# %%
import regard
from regard.core.types import BOS, EOS, pad_rows

translator = regard.load()
model, tokenizers = translator.model.eval(), translator.tokenizers
source = pad_rows([[*tokenizers.source.encode(["I am tired."])[0], EOS]])
target = [BOS, *tokenizers.target.encode(["Ich bin müde."])[0]]
other = [*target[:-1], target[1]]
with torch.inference_mode():
    one, two = (model(source, torch.tensor([row])).hidden[0] for row in (target, other))
changes = (one - two).abs().amax(-1)
print("change at each place:", [f"{change:.1e}" for change in changes.tolist()])
assert changes[:-1].max() < 1e-5
assert changes[-1] > 0.1

# %% [markdown]
# In regard masks say what to **keep**, everywhere: True means that a query may look at a key.
#
# **In the viewer:** `regard look`, then [Step by step](http://127.0.0.1:8020/#view=steps) on the decoder's self-attention: the mask is one
# of the steps.
