# %% [markdown]
# # What a recurrent net forgets
#
# A recurrent layer reads word by word. All it knows of the words before is one vector, and every new word writes over it:
#
# > h_t = tanh(W x_t + U h_{t−1})
#
# Learning runs backwards along the same way: to tell the first word how it should have been different, the error is multiplied by U
# and by the slope of tanh (at most 1) once for every word in between. What is multiplied many times by something below 1 vanishes.
#
# ## The gradient, by position
#
# Read 40 random words with an untrained layer, take the last state, and ask how much a small change of each word would change it.

# %%
import torch

from regard.evaluation.drawing import draw_lines
from regard.layers.recurrent.layers import recurrent

torch.manual_seed(0)
width, length, texts = 64, 40, 32


def influence(kind: str) -> torch.Tensor:
    """Length of the gradient of the last state with respect to each word, averaged over texts."""
    layer = recurrent(kind, width, width, bias=True)
    words = torch.randn(texts, length, width, requires_grad=True)
    states, _ = layer(words)
    (states[:, -1] * torch.randn(width)).sum().backward()
    return words.grad.norm(dim=-1).mean(0)


by_position = {kind: influence(kind) for kind in ("rnn", "gru", "lstm")}
curves = {
    kind: (range(1, length + 1), sizes / sizes[-1]) for kind, sizes in by_position.items()
}
for kind, (_, sizes) in curves.items():
    print(
        f"{kind:5} the word 10 back counts {sizes[-11]:.1e} as much as the last one, 30 back {sizes[-31]:.1e}"
    )
assert curves["rnn"][1][-11] < 0.01  # ten words back, below a hundredth
assert curves["rnn"][1][-31] < 1e-6
draw_lines(
    curves,
    x="position of the word (40 is the last)",
    y="influence on the last state",
    log="y",
    title="The last words dominate",
)

# %% [markdown]
# The scale is logarithmic: straight lines are factors. In all three the last words dominate the final vector. Gates slow the loss
# down only if they are open, and an untrained gate is half open: σ(0) = ½. That is why many implementations begin with the forget gate of an
# LSTM open: with a bias of 3 it lets 95 % through.

# %%
open_gate = recurrent("lstm", width, width, bias=True)
with torch.no_grad():  # the gates stand in the order input, forget, cell, output
    open_gate.bias_ih_l0[width : 2 * width] = 3.0
words = torch.randn(texts, length, width, requires_grad=True)
(open_gate(words)[0][:, -1] * torch.randn(width)).sum().backward()
sizes = words.grad.norm(dim=-1).mean(0)
print(
    f"with open forget gates the word 30 back counts {sizes[-31] / sizes[-1]:.1e}, before {curves['lstm'][1][-31]:.1e}"
)
assert sizes[-31] / sizes[-1] > 1000 * curves["lstm"][1][-31]

# %% [markdown]
# ## Recall, by distance
#
# Gradients are about learning. What about remembering? Train each layer to repeat a symbol that it saw d steps ago: 8 symbols, so a
# guess is right in 12.5 % of cases.

# %%
from torch.nn.functional import cross_entropy, one_hot


def recall(kind: str, distance: int, steps: int = 100) -> float:
    torch.manual_seed(1)
    layer, output = recurrent(kind, 8, 32, bias=True), torch.nn.Linear(32, 8)
    parameters = [*layer.parameters(), *output.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=0.01)
    for step in range(steps + 1):
        symbols = torch.randint(8, (64, distance + 1))
        answers = output(layer(one_hot(symbols, 8).float())[0][:, -1])
        if step == steps:
            return (answers.argmax(-1) == symbols[:, 0]).float().mean().item()
        optimiser.zero_grad()
        cross_entropy(answers, symbols[:, 0]).backward()
        optimiser.step()
    return 0.0


distances = (1, 2, 4, 8, 16)
found = {
    kind: (distances, [recall(kind, distance) for distance in distances])
    for kind in ("rnn", "gru", "lstm")
}
for kind, (_, shares) in found.items():
    print(f"{kind:5}", " ".join(f"{share:.0%}" for share in shares))
assert found["gru"][1][0] > 0.9
assert max(shares[-1] for _, shares in found.values()) < 0.6
draw_lines(
    found,
    x="steps between seeing and repeating",
    y="right",
    title="Recall by distance after 100 steps of training",
)

# %% [markdown]
# After the same short training, what lies near is learned and what lies far is not: nothing in the data is harder, only the way is
# longer. An attention layer has no such way. Every word is one step from every other, which is where this road leads.
#
# **In the viewer:** `regard look RUN` with a recurrent model, then [States over time](http://127.0.0.1:8020/#view=recurrent): watch
# the forget gates open and close on your own sentence.
