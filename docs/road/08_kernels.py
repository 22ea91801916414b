# %% [markdown]
# # Kernels, and how they lead to the dot product
#
# In 1964 Nadaraya and Watson wrote down an attention layer, for statistics. Take the measured points (xᵢ, yᵢ) for a database. To
# estimate y at a new x, average the known yᵢ, near ones more:
#
# > f(x) = Σᵢ K(x, xᵢ) yᵢ / Σⱼ K(x, xⱼ)
#
# K is a **kernel**, a weight that falls with the distance u = |x − xᵢ| / bandwidth.

# %%
import torch

import regard
from regard.evaluation.drawing import draw_lines
from regard.layers.attention.kernels import KERNELS

u = torch.linspace(-2, 2, 161)
shapes = {}
for name in ("gaussian", "boxcar", "triangular", "epanechnikov"):
    shapes[name] = (
        u,
        KERNELS[name].weights(torch.zeros(1, 1, 1), u[None, :, None], 1.0)[0, 0],
    )
draw_lines(shapes, x="distance in bandwidths", y="weight", title="Four kernels")

# %% [markdown]
# The boxcar counts all within the bandwidth alike. The triangular kernel falls in a straight line, Epanechnikov's is a parabola
# (¾(1 − u²), flat at the top), and the Gaussian never quite ends.
#
# ## On noisy data
#
# Forty points of a curve with noise, and what each kernel makes of them. The average, which does not look at x at all, is the
# baseline.


# %%
def true(x: torch.Tensor) -> torch.Tensor:
    return 2 * x.sin() + x.pow(0.8)


torch.manual_seed(3)
x_train = 5 * torch.rand(40)
y_train = true(x_train) + 0.5 * torch.randn(40)
x = torch.linspace(0.2, 4.8, 93)
curves, errors = {"the truth": (x, true(x))}, {}
for name in ("gaussian", "boxcar", "triangular", "epanechnikov", "average"):
    estimate = regard.nadaraya_watson(
        x, x_train, y_train, kernel=name, bandwidth=0.4, empty="nearest"
    )
    curves[name] = (x, estimate)
    errors[name] = (estimate - true(x)).square().mean().sqrt().item()
print({name: round(error, 2) for name, error in errors.items()})
assert all(errors[name] < 0.5 * errors["average"] for name in errors if name != "average")
draw_lines(
    curves,
    x="x",
    y="y",
    title="The same forty points, five kernels",
    points=(x_train, y_train),
)

# %% [markdown]
# Every kernel is far better than the average, and they hardly differ from each other. What matters is the **bandwidth**: too narrow,
# and the curve follows the noise; too wide, and it is nearly the average.

# %%
by_width = {}
for bandwidth in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2):
    estimate = regard.nadaraya_watson(x, x_train, y_train, bandwidth=bandwidth)
    by_width[bandwidth] = (estimate - true(x)).square().mean().sqrt().item()
print({width: round(error, 2) for width, error in by_width.items()})
best = min(by_width, key=by_width.get)
assert 0.1 < best < 1
print("best bandwidth:", best)

# %% [markdown]
# ## Parzen windows
#
# With yᵢ = 1 and without dividing, Σ K(x, xᵢ) says how *dense* the points lie. Divided by their number and by the area under the kernel
# it is an estimate of their distribution, which sums to 1:

# %%
points = torch.cat((torch.randn(150) * 0.4 + 1, torch.randn(100) * 0.7 + 4))
at = torch.linspace(-2, 7, 181)
h = 0.3
weights = regard.attend(
    at[:, None],
    points[:, None],
    torch.ones(250, 1),
    score="gaussian",
    bandwidth=h,
    normalise="none",
).values[:, 0]
density = weights / (250 * h * (2 * torch.pi) ** 0.5)
print(f"area under the curve {torch.trapezoid(density, at):.3f}")
assert abs(torch.trapezoid(density, at) - 1) < 0.01
draw_lines(
    {"Parzen estimate": (at, density)},
    x="x",
    y="density",
    title="Where 250 points lie: two hills",
)

# %% [markdown]
# ## From the Gaussian to the dot product
#
# The Gaussian kernel exp(−|q − k|²/2) compares by distance. Multiply out:
#
# > −|q − k|²/2 = q·k − |k|²/2 − |q|²/2
#
# Three terms, and two of them can go. In α the kernel is divided by the sum over all keys. The term −|q|²/2 is the same for every
# key, so it cancels **always**. The term −|k|²/2 cancels if all keys have the same length. What is left is q·k, and α is the softmax
# of dot products. Step by step:

# %%
torch.manual_seed(0)
q, k = torch.randn(6), torch.randn(9, 6)
whole = -(q - k).square().sum(-1) / 2
parts = k @ q - k.square().sum(-1) / 2 - q.square().sum() / 2
without_q = k @ q - k.square().sum(-1) / 2
only_dot = k @ q
weights = {
    "whole": whole.softmax(-1),
    "parts": parts.softmax(-1),
    "without |q|²": without_q.softmax(-1),
    "q·k alone": only_dot.softmax(-1),
}
for name, row in weights.items():
    print(f"{name:13}", [round(weight, 3) for weight in row.tolist()])
assert torch.allclose(weights["whole"], weights["without |q|²"], atol=1e-6)
assert not torch.allclose(weights["whole"], weights["q·k alone"], atol=0.01)

# %% [markdown]
# The last line differs: these keys have lengths from short to long. Give them one length, as layer normalisation nearly does in a
# Transformer, and Gaussian attention *is* dot-product attention:

# %%
k = k / k.norm(dim=-1, keepdim=True)
v = torch.randn(9, 2)
by_distance = regard.attend(q[None], k, v, score="gaussian")
by_product = regard.attend(q[None], k, v, score="dot")
print(
    "largest difference:", f"{(by_distance.weights - by_product.weights).abs().max():.0e}"
)
assert torch.allclose(by_distance.weights, by_product.weights, atol=1e-6)

# %% [markdown]
# A dot product is one matrix product for all queries and keys at once, and nothing computes faster than that.
#
# More: [attention by itself](../attention.md).
#
# **In the viewer:** `regard look`, then [Attention by hand](http://127.0.0.1:8020/#view=pooling): choose a kernel and its bandwidth.
