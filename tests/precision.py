"""Settings for part of a test: float64 or float32, how far programs are optimised, tiles."""

import contextlib
from unittest import mock

import jax

from condvendi_jax.grams import fold


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


@contextlib.contextmanager
def tiles(size):
    """Tiles of this side: few points are many tiles. Programs of other tiles are forgotten."""
    jax.clear_caches()
    with mock.patch.multiple(fold, CPU_TILE=size, _CPU_SHARED_TILE=size):
        yield
    jax.clear_caches()
