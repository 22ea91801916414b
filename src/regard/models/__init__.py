"""One file per paper, over the contracts of `base`."""
