"""Recurrent layers: cells, products inside time loops, and padded sequences that need no packing."""
