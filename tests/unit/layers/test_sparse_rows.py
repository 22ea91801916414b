"""Dot products with the rows of a table that are met, and weighted sums of them, against whole matrices."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from regard.layers import sparse_rows
from regard.layers.sparse_rows import Met, met_dots, met_sums


def case(sizes: list[int]) -> tuple[torch.Tensor, torch.Tensor, Met]:
    torch.manual_seed(0)
    counts = torch.tensor(sizes)
    owners = torch.arange(len(sizes)).repeat_interleave(counts)
    offsets = torch.cat((torch.zeros(1, dtype=torch.long), counts.cumsum(0)))
    index = torch.randint(0, 7, (int(counts.sum()),))  # a row may be met twice
    return torch.randn(len(sizes), 5), torch.randn(7, 5), Met(offsets, index, owners)


@pytest.mark.parametrize("sizes", [[3, 0, 1, 9], [0, 0], [2]])
def test_dots_and_sums_are_those_of_matrices(sizes):
    rows, table, met = case(sizes)
    expected = (rows @ table.T)[met.owners, met.hits]
    torch.testing.assert_close(met_dots(rows, table, met), expected)
    torch.testing.assert_close(sparse_rows._gathered(rows, table, met), expected)
    weights = torch.randn(len(met.hits))
    whole = torch.zeros(len(rows), len(table)).index_put((met.owners, met.hits), weights, accumulate=True)
    torch.testing.assert_close(met_sums(table, met.offsets, met.hits, weights), whole @ table)


def test_nothing_is_warned_of():
    code = (
        "import torch; from regard.layers.sparse_rows import Met, met_dots; i = torch.tensor([0]);"
        "met_dots(torch.ones(1, 2), torch.ones(1, 2), Met(torch.tensor([0, 1]), i, i))"
    )
    found = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
