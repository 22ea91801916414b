# %% [markdown]
# # Add, normalise, think: what stands around attention
#
# A Transformer layer is attention and a small network, and around each of them two things that make deep stacks trainable:
#
# > x + Dropout(Sublayer(Norm(x)))
#
# ## Layer against batch normalisation
#
# Both bring numbers to mean 0 and variance 1. They differ in *what is averaged over*. **Layer** normalisation takes the numbers of one
# word. **Batch** normalisation takes one number of all words of all sentences in the batch.

# %%
import torch

from regard.layers.normalise import normaliser

torch.manual_seed(0)
x = 5 + 3 * torch.randn(4, 6, 8)  # 4 sentences, 6 words, 8 numbers each
layer, batch = normaliser("layer", 8), normaliser("batch", 8).train()
by_word, by_feature = layer(x), batch(x)
print(
    f"layer: mean of one word {by_word[0, 0].mean():.4f}; batch: mean of one feature {by_feature[..., 0].mean():.4f}"
)
assert by_word.mean(-1).abs().max() < 1e-5
assert by_feature.mean((0, 1)).abs().max() < 1e-5

# %% [markdown]
# So with batch normalisation a sentence depends on its neighbours in the batch. Put other sentences beside it, and it changes:

# %%
others = x.clone()
others[1:] = 50 * torch.randn(3, 6, 8)
print(
    "change of the first sentence: layer",
    (layer(others)[0] - by_word[0]).abs().max().item(),
    " batch",
    round((batch(others)[0] - by_feature[0]).abs().max().item(), 2),
)
assert torch.equal(layer(others)[0], by_word[0])
assert (batch(others)[0] - by_feature[0]).abs().max() > 0.5

# %% [markdown]
# ## Both trained, and the residual switched off
#
# The small task: write a sequence of letters backwards. The same Transformer three times.

# %%
import json
import random
import string
import tempfile
from pathlib import Path

import regard

draw = random.Random(1)
folder = Path(tempfile.mkdtemp())
lines = [
    " ".join(draw.choices(string.ascii_lowercase[:12], k=draw.randint(3, 5)))
    for _ in range(3000)
]
(folder / "a.src").write_text("".join(line + "\n" for line in lines))
(folder / "a.tgt").write_text("".join(line[::-1] + "\n" for line in lines))
common = (
    "tokenizer.kind=word data.allow=same-file data.valid_size=50 data.test_size=50 "
    "model.width=32 model.layers=2 model.heads=4 model.dropout=0 train.steps=150 "
    "train.batch_tokens=500 train.lr=0.006 train.warmup=20 train.schedule=linear "
    "train.save_every=1000 train.log_every=10 train.threads=1 train.device=cpu "
    "train.label_smoothing=0 train.mixed_lengths=true search.beam=1"
)
variants = {
    "layer": "model.normalise=layer",
    "batch": "model.normalise=batch",
    "no residual": "model.residual=false",
}
curves = {}
for name, setting in variants.items():
    out = folder / name.replace(" ", "-")
    regard.train(
        src=str(folder / "a.src"),
        tgt=str(folder / "a.tgt"),
        out=out,
        settings=f"{common} {setting}",
    )
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    points = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    curves[name] = tuple(zip(*points, strict=True))
    print(f"{name:12} loss at the end {curves[name][1][-1]:.2f}")
assert curves["layer"][1][-1] < 0.7
assert curves["no residual"][1][-1] > 2 * curves["layer"][1][-1]

# %%
from regard.evaluation.drawing import draw_lines

draw_lines(
    curves,
    x="step",
    y="loss (nats per token)",
    title="Reversing letters: normalisation and the residual connection",
)

# %% [markdown]
# Without the residual connection the model stays far behind: every layer has to rebuild all that it wants to pass on, and gradients have no
# straight way down. With it, both normalisations learn (here batches mix sentences of all lengths, which batch normalisation needs).
# On real text, without the residual nothing is learned at all: 0.0 BLEU against 37.0
# ([ablations](../compared/transformer-ablations/README.md)); layer and batch 36.7 and 36.4
# ([normalisation](../compared/normalisation/README.md)).
#
# Why then layer normalisation? Because a sentence should not depend on its neighbours, because a decoder at work has a batch of
# one, and because nothing has to be remembered from training.
#
# ## Feed-forward: four times wider
#
# After attention has collected, a small network thinks about each word by itself, the same for every place: up to four times the
# width, a ReLU, and back. It holds two thirds of a layer's weights:

# %%
from regard.layers.attention.multihead import SelfAttention
from regard.layers.feedforward import FeedForward

attention, network = SelfAttention(512, 8), FeedForward(512, 2048)
counts = [sum(p.numel() for p in part.parameters()) for part in (attention, network)]
print(f"attention {counts[0]:,}, feed-forward {counts[1]:,}: {counts[1] / sum(counts):.0%}")
assert round(counts[1] / sum(counts), 2) == 0.67
words = torch.randn(1, 5, 512)
alone = torch.stack([network(words[:, i]) for i in range(5)], 1)
assert torch.allclose(network(words), alone, atol=1e-5)  # no word sees another

# %% [markdown]
# **In the viewer:** `regard look`, then [Step by step](http://127.0.0.1:8020/#view=steps): the residual and the feed-forward network are
# among the steps.
