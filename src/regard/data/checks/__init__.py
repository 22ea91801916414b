"""Checks that find damage in parallel text, say where it is, and refuse it."""
