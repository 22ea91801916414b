# %% [markdown]
# # Three kinds of layers, compared
#
# A recurrent, a convolutional and a self-attention layer do the same job: n vectors in, n vectors out, each knowing of the others. What
# does it cost, how much of it must wait, and how far is it from one word to another?
#
# | layer | operations per layer | steps that must wait | longest path |
# |---|---|---|---|
# | self-attention | n² · d | 1 | 1 |
# | recurrent | n · d² | n | n |
# | convolution, kernel k | k · n · d² | 1 | n / (k − 1) layers |
# | self-attention within r neighbours | r · n · d | 1 | n / r |
#
# ## Paths, measured
#
# How many layers until the last word can be influenced by the first? Follow the gradient: it is zero until there is a path.

# %%
import torch

from regard.layers.attention.multihead import SelfAttention
from regard.layers.convolution import TextConvolution
from regard.layers.recurrent.layers import recurrent

torch.manual_seed(0)
width, length = 16, 17


def convolve(x: torch.Tensor, layer: TextConvolution) -> torch.Tensor:
    return layer(x, torch.tensor([x.shape[1]]))[0]


def layers_needed(kernel: int) -> int:
    """Layers of convolutions (centred, so that n words stay n) until word 1 reaches word n."""
    x = torch.randn(1, length, width, requires_grad=True)
    states, count = x, 0
    while True:
        layer = TextConvolution(
            width, width, kernel, border="narrow", padding=(kernel - 1) // 2
        )
        states, count = convolve(states, layer), count + 1
        (gradient,) = torch.autograd.grad(states[0, -1].sum(), x, retain_graph=True)
        if gradient[0, 0].abs().sum() > 0:
            return count


found = {kernel: layers_needed(kernel) for kernel in (3, 5, 9)}
print(f"convolutions over {length} words, layers needed:", found)
assert found == {kernel: -(-(length - 1) // ((kernel - 1) // 2)) for kernel in found}

x = torch.randn(1, length, width, requires_grad=True)
attended, _ = SelfAttention(width, 2)(x, None, causal=False, explicit=True)
(gradient,) = torch.autograd.grad(attended[0, -1].sum(), x)
print("self-attention: 1 layer, gradient at word 1", f"{gradient[0, 0].norm():.3f}")
assert gradient[0, 0].norm() > 0

# %% [markdown]
# (The last word is n − 1 away from the first, and each layer brings it (k − 1)/2 nearer: 16 layers for kernel 3. The table's n/(k − 1) is
# for two words that meet half-way.) A recurrent layer needs one layer, but n steps inside it.
#
# ## Times, measured
#
# One layer of each, width 64, on one thread of this machine. Look at the *shape* of the curves; the numbers are those of the machine that
# built this page.

# %%
import time

from regard.evaluation.drawing import draw_lines

width = 64
lstm, attention = (
    recurrent("lstm", width, width, bias=True).eval(),
    SelfAttention(width, 4).eval(),
)
convolution = TextConvolution(width, width, 3, border="narrow", padding=1).eval()
kinds = {
    "recurrent (LSTM)": lambda x: lstm(x),
    "convolution, kernel 3": lambda x: convolve(x, convolution),
    "self-attention": lambda x: attention(x, None, causal=False, explicit=True),
}
lengths, times = (16, 64, 256, 1024), {name: [] for name in kinds}
for n in lengths:
    x = torch.randn(1, n, width)
    for name, layer in kinds.items():
        took = []
        for _ in range(4):
            began = time.perf_counter()
            with torch.inference_mode():
                layer(x)
            took.append(time.perf_counter() - began)
        times[name].append(1000 * min(took))
for name, row in times.items():
    print(
        f"{name:22}",
        " ".join(f"{n}: {ms:.2f} ms" for n, ms in zip(lengths, row, strict=True)),
    )
growth = {name: row[-1] / row[1] for name, row in times.items()}
assert growth["self-attention"] > 16  # from 64 to 1024 words: more than linear
draw_lines(
    {name: (lengths, row) for name, row in times.items()},
    x="words n",
    y="milliseconds",
    log="xy",
    title="One layer of width 64, by length",
)

# %% [markdown]
# Self-attention grows with n², the others with n. As long as n is below d it needs the fewest operations, and none of
# them waits for another, which is what counts on a GPU. For whole books n² is the problem.
#
# ## ConvS2S
#
# Between recurrent nets and the Transformer came a translator of convolutions only (Gehring 2017), with gates and attention in every
# decoder layer. How far it sees grows with its layers:

# %%
from regard.models.base import MODELS

config = MODELS.get("convs2s").Config()
print(f"kernels {config.kernels}, layers {config.layers}")

# %% [markdown]
# Recipe `multi30k-convs2s` reaches [40.8 BLEU](../results.md) on Multi30k, beside 41.0 for the Transformer.
#
# **In the viewer:** `regard look RUN` with a ConvS2S run, then [Convolutions](http://127.0.0.1:8020/#view=convolution): how far each layer
# sees.
