"""Attention in all its forms, one file each."""
