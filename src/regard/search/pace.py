"""How far the sentences of a batch are, which the host counts by itself: all of them write a token at every step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Pace:
    """What has to be known of a step: the most tokens that an open text has, and whether one may have forced tokens to come.

    A text is open until the step in which it has as many tokens as it may have. Steps are numbered, and asked for in their order.
    """

    def __init__(self, begun: NDArray[np.int64], limit: NDArray[np.int64], forced: NDArray[np.int64]):
        """Of each text: the number of the step before which it had, or would have had, no token; most tokens; forced ones."""
        self._each = np.stack([begun, begun + limit, begun + forced])
        self._oldest, self._first_end, self._forced = 0, -1, 0  # of those that are open; not counted yet

    def at(self, step: int) -> tuple[int, bool] | None:
        """None: no text is open."""
        if step > self._first_end:
            self._each = self._each[:, self._each[1] >= step]
            if not self._each.shape[1]:
                return None
            begun, last, forced = self._each
            self._oldest, self._first_end, self._forced = int(begun.min()), int(last.min()), int(forced.max())
        return step - self._oldest, step < self._forced
