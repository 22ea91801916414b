"""One trainer for every model."""
