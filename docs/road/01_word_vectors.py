# %% [markdown]
# # Words as vectors
#
# A network computes with numbers, so a word has to become numbers. Numbering the words (cat 1, dog 2, democracy 3) says nothing of
# use: dog is not twice a cat. A vector of a few hundred numbers can say much more, because two vectors can be *near* each other in
# many ways at once.
#
# How near? The **dot product** multiplies number by number and adds up:
#
# > a · b = a₁b₁ + a₂b₂ + … + a_d b_d
#
# It grows with the lengths of the vectors. Divide by both lengths and only the direction is left: the **cosine**, which lies between
# −1 (opposite) and 1 (the same direction).

# %%
import torch

from regard.layers.attention.scores import SCORES

torch.manual_seed(0)
a = torch.randn(300)
b = a + torch.randn(300)  # a with as much noise again
dot = (a * b).sum()
cosine = dot / (a.norm() * b.norm())
print(
    f"dot product {dot:.1f}, lengths {a.norm():.1f} and {b.norm():.1f}, cosine {cosine:.2f}"
)
assert 0.6 < cosine < 0.8

# %% [markdown]
# Twice the vector, twice the dot product, and the same cosine. (`SCORES` holds the ways of comparing that all models of regard
# choose from; both are among them.)

# %%
for name in ("dot", "cosine"):
    score = SCORES.get(name)()
    pairs = {"a, b": (a, b), "2a, b": (2 * a, b), "a, -a": (a, -a), "a, a": (a, a)}
    found = {
        what: score(x[None, None], score.prepare(y[None, None])).item()
        for what, (x, y) in pairs.items()
    }
    print(f"{name:6}", {what: round(value, 2) for what, value in found.items()})
    if name == "cosine":
        assert abs(found["a, b"] - found["2a, b"]) < 1e-6
        assert abs(found["a, -a"] + 1) < 1e-6
        assert abs(found["a, a"] - 1) < 1e-6

# %% [markdown]
# ## Room for many words
#
# In the plane only two directions are at right angles. In 300 dimensions *nearly everything* is: the cosine of two random vectors is
# about 1/√300 = 0.058 away from 0. So thousands of words that have nothing to do with each other fit in, and a cosine of 0.5 is no
# accident.

# %%
from regard.evaluation.drawing import draw_lines

curves = {}
for width in (2, 10, 300):
    x, y = torch.randn(20000, width), torch.randn(20000, width)
    cosines = torch.nn.functional.cosine_similarity(x, y)
    heights = torch.histc(cosines, 61, -1, 1) / 20000
    curves[f"{width} dimensions"] = (torch.linspace(-1, 1, 61), heights)
    print(f"{width:3} dimensions: typical cosine {cosines.std():.3f}")
assert abs(cosines.std() - 300**-0.5) < 0.002
draw_lines(
    curves,
    x="cosine of two random vectors",
    y="share",
    title="In many dimensions random vectors are nearly at right angles",
)

# %% [markdown]
# ## Vectors that were learned
#
# Nobody writes such vectors by hand. They are weights, learned while a model learns its task. The small translator inside regard has
# a table of them. It never saw a dictionary; it was only shown sentences and their translations, and words that are used alike came
# to lie near each other.

# %%
import regard
from regard.tasks.word_vectors import WordVectors

vectors = WordVectors.load(regard.load().folder)
print(len(vectors), "words in", vectors.matrix.shape[1], "dimensions")
for word in ("mother", "eight", "big"):
    near = vectors.nearest(word, top=4)
    print(f"{word}:", ", ".join(f"{other} {similarity:.2f}" for other, similarity in near))
assert all(-1.001 <= similarity <= 1.001 for _, similarity in near)

# %% [markdown]
# `regard train --text TEXT --out vectors model.name=word2vec` learns such a table from any text ([word vectors](../word_vectors.md)).
#
# **In the viewer:** start `regard look`, then [Word vectors](http://127.0.0.1:8020/#view=vectors): neighbours, analogies and a map.
