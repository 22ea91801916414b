# %% [markdown]
# # Order
#
# > Even though she did **not** win the award, she was satisfied.
# >
# > Even though she did win the award, she was **not** satisfied.
#
# The same words, another meaning. A recurrent net reads in order. Self-attention does not: it sees a *set* of words, and says of each
# the same whatever the order.

# %%
import torch

from regard.core.types import EOS, Padded
from regard.models.base import MODELS, build_model

one = [
    "even",
    "though",
    "she",
    "did",
    "not",
    "win",
    "the",
    "award",
    ",",
    "she",
    "was",
    "satisfied",
]
two = [
    "even",
    "though",
    "she",
    "did",
    "win",
    "the",
    "award",
    ",",
    "she",
    "was",
    "not",
    "satisfied",
]
assert sorted(one) == sorted(two)
vocabulary = {word: i + 4 for i, word in enumerate(sorted(set(one)))}


def summary(positions: str, words: list[str]) -> torch.Tensor:
    """The mean of what an untrained Transformer encoder says of a sentence."""
    torch.manual_seed(0)
    config = MODELS.get("transformer").Config(
        width=32, layers=2, heads=4, positions=positions, dropout=0.0
    )
    model = build_model(
        "transformer", config, source_vocabulary=20, target_vocabulary=20, shared=True
    ).eval()
    ids = torch.tensor([[*(vocabulary[word] for word in words), EOS]])
    with torch.inference_mode():
        return model.encode(Padded(ids, ids > 0)).values[0].mean((0, 2)).flatten()


for positions in ("none", "sinusoidal"):
    difference = (summary(positions, one) - summary(positions, two)).abs().max().item()
    print(f"positions {positions:10}: the two sentences differ by {difference:.6f}")
    assert (difference < 1e-5) == (positions == "none")

# %% [markdown]
# So order has to be put in: each place gets a vector, added to the word's.
#
# ## The first idea, and why it fails
#
# Number the places from 0 to 1: place i of N gets i/(N−1). Then one step forward is 1/(N−1), which means something else in every
# sentence: a quarter of a sentence of five, a nineteenth of one of twenty.

# %%
from regard.layers.positions import make_positions, sinusoids

for length in (5, 20):
    keep = torch.ones(1, length, dtype=torch.bool)
    numbers = make_positions("fraction", 4, 0)(torch.arange(length), length, keep)[0, :, 0]
    print(
        f"N = {length:2}: the first places are {[round(n, 3) for n in numbers[:4].tolist()]}, a step is {numbers[1]:.3f}"
    )
assert abs(numbers[1] - 1 / 19) < 1e-6

# %% [markdown]
# ## Sinusoids
#
# The Transformer gives each place a vector of waves, fast ones first:
#
# > PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos(p / 10000^(2i/d))
#
# like the digits of a clock: the first numbers change with every word, the last ones hardly within a text. Wavelengths go from 2π
# to 10000 · 2π, in a geometric row.

# %%
import math

from regard.looking.figures import positions_figure

width = 128
rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
lengths = 2 * math.pi / rates
print(
    f"wavelengths from {lengths[0]:.2f} to {lengths[-1]:,.0f}; the limit 10000 · 2π is {10000 * 2 * math.pi:,.0f}"
)
assert abs(lengths[0] - 2 * math.pi) < 1e-4
assert 0.8 * 10000 * 2 * math.pi < lengths[-1] < 10000 * 2 * math.pi
table = sinusoids(torch.arange(100), width)
positions_figure({"sinusoids": table.numpy(), "sinusoids.dots": (table @ table.T).numpy()})

# %% [markdown]
# On the right: dot products of places with each other. They depend on the *distance* alone, because sin a sin b + cos a cos b =
# cos(a − b), and are largest at distance 0.

# %%
from regard.evaluation.drawing import draw_lines
from regard.layers.positions import sines

distances = range(0, 50)
curves = {}
for name, wave in (("sine and cosine", sinusoids), ("sine alone", sines)):
    vectors = wave(torch.arange(100), width)
    dots = vectors @ vectors.T
    for begin in (0, 30):
        curves[f"{name}, from place {begin}"] = (
            distances,
            [dots[begin, begin + d].item() for d in distances],
        )
