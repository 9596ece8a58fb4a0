"""The rows of a call, and the kernels and bandwidths with which they are compared."""
