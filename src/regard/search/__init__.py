"""Search for output text: greedy, beam and sampling, over any model that keeps the contract."""

from regard.search.config import SearchConfig
from regard.search.forcing import attend, score_pairs
from regard.search.hypothesis import Hypothesis
from regard.search.search import search

__all__ = ["Hypothesis", "SearchConfig", "attend", "score_pairs", "search"]
