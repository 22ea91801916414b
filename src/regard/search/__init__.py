"""Search for output text: greedy, beam and sampling, over any model that keeps the contract."""

from regard.search.config import SearchConfig
from regard.search.forcing import attend, score_pairs
from regard.search.hypothesis import Hypothesis
from regard.search.many import search_many
from regard.search.search import Written, search, stream

__all__ = ["Hypothesis", "SearchConfig", "Written", "attend", "score_pairs", "search", "search_many", "stream"]
