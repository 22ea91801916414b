"""Scores: how well a query and a key match, one file each, found by name."""

from regard.layers.attention.scores._base import SCORES, Score, make_score

__all__ = ["SCORES", "Score", "make_score"]
