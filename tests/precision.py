"""Settings of JAX for part of a test: float64 or float32, and how far programs are optimised."""

import contextlib

import jax


@contextlib.contextmanager
def x64(enabled):
    """Enables or disables x64 within the block."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", enabled)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


@contextlib.contextmanager
def optimised():
    """Compiles with all optimisations: for programs that run longer than that takes."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
