"""The ground: types, errors, configuration, registries and files."""