exact = torch.tensor(curves["sine and cosine, from place 0"][1]) - torch.tensor(
    curves["sine and cosine, from place 30"][1]
)
assert exact.abs().max() < 1e-3
alone = torch.tensor(curves["sine alone, from place 0"][1]) - torch.tensor(
    curves["sine alone, from place 30"][1]
)
assert alone.abs().max() > 10
draw_lines(
    curves,
    x="distance",
    y="dot product",
    title="Dot products by distance, counted from two places",
)

# %% [markdown]
# With sines alone that is lost: the same distance gives other numbers at other places (and place 0 is all zeros).
#
# ## Relative positions
#
# If distances are what matters, they can be put into the attention itself. Rotary positions turn queries and keys by an angle that grows
# with the place. Then the score of two words depends on how far apart they are, not on where:

# %%
from regard.layers.attention.relative.rotary import rotate, turns

torch.manual_seed(0)
q, k = torch.randn(1, 1, 1, 16), torch.randn(1, 1, 1, 16)


def score(m: int, n: int) -> float:
    turned = [
        rotate(x, turns(torch.tensor([[place]]), 16, 10000.0), "interleaved")
        for x, place in ((q, m), (k, n))
    ]
    return (turned[0] * turned[1]).sum().item()


print(
    "places 3 and 5:",
    round(score(3, 5), 4),
    " 103 and 105:",
    round(score(103, 105), 4),
    " 3 and 6:",
    round(score(3, 6), 4),
)
assert abs(score(3, 5) - score(103, 105)) < 1e-3
assert abs(score(3, 5) - score(3, 6)) > 1e-2

# %% [markdown]
# So a phrase is the same wherever it stands: **equivariance**. Take a tune with a motif that comes three times. With relative positions the
# scores within each motif are the same numbers, and between motifs they repeat, too: the picture shows the **self-similarity** of the tune.
# With absolute positions every motif looks different.

# %%
from regard.evaluation.drawing import draw_matrix

motif = ["do", "mi", "sol"]
tune = motif * 3
notes = {name: torch.randn(16) for name in motif}
x = torch.stack([notes[name] for name in tune])[None, None]
places = torch.arange(9)[None]
turned = rotate(x, turns(places, 16, 10000.0), "interleaved")[0, 0]
relative = turned @ turned.T / 4
moved = (x[0, 0] + sinusoids(torch.arange(9), 16)) / 2
absolute = moved @ moved.T / 4


def motif_differs(scores: torch.Tensor) -> float:
    return (scores[:3, :3] - scores[6:, 6:]).abs().max().item()


print(
    f"first and last motif differ by {motif_differs(relative):.6f} (relative) and {motif_differs(absolute):.2f} (absolute)"
)
assert motif_differs(relative) < 1e-4
assert motif_differs(absolute) > 0.1
draw_matrix(
    relative,
    tune,
    tune,
    numbers=".1f",
    title="Scores with rotary positions: the motif repeats along the diagonals",
)

# %% [markdown]
# ## Which one?
#
# Measured ([details](../results.md#positions)): trained on sentences of at most 12 words, tested on such and on 21 to 27 words. BLEU,
# English to German:
#
# | positions | up to 12 words | 21 to 27 words |
# |---|---|---|
# | none | 32.9 | 10.9 |
# | i/(N−1) | 32.9 | 11.1 |
# | sine alone | 39.3 | 12.1 |
# | sinusoidal | 40.5 | 12.3 |
# | learned | 38.9 | 11.9 |
# | Shaw (relative) | 39.9 | 14.3 |
# | ALiBi (relative) | 39.3 | 15.5 |
# | rotary (relative) | 40.1 | 12.7 |
#
# The fraction is worth as little as nothing at all. Relative schemes go on better beyond the lengths they were trained on.
#
# **In the viewer:** `regard look`, then [Positions](http://127.0.0.1:8020/#view=positions).
