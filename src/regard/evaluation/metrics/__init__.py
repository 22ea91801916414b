"""Scores of translations against references: each metric one file, found by name, with signatures and intervals."""

from regard.evaluation.metrics._base import METRICS, USUAL, Metric
from regard.evaluation.metrics._flavour import Flavour
from regard.evaluation.metrics._score import SEED, Score, check_parallel, perplexity
from regard.evaluation.metrics._statistics import CHUNK_CELLS, Statistics, corpus_scores, named_metrics, resample

__all__ = [
    "CHUNK_CELLS",
    "METRICS",
    "SEED",
    "USUAL",
    "Flavour",
    "Metric",
    "Score",
    "Statistics",
    "check_parallel",
    "corpus_scores",
    "named_metrics",
    "perplexity",
    "resample",
]
