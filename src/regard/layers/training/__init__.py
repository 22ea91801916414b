"""Parts of layers that only training needs, in few kernels: for CUDA, each with a reference for other devices."""
