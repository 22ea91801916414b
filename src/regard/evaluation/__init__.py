"""Scores that can be trusted: metrics with signatures, significance, reports."""
