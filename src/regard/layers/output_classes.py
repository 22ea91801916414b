"""The class-factored output layer: P(w | h) = P(class of w | h) P(w | class of w, h) (Goodman 2001, Mikolov et al. 2011).

Words are put into classes by their ids: with C classes of Z words, w is word w mod Z of class w div Z. Vocabularies are ordered
by frequency, or nearly so, and so the classes hold words of like frequency. Any grouping gives a proper distribution.

A word's probability needs C + Z numbers instead of all V. On a CPU the plain loss computes no more than that. Smoothing and
consistency are about the whole vocabulary, and on a GPU one large product takes less time than many small ones: there, all
logits of some rows are computed at once, and once more on the way back, so that none is kept.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, pad
from torch.utils.checkpoint import checkpoint

from regard.core.types import PAD
from regard.layers.linear_cross_entropy import CHUNK_ELEMENTS, CHUNK_ELEMENTS_ELSEWHERE
from regard.layers.output import OutputLayer, Sums

NEVER = float("-inf")


class ClassOutput(OutputLayer):
    """softmax(C h + c) over classes times softmax(W h + b) over the words of each. W may be tied to an embedding table."""

    def __init__(self, width: int, vocabulary: int, classes: int = 0, tied: Tensor | None = None):
        """`classes` 0: about the square root of the vocabulary, so that both softmaxes are as small as can be."""
        super().__init__()
        self.vocabulary = vocabulary
        self.size = math.ceil(vocabulary / min(vocabulary, classes or math.ceil(math.sqrt(vocabulary))))
        self.classes = math.ceil(vocabulary / self.size)  # none is empty; the last one may be smaller
        self.weight = tied if tied is not None else nn.Parameter(torch.empty(vocabulary, width))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.class_weight = nn.Parameter(torch.empty(self.classes, width))
        self.class_bias = nn.Parameter(torch.zeros(self.classes))
        for weight in (self.class_weight, self.weight) if tied is None else (self.class_weight,):
            nn.init.normal_(weight, std=width**-0.5)

    def scores(self, hidden: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        of_class = linear(hidden, self.class_weight, self.class_bias).float().log_softmax(-1)
        words = linear(hidden, self.weight, self.bias).float()
        words = pad(words, (0, self.classes * self.size - self.vocabulary), value=NEVER)
        in_class = words.unflatten(-1, (self.classes, self.size)).log_softmax(-1)
        return (of_class[..., None] + in_class).flatten(-2)[..., : self.vocabulary]

    def loss(
        self, hidden: Float[Tensor, "*N D"], target: Int[Tensor, "*N"], smoothing: float = 0.0, consistency: float = 0.0
    ) -> Sums:
        hidden, target = hidden.reshape(-1, hidden.shape[-1]), target.reshape(-1)
        tokens = (target != PAD).sum()
        device = hidden.device.type
        if device == "cpu" and int(tokens) < len(target):  # skip the padding where asking costs nothing
            rows = (target != PAD).nonzero().squeeze(1)
            hidden, target = hidden.index_select(0, rows), target[rows]
        if device == "cpu" and not smoothing and not consistency:
            loss = self._by_class(hidden, target)
            return Sums(loss, loss.detach(), tokens)
        halves = 2 if consistency else 1  # the same rows of each go together
        rows = max(1, CHUNK_ELEMENTS.get(device, CHUNK_ELEMENTS_ELSEWHERE) // self.vocabulary // halves)
        loss = nll = torch.zeros((), device=hidden.device)
        hidden, target = hidden.unflatten(0, (halves, -1)), target.unflatten(0, (halves, -1))
        for h, y in zip(hidden.split(rows, 1), target.split(rows, 1), strict=True):
            more, plain = checkpoint(
                self._part, h, y, smoothing, consistency, use_reentrant=False, preserve_rng_state=False
            )
            loss, nll = loss + more, nll + plain.detach()
        return Sums(loss, nll, tokens)

    def _part(
        self, h: Float[Tensor, "halves n D"], y: Int[Tensor, "halves n"], smoothing: float, consistency: float
    ) -> tuple[Tensor, Tensor]:
        """Of some rows: the loss that is trained, and the plain one."""
        log_p, real = self.scores(h), y != PAD
        nll = -(log_p.gather(-1, y[..., None])[..., 0] * real).sum()
        loss = nll
        if smoothing:
            loss = (1 - smoothing) * nll - smoothing * (log_p.mean(-1) * real).sum()
        if consistency:
            a, b = log_p
            both = ((a.exp() - b.exp()) * (a - b)).sum(-1)  # KL(a || b) + KL(b || a)
            loss = loss + consistency / 2 * (both * real[0]).sum()
        return loss, nll

    def _by_class(self, hidden: Float[Tensor, "N D"], target: Int[Tensor, "N"]) -> Tensor:
        """The plain loss: each row with the words of its own class only. Asks how many rows each class has."""
        of_class, word = target // self.size, target % self.size
        total = cross_entropy(linear(hidden, self.class_weight, self.class_bias).float(), of_class, reduction="sum")
        order = of_class.argsort(stable=True)
        counts = torch.bincount(of_class, minlength=self.classes).tolist()
        parts = zip(
            hidden.index_select(0, order).split(counts),
            word[order].split(counts),
            self.weight.split(self.size),
            self.bias.split(self.size),
            strict=True,
        )
        for h, y, weight, bias in parts:
            if len(y):
                total = total + cross_entropy(linear(h, weight, bias).float(), y, reduction="sum")
        return total
