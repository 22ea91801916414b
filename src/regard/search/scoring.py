"""Scores that rank texts of different lengths: length normalisation and coverage penalty (Wu et al. 2016, eq. 14).

    score(Y) = log P(Y) / lp(n) + cp,   lp_gnmt(n) = ((5 + n) / 6)^alpha,   lp_plain(n) = n^alpha,   lp_none(n) = 1
    cp = beta * sum over source positions i of log min(sum over target positions j of p_ij, 1)

n counts the tokens whose log-probability is in log P: EOS too, once it is written; the prompt of a language model, which is
not written, is in neither. The sum over i runs over all real
source positions, the source's EOS among them; that over j over the same n positions. A position that got no attention
at all counts as FLOOR, because a model with hard or local attention would otherwise score -inf.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.search.config import SearchConfig

FLOOR = 1e-6


def normalised(config: SearchConfig, total: Float[Tensor, "*N"], n: Int[Tensor, "*#N"]) -> Float[Tensor, "*N"]:
    """log P / lp(n). An empty cut hypothesis (n = 0) is divided as if n were 1."""
    length = n.clamp(min=1).to(total.dtype)
    return total / config.length_divisor(length)


def coverage_penalty(
    config: SearchConfig, covered: Float[Tensor, "B K S"] | None, keep: Bool[Tensor, "B S"]
) -> Float[Tensor, "B K"] | float:
    """cp, which is 0 at best; 0 where coverage is off."""
    if covered is None:
        return 0.0
    return config.coverage * covered.clamp(FLOOR, 1).log().masked_fill(~keep[:, None], 0).sum(-1)


def reachable(config: SearchConfig, total: Float[Tensor, "*N"], limit: Int[Tensor, "*#N"]) -> Float[Tensor, "*N"]:
    """An upper bound on the score of anything that continues a hypothesis with this sum.

    Sums only fall, lp only grows with n (alpha is not negative) and cp is at most 0: so no continuation scores above
    the same sum over the greatest length, `limit` tokens and EOS.
    """
    return normalised(config, total, limit + 1)
