# %% [markdown]
# # Writing, word by word
#
# > I went to the climbing gym and I ___
#
# A language model gives a probability to *every* word of its vocabulary. Writing is drawing one, putting it down, and asking again.
#
# ## A model in a few seconds
#
# We train a small one on English sentences that come with regard: Bengio's network, which sees the last four pieces of words. That is
# little, and enough for a plausible next word.

# %%
import lzma
import random
import tempfile
from pathlib import Path

import regard
from regard.data.bundle import bundled_path

folder = Path(tempfile.mkdtemp())
with lzma.open(bundled_path("tatoeba-en-de"), "rt", encoding="utf-8") as lines:
    sentences = dict.fromkeys(line.split("\t")[0] for line in lines)
chosen = [text for text in sentences if " I " in text and len(text.split()) <= 14]
random.Random(1).shuffle(chosen)
(folder / "text.txt").write_text("\n".join(chosen[:6000]) + "\n", encoding="utf-8")
settings = (
    "model.name=nplm model.width=64 model.embedding=48 model.order=5 model.dropout=0 "
    "tokenizer.kind=bpe tokenizer.size=1200 train.steps=200 train.batch_tokens=2048 "
    "train.lr=0.01 train.warmup=20 train.schedule=linear train.save_every=1000 "
    "train.threads=1 train.device=cpu"
)
regard.train(text=str(folder / "text.txt"), out=folder / "run", settings=settings)
model = regard.load(folder / "run")

# %%
from regard.evaluation.drawing import draw_bars

prompt = "I went to the climbing gym and I"
likely = model.next_words(prompt, top=12)
print(
    "the twelve likeliest have",
    f"{sum(word.probability for word in likely):.0%}",
    "of the probability",
)
assert 0 < sum(word.probability for word in likely) < 1
assert "are" in [word.text.strip() for word in likely]
draw_bars(
    {word.text.strip(): word.probability for word in likely},
    x="probability",
    title=f"{prompt} ___",
)

# %% [markdown]
# "And I *are*"? The text has many sentences like "Tom and I are friends", and this model sees four pieces of words, not who came before. A
# longer memory would know better: that is what the other models of this road are for.
#
# ## Drawing
#
# By hand first: ask, draw one of the likeliest words by its probability, put it down, ask again.

# %%
pen = random.Random(4)
text = prompt
for _ in range(5):
    choices = model.next_words(text, top=8)
    word = pen.choices(choices, [choice.probability for choice in choices])[0]
    others = ", ".join(f"{c.text.strip()} {c.probability:.2f}" for c in choices[:3])
    print(f"... {text[-18:]:18} -> {word.text.strip():8} (likeliest: {others})")
    text += word.text
print(text)
assert text.startswith(prompt + " ")

# %% [markdown]
# `generate` does that over the whole vocabulary. Three texts, from three random numbers:

# %%
for seed in (1, 2, 3):
    print(prompt + model.generate(prompt, seed=seed, temperature=0.8, max_tokens=16))

# %% [markdown]
# The **temperature** divides all logits. Below 1 the likely words get likelier, above 1 all get more alike. **Top-k** and **top-p** cut
# the tail off: only the k likeliest words, or only as many as together have probability p.

# %%
import torch

scores = torch.tensor([word.probability for word in likely]).log()
for temperature in (0.3, 1.0, 2.0):
    sharpened = (scores / temperature).softmax(-1)
    print(f"temperature {temperature}: first {sharpened[0]:.2f}, last {sharpened[-1]:.3f}")
cold, warm = (scores / 0.3).softmax(-1), (scores / 2).softmax(-1)
assert cold[0] > scores.softmax(-1)[0] > warm[0]
print(prompt + model.generate(prompt, temperature=0.2, seed=1, max_tokens=16))
print(prompt + model.generate(prompt, temperature=1.5, seed=1, max_tokens=16))

# %% [markdown]
# The same seed gives the same text, always:

# %%
again = [model.generate(prompt, seed=5, max_tokens=12) for _ in range(2)]
assert again[0] == again[1]

# %% [markdown]
# `regard next "I went to the climbing gym and I" --model RUN` prints the list; `regard demo --task lm` trains a GPT on Shakespeare in
# two minutes.
#
# **In the viewer:** `regard look RUN` with a language model, then [Next word](http://127.0.0.1:8020/#view=language).
