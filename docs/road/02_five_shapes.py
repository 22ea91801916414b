# %% [markdown]
# # Five shapes of tasks
#
# What goes in and what comes out? One thing or a sequence: that gives five shapes, and every task of this road is one of them.
#
# | shape | example | a model of regard |
# |---|---|---|
# | one to one | a text as one bag, to a label | `deep-averaging` |
# | one to many | a label, to a text | `label-writer` |
# | many to one | a text, word by word, to a label | `recurrent-classifier` |
# | many to many, after reading | a sentence, to its translation | `sutskever` |
# | many to many, in step | each word, to its tag | `recurrent-tagger` |
#
# The same parts make all five: word vectors, a recurrent layer that carries a state from word to word, and an output layer over a
# vocabulary. Only what is read when, and where an answer is taken, differs. Here is each of them, untrained and small, with the
# shapes of what it answers for a batch of 2 texts of 7 words.

# %%
import torch

from regard.core.types import BOS, Padded
from regard.models.base import MODELS, build_model

torch.manual_seed(0)
words = torch.randint(4, 50, (2, 7))
text = Padded(words, torch.ones(2, 7, dtype=torch.bool))
label = torch.zeros(2, 1, dtype=torch.long)

shapes = {}
for name in (
    "deep-averaging",
    "recurrent-classifier",
    "recurrent-tagger",
    "sutskever",
    "label-writer",
):
    config = MODELS.get(name).Config(width=32)
    model = build_model(
        name, config, source_vocabulary=50, target_vocabulary=50, shared=False
    ).eval()
    if name == "label-writer":  # reads one label, writes a text of 5
        answer = model(Padded(label, label == label), torch.full((2, 5), BOS)).hidden
    elif name == "sutskever":  # reads 7 words, writes 5
        answer = model(text, torch.full((2, 5), BOS)).hidden
    elif name == "recurrent-tagger":  # a state at each of the places 0 to 6
        answer = model(text, torch.arange(7).repeat(2, 1)).hidden
    else:  # one state for the whole text
        answer = model(text, label).hidden
    shapes[name] = tuple(answer.shape)
    print(
        f"{name:22} {tuple(words.shape) if name != 'label-writer' else (2, 1)} -> {tuple(answer.shape)}"
    )
assert shapes["recurrent-classifier"][1] == 1
assert shapes["recurrent-tagger"][1] == 7
assert shapes["sutskever"][1] == 5

# %% [markdown]
# The middle number is the length of what comes out: 1 for a label, 7 for a tag per word, and anything for a text that is written (5
# here). The last is the width of a state; the output layer turns each into scores over its vocabulary.
#
# ## Order matters to some
#
# The bag is the odd one out. It adds up word vectors, so it cannot know their order. A recurrent reader can.

# %%
backwards = Padded(words.flip(1), text.keep)
for name in ("deep-averaging", "recurrent-classifier"):
    torch.manual_seed(0)
    model = build_model(
        name,
        MODELS.get(name).Config(width=32),
        source_vocabulary=50,
        target_vocabulary=5,
        shared=False,
    ).eval()
    difference = (
        (model(text, label).hidden - model(backwards, label).hidden).abs().max().item()
    )
    print(f"{name:22} changes by {difference:.6f} when the words are read backwards")
    assert (difference < 1e-5) == (name == "deep-averaging")

# %% [markdown]
# All five with commands to train them: [the five shapes](../shapes.md).
#
# **In the viewer:** `regard look RUN` with a recurrent model of your own, then
# [States over time](http://127.0.0.1:8020/#view=recurrent): gates and states, word by word.
