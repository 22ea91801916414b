"""Comparisons: several models trained on the same data with the same budget, measured alike, in one report."""
