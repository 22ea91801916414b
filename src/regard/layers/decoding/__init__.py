"""One step of a Transformer's decoder in few kernels: for CUDA, each with a reference of the same signature for other devices."""
