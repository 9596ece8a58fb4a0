"""The rows of a call, and the kernels and bandwidths with which they are compared."""

from condvendi_jax.data import bandwidth, kernels, pairs

__all__ = ["bandwidth", "kernels", "pairs"]
