"""Trained models behind interfaces that people already use."""
