"""Several processes that train one model together, each with a part of every batch."""
