"""Other engines that run regard's models: converting a model into their format, and searching with it. None imports torch."""
