# %% [markdown]
# # Attention as a query on a database
#
# A database holds pairs of a key and a value. You ask with a query; where query and key are the same, you get the value. Here are
# people by family name:
#
# > {(Zhang, Aston), (Lipton, Zachary), (Li, Mu), (Smola, Alex), (Hu, Rachel), (Werness, Brent)}
#
# Attention is the same with softer edges: *every* value counts, by how well its key fits the query,
#
# > answer = Σᵢ α(q, kᵢ) vᵢ
#
# so the interesting part is α. To compare names we need vectors. Let each name be the set of its pairs of letters, with a mark where
# the name begins: `Li` is {^l, li}.

# %%
import torch

import regard

people = {
    "Zhang": "Aston",
    "Lipton": "Zachary",
    "Li": "Mu",
    "Smola": "Alex",
    "Hu": "Rachel",
    "Werness": "Brent",
}
pairs_of_letters = sorted(
    {
        a + b
        for name in people
        for a, b in zip("^" + name.lower(), name.lower(), strict=False)
    }
)


def vector(name: str) -> torch.Tensor:
    found = {a + b for a, b in zip("^" + name.lower(), name.lower(), strict=False)}
    return torch.tensor([float(pair in found) for pair in pairs_of_letters])


keys = torch.stack([vector(name) for name in people])
values = torch.eye(
    len(people)
)  # a value for each person, so that the answer shows how much of each is in it
print(keys.shape[0], "people, keys of", keys.shape[1], "numbers")

# %% [markdown]
# ## Exact match
#
# α is 1 where the key is the query, and 0 elsewhere. Ask for Li, get Mu.


# %%
def ask(name: str, without: str = "", **how) -> dict[str, float]:
    mask = torch.tensor([[person != without for person in people]])
    answer = regard.attend(vector(name)[None], keys, values, mask=mask, **how).values[0]
    return {
        first: round(share, 2)
        for first, share in zip(people.values(), answer.tolist(), strict=True)
        if share > 0.005
    }


print(ask("Li", score="exact"))
assert ask("Li", score="exact") == {"Mu": 1.0}

# %% [markdown]
# ## Approximate match
#
# Now Li has left: his row is masked. An ordinary database finds nothing. A rule that says "as near as possible" finds Lipton, whose
# name begins alike.

# %%
print("exact:  ", ask("Li", without="Li", score="exact"))
print("nearest:", ask("Li", without="Li", score="exact", empty="nearest"))
print("cosine: ", ask("Li", without="Li", score="cosine"))
assert ask("Li", without="Li", score="exact") == {}
soft = ask("Li", without="Li", score="cosine")
assert max(soft, key=soft.get) == "Zachary"

# %% [markdown]
# The last line is attention: Zachary gets the most, and the others something, too. How sharp the answer is depends on the size of the
# scores. Multiply them, and the soft choice becomes a hard one:

# %%
from regard.evaluation.drawing import draw_matrix

rows = {}
for sharpness in (1, 4, 16):
    scores = sharpness * torch.nn.functional.cosine_similarity(vector("Li"), keys)
    rows[f"cosine x {sharpness}"] = scores.softmax(-1)
print({name: round(row.max().item(), 2) for name, row in rows.items()})
draw_matrix(
    torch.stack(list(rows.values())),
    list(rows),
    list(people),
    title="Weights for the query Li",
)

# %% [markdown]
# ## No preference at all
#
# If α is the same for all keys, the query plays no part, and the answer is the mean of the values: **average pooling**.

# %%
print(ask("Li", score="average"))
assert set(ask("Li", score="average").values()) == {0.17}

# %% [markdown]
# So from exact match to plain average there is a scale, and attention can be anywhere on it, where α is smooth by *learning*. The next
# chapter fills the scale with kernels; later ones let the network learn what "fits" means.
#
# **In the viewer:** `regard look`, then [Attention by hand](http://127.0.0.1:8020/#view=pooling): drag a query among keys and watch the
# weights.
