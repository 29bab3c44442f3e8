"""The inner modules of Numba that the kernel room uses."""
