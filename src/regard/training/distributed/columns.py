"""Word vectors on several workers: each has some columns of the tables, and all read the same words.

What is learnt from a word changes the tables for the next, so words cannot be shared out. But all that two rows of the tables have
to do with each other is their product, which is a sum over columns: workers add up their parts of a few thousand products, and
change their own columns by them. So any number of them learn what one process learns, but for rounding.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import torch

from regard.core.errors import ConfigError
from regard.models.word2vec import Word2Vec
from regard.training.distributed.team import Team


class Columns:
    """This worker's columns of a model's tables: as much of a model as an update asks for."""

    def __init__(self, model: Word2Vec, team: Team):
        width = model.config.width
        if width < team.size:
            what = f"vectors of {width} numbers cannot be divided among {team.size} workers"
            raise ConfigError("setting model.width", what, "Use fewer workers")
        self.team = team
        self.place = slice(width * team.rank // team.size, width * (team.rank + 1) // team.size)
        self.config = dataclasses.replace(model.config, width=self.place.stop - self.place.start)
        self._whole = {name: p.detach() for name, p in model.named_parameters()}
        self._own = {name: table[:, self.place].contiguous() for name, table in self._whole.items()}
        for name, table in self._own.items():
            setattr(self, name.partition(".")[0], SimpleNamespace(weight=table))

    def take(self) -> None:
        """From the model's tables, which may have changed."""
        for name, own in self._own.items():
            own.copy_(self._whole[name][:, self.place])

    @torch.no_grad()
    def give(self) -> None:
        """Puts the columns of all workers into the model's tables."""
        for name, whole in self._whole.items():
            whole.zero_()
            whole[:, self.place] = self._own[name]
            whole.copy_(self.team.sum(whole))
