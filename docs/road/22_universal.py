# %% [markdown]
# # Thinking as long as needed
#
# A Transformer has six layers for an easy word and six for a hard one. The Universal Transformer (Dehghani 2018) has *one* layer and
# applies it again and again, like a recurrent net in depth. And each word may stop by itself: **adaptive computation time**.
#
# At step n a word has a chance h_n to halt. It halts as soon as these add up to more than 1 − ε, and the rest, R, is the weight of that last
# step. Its state is the weighted mean of its states at all steps.

# %%
import torch

from regard.layers.halting import halt

chances = torch.tensor(
    [[0.9, 0.3, 0.1], [0.2, 0.4, 0.2], [0.5, 0.5, 0.4], [0.5, 0.5, 0.5]]
)  # steps by words: easy, middling, hard
halted = halt(chances, epsilon=0.01)
for word, name in enumerate(("easy", "middling", "hard")):
    weights = [round(weight, 2) for weight in halted.weights[:, word].tolist()]
    print(
        f"{name:9} halts after {halted.steps[word].item()} steps, weights {weights}, ponder time N + R = {halted.ponder[word].item():.2f}"
    )
assert halted.steps.tolist() == [2, 3, 4]
assert torch.allclose(halted.weights.sum(0), torch.ones(3))

# %% [markdown]
# N + R, the **ponder time**, is added to the loss with a small factor: think longer only if it pays.
#
# ## A trained one
#
# The task: letters backwards, a few seconds of training with up to 4 steps.

# %%
import random
import string
import tempfile
from pathlib import Path

import regard

draw = random.Random(1)
folder = Path(tempfile.mkdtemp())
lines = [
    " ".join(draw.choices(string.ascii_lowercase[:10], k=draw.randint(2, 5)))
    for _ in range(2000)
]
(folder / "a.src").write_text("".join(line + "\n" for line in lines))
(folder / "a.tgt").write_text("".join(line[::-1] + "\n" for line in lines))
settings = (
    "model.name=universal model.halting=act model.width=32 model.heads=4 model.steps=4 "
    "model.dropout=0 tokenizer.kind=word data.allow=same-file data.valid_size=30 "
    "data.test_size=30 train.steps=220 train.batch_tokens=400 train.lr=0.005 "
    "train.warmup=20 train.schedule=linear train.save_every=1000 train.threads=1 "
    "train.device=cpu train.label_smoothing=0"
)
regard.train(
    src=str(folder / "a.src"),
    tgt=str(folder / "a.tgt"),
    out=folder / "run",
    settings=settings,
)
seen = regard.look(regard.load(folder / "run"), "a b c d")
print("a b c d ->", seen.trace.answer)
assert sorted(seen.trace.answer.split()) == ["a", "b", "c", "d"]

# %%
from regard.evaluation.drawing import draw_bars

pondered = seen.trace.pondered("source")
tokens = [token.strip("▁") for token in seen.trace.source.tokens]
print(
    "steps of each word:",
    dict(zip(tokens, pondered.steps.tolist(), strict=True)),
    " mean N + R:",
    round(pondered.cost, 2),
)
assert pondered.steps.min() >= 1
assert pondered.steps.max() <= 4
ponder = pondered.steps + pondered.remainder
draw_bars(
    {token: float(value) for token, value in zip(tokens, ponder, strict=True)},
    x="N + R",
    title="Ponder time of each word read",
)

# %% [markdown]
# The task is easy: most words stop at once, after one step (N = 1 and R = 1 make a ponder time of 2).
#
# ## What it is worth
#
# On Multi30k with its whole recipe (4 steps, without halting) it has 41.6 BLEU, half a point more than the plain Transformer's 41.0, with a
# similar number of weights ([results](../results.md#multi30k)).
#
# **In the viewer:** `regard look RUN` with `model.halting=act`, then [Pondering](http://127.0.0.1:8020/#view=ponder): step by step, which words
# have stopped.
