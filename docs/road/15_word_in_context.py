# %% [markdown]
# # One word, two vectors
#
# > When I say **Transformer** in ML, I do not mean the **transformer** in the movies.
#
# A table of word vectors has one row for each word. Both meanings share it. Self-attention changes that: after a layer, the vector of
# a word has something of its neighbours in it, and the same word becomes different in different company.
#
# Let us watch it happen in the encoder of the bundled translator. It cuts rare words into pieces; both words end in "-f-or-mer".

# %%
import torch

import regard
from regard.core.types import EOS, pad_rows
from regard.looking.watching import Watched

translator = regard.load()
model, tokenizer = translator.model.eval(), translator.tokenizers.source


def layers(text: str) -> tuple[list[str], list[torch.Tensor]]:
    """The pieces of a text, and their vectors: from the table, and after each layer."""
    ids = tokenizer.encode([text])[0]
    parts = {str(i): layer for i, layer in enumerate(model.encoder)}
    with torch.inference_mode(), Watched(parts) as seen:
        model.encode(pad_rows([[*ids, EOS]]))
    table = model.source_embedding(torch.tensor(ids)).detach()
    return tokenizer.pieces(ids), [
        table,
        *(seen.output(name)[0][: len(ids)] for name in parts),
    ]


pieces, vectors = layers(
    "When I say Transformer in ML, I do not mean the transformer in the movies."
)
first, second = [i for i, piece in enumerate(pieces) if piece == "mer"]
cosines = [
    torch.cosine_similarity(states[first], states[second], dim=0).item()
    for states in vectors
]
print(pieces)
print(
    "the two '-mer': cosine in the table",
    round(cosines[0], 3),
    "and after each layer",
    [round(c, 3) for c in cosines[1:]],
)
assert abs(cosines[0] - 1) < 1e-5
assert max(cosines[1:]) < 0.99

# %% [markdown]
# In the table they are the same vector, cosine 1. After one layer they are not, and a little less so with every layer.
#
# ## More than noise?
#
# Different is not yet *meaningful*. So take a word with several uses, and see which uses lie near each other.

# %%
from regard.evaluation.drawing import draw_matrix

texts = {
    "to see": [
        "I watch television every day.",
        "They watch a film.",
        "We watch the children.",
    ],
    "on the wrist": [
        "My watch is broken.",
        "He lost his watch.",
        "Your watch is expensive.",
    ],
}
rows, names = [], []
for sentences in texts.values():
    for text in sentences:
        parts, states = layers(text)
        rows.append(states[-1][parts.index("▁watch")])
        names.append(text)
states = torch.nn.functional.normalize(torch.stack(rows), dim=-1)
similar = states @ states.T
same = torch.cat(
    (
        similar[:3, :3][~torch.eye(3, dtype=torch.bool)],
        similar[3:, 3:][~torch.eye(3, dtype=torch.bool)],
    )
).mean()
other = similar[:3, 3:].mean()
print(
    f"mean cosine of 'watch' with the same use {same:.2f}, with the other use {other:.2f}"
)
assert same > other + 0.05
draw_matrix(
    similar,
    names,
    [f"{i + 1}" for i in range(6)],
    title="'watch' in six sentences: cosines after the last layer",
)

# %% [markdown]
# Nobody told the model that there are two words "watch". German has two (*sehen* or *schauen*, and *Uhr*), and to translate it had to
# tell them apart.
#
# `regard embed --in-context WORD` does this for BERTs, side by side with word2vec ([masked models](../masked_models.md)).
#
# **In the viewer:** `regard look`, then [Word vectors](http://127.0.0.1:8020/#view=vectors), "one word in two sentences".
