# %% [markdown]
# # Self-attention in six steps
#
# So far a decoder looked at a source. In self-attention a sentence looks at *itself*: every word asks every other word what it has to
# say. The sentence is "Thinking Machines".
#
# **Step 1: three vectors for every word.** A query (what am I looking for?), a key (what can I be found by?) and a value (what do I
# say?), each the word's vector times a learned matrix: q = x W_Q, k = x W_K, v = x W_V. Widths are those of the paper: x has 512
# numbers, q, k and v have 64.

# %%
import torch

torch.manual_seed(0)
x = torch.randn(2, 512)  # Thinking, Machines
w_q, w_k, w_v = (torch.randn(512, 64) / 512**0.5 for _ in range(3))
q, k, v = x @ w_q, x @ w_k, x @ w_v
print("x", tuple(x.shape), " q, k, v", tuple(q.shape))

# %% [markdown]
# **Step 2: scores.** The query of a word times the key of each word. To have round numbers, let us choose queries and keys so that
# the scores of the first word are the well-known ones: q₁·k₁ = 112 and q₁·k₂ = 96.

# %%
target = torch.tensor([112.0, 96.0])
k[0] += (target[0] - q[0] @ k[0]) * q[0] / q[0].square().sum()
k[1] += (target[1] - q[0] @ k[1]) * q[0] / q[0].square().sum()
scores = q[0] @ k.T
print("scores of Thinking:", [round(s, 1) for s in scores.tolist()])
assert torch.allclose(scores, target, atol=1e-3)

# %% [markdown]
# **Step 3: divide by √64 = 8**, so that the width does not matter ([why](09_scaling.md)). **Step 4: softmax**, so that the weights are
# positive and sum to 1.

# %%
scaled = scores / 8
weights = scaled.softmax(-1)
print(
    "divided:",
    [round(s, 2) for s in scaled.tolist()],
    " softmax:",
    [round(w, 2) for w in weights.tolist()],
)
assert [round(s, 2) for s in scaled.tolist()] == [14.0, 12.0]
assert [round(w, 2) for w in weights.tolist()] == [0.88, 0.12]

# %% [markdown]
# 88 % for the word itself, 12 % for the other. **Step 5: weigh the values**, and **step 6: add them up**.

# %%
z = 0.88 * v[0] + 0.12 * v[1]
exact = weights[0] * v[0] + weights[1] * v[1]
print(
    "largest difference from the rounded weights:", round((z - exact).abs().max().item(), 4)
)
assert (z - exact).abs().max() < 0.01

# %% [markdown]
# ## The same, as matrices
#
# Nothing here needs a loop. All queries times all keys is one product, and so is the rest:
#
# > Z = softmax(Q Kᵀ / √d) V
#
# `regard.attend` is that line.

# %%
import regard

matrices = (q @ k.T / 8).softmax(-1) @ v
found = regard.attend(q, k, v, score="scaled_dot")
assert torch.allclose(found.values, matrices, atol=1e-5)
assert torch.allclose(found.values[0], exact, atol=1e-5)
print("weights of both words:\n", found.weights.numpy().round(2))

# %% [markdown]
# And `SelfAttention` is the layer with W_Q, W_K and W_V inside, side by side in one matrix. Put in ours, and the same comes out
# (with one head, and an output matrix that changes nothing):

# %%
from regard.layers.attention.multihead import SelfAttention

layer = SelfAttention(64, heads=1, bias=False)
y, matrices64 = torch.randn(1, 2, 64), [torch.randn(64, 64) / 8 for _ in range(3)]
with torch.no_grad():
    layer.query_key_value.weight.copy_(torch.cat([m.T for m in matrices64]))
    layer.out.weight.copy_(torch.eye(64))
by_layer, _ = layer(y, None, causal=False, explicit=True)
by_hand = regard.attend(*(y[0] @ m for m in matrices64)).values
print("largest difference:", f"{(by_layer[0] - by_hand).abs().max().item():.0e}")
assert torch.allclose(by_layer[0], by_hand, atol=1e-5)

# %% [markdown]
# ## Three exercises
#
# With paper and pencil; the answers are in the cell below.
#
# 1. What would the two weights be without the division by 8?
# 2. Which score q₁·k₂, instead of 96, gives the second word a third of the weight?
# 3. A third word comes: q₁·k₃ = 104. What are the three weights now?

# %%
import math


def rounded(scores: list[float]) -> list[float]:
    """The weights of the scores q·k, after the division by 8."""
    return [round(weight, 2) for weight in (torch.tensor(scores) / 8).softmax(-1).tolist()]


without = scores.softmax(-1)
print(f"1. {without[0]:.7f} and {without[1]:.7f}: the softmax is as good as a maximum")
other = 112 - 8 * math.log(2)  # the first must count twice the second: exp(14 - s / 8) = 2
print(f"2. {other:.2f}, as softmax([14, {other / 8:.2f}]) is {rounded([112, other])}")
print(f"3. {rounded([112, 96, 104])}: 1, exp(-2) and exp(-1), divided by their sum")
assert without[1] < 2e-7
assert rounded([112, other]) == [0.67, 0.33]
assert rounded([112, 96, 104]) == [0.67, 0.09, 0.24]

# %% [markdown]
# **In the viewer:** `regard look`, then [Step by step](http://127.0.0.1:8020/#view=steps): these six steps with the numbers of a trained
# model, on a sentence of your own.
