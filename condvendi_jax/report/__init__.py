"""Results in words: tables for terminals, Markdown and CSV."""

from condvendi_jax.report._render import with_error

__all__ = ["with_error"]
