"""The dot product q·k (Luong et al. 2015, section 3.1, "dot")."""

from __future__ import annotations

from regard.layers.attention.scores._base import SCORES, EqualWidths


@SCORES.register("dot")
class Dot(EqualWidths):
    """q·k."""
