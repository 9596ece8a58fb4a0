"""Switching between float32 and float64 for part of a test."""

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
