"""Reads pairs of sentences from every common format, a chunk at a time."""

from regard.data.reading.lines import read_lines
from regard.data.reading.opening import FORMATS, open_pairs
from regard.data.reading.reader import PairReader
from regard.data.reading.standard_input import spool_input

__all__ = ["FORMATS", "PairReader", "open_pairs", "read_lines", "spool_input"]
