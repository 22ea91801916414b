"""Rows of tables that are met here and there: dot products with them, and weighted sums of them.

What is met is a sparse matrix by rows: row r meets the rows `hits[offsets[r] : offsets[r + 1]]` of a table.
"""

from __future__ import annotations

import functools
import warnings
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag


class Met(NamedTuple):
    """R rows, which meet E rows of a table."""

    offsets: Int[Tensor, "begins"]  # R + 1
    hits: Int[Tensor, "E"]  # rows of the table
    owners: Int[Tensor, "E"]  # r of each


def met_dots(rows: Float[Tensor, "R D"], table: Float[Tensor, "T D"], met: Met) -> Float[Tensor, "E"]:
    """The dot product of each row with each row of the table that it meets."""
    return _sampled(rows, table, met) if rows.device.type == "cpu" else _gathered(rows, table, met)


def _gathered(rows: Tensor, table: Tensor, met: Met) -> Tensor:
    return torch.linalg.vecdot(rows.index_select(0, met.owners), table.index_select(0, met.hits))


def _sampled(rows: Tensor, table: Tensor, met: Met) -> Tensor:
    """The same without copies of rows: a product of matrices, of which only these entries are computed."""
    _warn_of_nothing()
    values, shape = rows.new_zeros(len(met.hits)), (len(rows), len(table))
    entries = torch.sparse_csr_tensor(met.offsets, met.hits, values, shape, check_invariants=False)
    return torch.sparse.sampled_addmm(entries, rows, table.T, beta=0.0).values()


def met_sums(table: Float[Tensor, "T D"], offsets: Tensor, hits: Tensor, weights: Tensor) -> Float[Tensor, "R D"]:
    """The weighted sum of the rows of a table that each row meets."""
    return embedding_bag(hits, table, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True)


@functools.cache
def _warn_of_nothing() -> None:
    """PyTorch warns of its sparse matrices once, when the first is made: this one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), torch.ones(1), (1, 1))
