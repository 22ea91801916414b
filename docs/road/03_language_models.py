# %% [markdown]
# # The next word
#
# A language model answers one question: given the words so far, how probable is each word of the vocabulary as the next one? Whoever
# can answer it can score a text (multiply the probabilities) and write one (draw a word, add it, ask again).
#
# Three answers stand on the road, and they differ in how far back they look:
#
# - **NPLM** (Bengio 2003): the last n words, each as a vector, side by side, through one hidden layer. What is further back does not
#   exist.
# - **RNN-LM** (Mikolov 2010): one state, updated by every word. Nothing is cut off, in principle.
# - **LSTM-LM** (Zaremba 2014): the same with gates that protect what should be kept.
#
# ## A text whose answer lies far back
#
# Toy sentences show the difference. Each begins with a name, goes on with some filler, and ends with that name's animal. To guess the
# last word, a model must remember the first.

# %%
import random
import tempfile
from pathlib import Path

import regard

draw = random.Random(1)
pets = {"anna": "cat", "ben": "dog", "carl": "owl", "dora": "fox"}
filler = ["really", "very", "truly", "often", "still", "now"]


def sentence(name: str, gap: int) -> str:
    return " ".join([name, *draw.choices(filler, k=gap), "likes", "the", pets[name]])


folder = Path(tempfile.mkdtemp())
lines = [sentence(draw.choice(list(pets)), draw.randint(0, 8)) for _ in range(3000)]
(folder / "pets.txt").write_text("\n".join(lines) + "\n")
print(*lines[:3], sep="\n")

# %% [markdown]
# Each is trained for a few seconds by the same trainer. NPLM sees the last 5 words.

# %%
models = {
    "nplm": "model.width=48 model.embedding=32 model.order=6 train.steps=250 train.lr=0.01",
    "rnnlm": "model.width=48 model.initialise=scaled model.activation=tanh train.steps=250 train.lr=0.01",
    "lstmlm": "model.width=48 model.layers=1 model.initialise_range=0.3 train.steps=400 train.lr=0.03",
}
common = (
    "tokenizer.kind=space train.batch_tokens=1024 train.warmup=20 train.save_every=1000 "
    "train.threads=1 train.window=32 train.device=cpu model.dropout=0"
)
trained = {}
for name, sizes in models.items():
    out = Path(tempfile.mkdtemp())  # a new one whenever the cell is run
    regard.train(
        text=str(folder / "pets.txt"),
        out=out,
        settings=f"model.name={name} {sizes} {common}",
    )
    trained[name] = regard.load(out)
    print(f"{name:7} {trained[name].model.parameters_count():6,} parameters")

# %% [markdown]
# Now the question: how probable is the right animal, by the number of words between the name and the animal?

# %%
import math

from regard.evaluation.drawing import draw_lines

recall = {}
for name, model in trained.items():
    rows = []
    for gap in range(9):
        asked = [sentence(who, gap) for who in pets for _ in range(5)]
        scored = model.score(asked)
        rows.append(sum(math.exp(each.token_log_probs[-2]) for each in scored) / len(asked))
    recall[name] = (range(9), rows)
    print(f"{name:7}", " ".join(f"{p:.2f}" for p in rows))
assert recall["nplm"][1][0] > 0.9  # near enough to see
assert recall["nplm"][1][8] < 0.4  # a guess among four is 0.25
assert recall["lstmlm"][1][8] > 0.8
draw_lines(
    recall,
    x="words of filler",
    y="probability of the right animal",
    title="Recall by distance",
)

# %% [markdown]
# As long as the name is among NPLM's five words it is perfect; one step further it can only guess among four. The recurrent models
# carry the name along.
#
# ## Writing
#
# Drawing from the distribution, word by word, gives text:

# %%
for begin in ("ben", "dora now"):
    print(begin + trained["lstmlm"].generate(begin, max_tokens=12, temperature=0.7, seed=1))
print(
    [
        (word.text, round(word.probability, 2))
        for word in trained["lstmlm"].next_words("carl likes the", top=3)
    ]
)

# %% [markdown]
# More: [language models](../language_models.md); measured on real text in [results](../results.md).
#
# **In the viewer:** `regard look RUN` with a language model, then [Next word](http://127.0.0.1:8020/#view=language): the surprise of
# every word, and what else was likely.
