"""Recipes: settings that are known to work, as TOML files found by name."""
