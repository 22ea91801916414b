# %% [markdown]
# # Convolutions over text
#
# A filter of width m looks at m neighbouring words and gives one number: how much they look like its pattern. Slid along the sentence
# it gives a **feature map**, a number for every window. Two questions have to be settled: what happens at the ends, and how do
# sentences of all lengths become vectors of one length?
#
# ## Narrow and wide
#
# A **narrow** convolution keeps to windows inside the sentence: s words give s − m + 1 numbers. A **wide** one takes every window that
# touches it, with zeros beyond the ends: s + m − 1 numbers, and the words at the ends are seen as often as those in the middle.

# %%
import torch

from regard.layers.convolution import TextConvolution

sentence = ["the", "cat", "sat", "on", "the", "red", "mat"]
s, m = len(sentence), 5
x = torch.ones(
    1, s, 1
)  # one number per word, so that a filter of ones counts the words under it
counts = {}
for border in ("narrow", "wide"):
    layer = TextConvolution(1, 1, m, border=border)
    torch.nn.init.ones_(layer.weight)
    windows, lengths = layer(x, torch.tensor([s]))
    counts[border] = windows[0, :, 0].tolist()
    print(
        f"{border:6} {lengths.item():2} windows, words under each: {[int(n) for n in counts[border]]}"
    )
assert len(counts["narrow"]) == s - m + 1 == 3
assert len(counts["wide"]) == s + m - 1 == 11

# %%
from regard.evaluation.drawing import draw_matrix

wide = torch.zeros(s + m - 1, s)
for i in range(s + m - 1):
    wide[i, max(0, i - m + 1) : i + 1] = 1
assert wide.sum(1).tolist() == counts["wide"]
draw_matrix(
    wide,
    [f"window {i + 1}" for i in range(s + m - 1)],
    sentence,
    numbers="",
    title="The words that each window of a wide convolution sees",
)

# %% [markdown]
# **Stride** takes only every so manyth window, **padding** adds zeros on both sides. With stride 2 and padding 1, a narrow
# convolution of 7 words in windows of 5 has ⌊(7 + 2·1 − 5) / 2⌋ + 1 = 3 windows.

# %%
layer = TextConvolution(1, 1, m, border="narrow", stride=2, padding=1)
_, lengths = layer(x, torch.tensor([s]))
print(lengths.item(), "windows")
assert lengths.item() == (s + 2 * 1 - m) // 2 + 1 == 3

# %% [markdown]
# ## Max over time
#
# How does a map of any length become one number? Take its maximum: was the pattern *somewhere*? Kim's network (2014) does just that
# with filters of width 3, 4 and 5. Trained for a few seconds to tell praise from blame, its winning windows are the words that matter.

# %%
import random
import tempfile
from pathlib import Path

import regard

draw = random.Random(3)
good, bad = (
    ["superb", "lovely", "brilliant", "moving"],
    ["awful", "boring", "dreadful", "clumsy"],
)
things = ["film", "plot", "story", "cast", "music", "ending"]


def review(words: list[str]) -> str:
    fillers = draw.choices(
        [
            "the",
            "a",
            "we",
            "saw",
            "it",
            "was",
            "and",
            "with",
            "of",
            "in",
            "that",
            "this",
            "one",
        ],
        k=draw.randint(4, 9),
    )
    place = draw.randint(0, len(fillers))
    return " ".join(
        [*fillers[:place], draw.choice(words), draw.choice(things), *fillers[place:]]
    )


folder = Path(tempfile.mkdtemp())
lines = {
    f"{label}\t{review(words)}"
    for label, words in (("good", good), ("bad", bad))
    for _ in range(400)
}
(folder / "reviews.tsv").write_text("\n".join(sorted(lines)) + "\n")
settings = (
    "model.name=kim model.width=24 model.maps=16 tokenizer.kind=word train.steps=150 "
    "train.batch_tokens=1024 train.lr=0.01 train.warmup=10 train.save_every=1000 "
    "train.threads=1 train.device=cpu train.optimizer=adam"
)
regard.train(labelled=str(folder / "reviews.tsv"), out=folder / "kim", settings=settings)
kim = regard.load(folder / "kim")
asked = [
    "we saw that awful plot and it was in one",
    "in this one the brilliant music was with that",
]
answers = [kim.classify(text) for text in asked]
for text, answer in zip(asked, answers, strict=True):
    print(answer.label, "<-", text)
assert [answer.label for answer in answers] == ["bad", "good"]

# %% [markdown]
# Which words won? The viewer's own code tells: each filter's maximum lies in a window, and each window covers some words.

# %%
from regard.evaluation.drawing import draw_bars

seen = regard.look(kim, asked[0]).trace
words = [token.strip("▁") for token in seen.source.tokens]
covered = [0.0] * len(words)
for winner in seen.convolutions()["winners"]:
    for place in range(winner["begin"], winner["end"]):
        covered[place] += winner["score"]
best = words[covered.index(max(covered))]
print("the word that wins most:", best)
assert best in ("awful", "plot")
draw_bars(
    {
        f"{i + 1} {word}": value
        for i, (word, value) in enumerate(zip(words, covered, strict=True))
    },
    title="Maxima of filters, summed over the words under their windows",
)

# %% [markdown]
# ## Reading with convolutions, writing with recurrence
#
# The first neural translator of this road (Kalchbrenner and Blunsom 2013, RCTM) reads so: convolutions fold the source until one
# vector is left, and a recurrent net writes the translation from it. RCTM II folds less and keeps several vectors.
# The [next chapter](06_sequence_to_sequence.md) trains one.

# %%
from regard.core.types import BOS, Padded
from regard.models.base import MODELS, build_model

torch.manual_seed(0)
model = build_model(
    "rctm1",
    MODELS.get("rctm1").Config(width=32),
    source_vocabulary=50,
    target_vocabulary=50,
    shared=False,
).eval()
source = Padded(torch.randint(4, 50, (1, 9)), torch.ones(1, 9, dtype=torch.bool))
print(
    "9 words in, states of",
    tuple(model(source, torch.full((1, 4), BOS)).hidden.shape),
    "out",
)

# %% [markdown]
# More: [classifying](../classifying.md).
#
# **In the viewer:** `regard look RUN` with a `kim` or `dcnn` run, then [Convolutions](http://127.0.0.1:8020/#view=convolution).
