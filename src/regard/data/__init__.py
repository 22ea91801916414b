"""From text files to batches of tokens."""
