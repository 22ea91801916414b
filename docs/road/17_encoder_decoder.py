# %% [markdown]
# # The whole Transformer
#
# All parts are there. Put together:
#
# - the **encoder**: word vectors plus positions, then layers of self-attention and feed-forward, each with its residual and
#   normalisation. Every source word sees every other.
# - the **decoder**: the same on the target, but masked, and with a third sub-layer between: **cross-attention**. Its queries come from
#   the target, its keys and values from the encoder.
# - the **output layer**: a score for each word of the vocabulary.
#
# ## Following a sentence through
#
# With the bundled translator, and the shape of everything on the way:

# %%
import torch

import regard
from regard.core.types import BOS, EOS, pad_rows
from regard.models.base import Recorder

translator = regard.load()
model, tokenizers = translator.model.eval(), translator.tokenizers
config = model.config
print(
    f"width {config.width}, {config.depth[0]} + {config.depth[1]} layers, {config.heads} "
    f"heads, {model.parameters_count():,} parameters"
)

source = pad_rows(
    [[*tokenizers.source.encode(["It was too tired to cross the street."])[0], EOS]]
)
target = torch.tensor([[BOS, *tokenizers.target.encode(["Es war zu müde,"])[0]]])
seen = Recorder()
with torch.inference_mode():
    forced = model(source, target, seen)
    scores = model.output.scores(forced.hidden)
for name in ("encoder.0.self", "decoder.0.self", "decoder.0.cross"):
    print(
        f"{name:16} weights [sentences, heads, queries, keys] = {tuple(seen.tensors[name].shape)}"
    )
S, T = source.tokens.shape[1], target.shape[1]
assert seen.tensors["encoder.0.self"].shape[2:] == (S, S)
assert seen.tensors["decoder.0.self"].shape[2:] == (T, T)
assert seen.tensors["decoder.0.cross"].shape[2:] == (T, S)
print("hidden states", tuple(forced.hidden.shape), "-> scores", tuple(scores.shape))

# %% [markdown]
# ## Read once, asked often
#
# The encoder runs once per sentence. What the decoder needs of it, keys and values for each of its layers, is computed then and kept;
# every step of writing asks the same memory.

# %%
with torch.inference_mode():
    memory, state = model.start(source)
    print(
        "kept of the source:",
        len(memory.keys),
        "layers of keys and values",
        tuple(memory.keys[0].shape),
    )
    word, text = BOS, []
    while word != EOS and len(text) < 30:
        hidden, state = model.step(torch.tensor([[word]]), memory, state)
        word = model.output.scores(hidden)[0, 0].argmax().item()
        text.append(word)
print(tokenizers.target.decode([text[:-1]])[0])
assert text[-1] == EOS

# %% [markdown]
# Writing step by step gives the very states of teacher forcing; that they agree is a law that the tests hold every model of regard to.

# %%
with torch.inference_mode():
    at_once = model(source, torch.tensor([[BOS, *text[:-1]]])).hidden[0]
    memory, state = model.start(source)
    steps = []
    for word in [BOS, *text[:-1]]:
        hidden, state = model.step(torch.tensor([[word]]), memory, state)
        steps.append(hidden[0, 0])
print("largest difference:", f"{(torch.stack(steps) - at_once).abs().max():.0e}")
assert torch.allclose(torch.stack(steps), at_once, atol=1e-4)

# %% [markdown]
# ## Counting
#
# The paper's base model: width 512, 6 + 6 layers, feed-forward 2048, one table of 37,000 pieces for source, target and output. Every
# weight has its place:

# %%
d, inner, words, layers = 512, 2048, 37000, 6
attention = 4 * (d * d + d)  # queries, keys, values, output, with biases
network = d * inner + inner + inner * d + d
norm = 2 * d
encoder_layer = attention + network + 2 * norm
decoder_layer = 2 * attention + network + 3 * norm
total = words * d + layers * (encoder_layer + decoder_layer)
print(
    f"words {words * d / 1e6:.1f} M, encoder {layers * encoder_layer / 1e6:.1f} M, decoder {layers * decoder_layer / 1e6:.1f} M: {total / 1e6:.1f} M"
)
assert round(total / 1e6) == 63

from regard.models.base import MODELS, build_model

with torch.device("meta"):  # shapes only
    base = MODELS.get("transformer").Config(
        width=d, layers=layers, heads=8, inner=inner, norm="post"
    )
    ours = build_model(
        "transformer", base, source_vocabulary=words, target_vocabulary=words, shared=True
    )
print(f"regard's: {ours.parameters_count() / 1e6:.1f} M")
assert abs(ours.parameters_count() - total) < 0.002 * total

# %% [markdown]
# **In the viewer:** `regard look`, then [Attention](http://127.0.0.1:8020/#view=heads): encoder, decoder and cross-attention are the three
# parts to choose from.
