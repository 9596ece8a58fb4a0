"""Results in words: tables for terminals, Markdown and CSV; a paragraph and a table for a paper."""

from condvendi_jax.report._paper import Report
from condvendi_jax.report._render import with_error

__all__ = ["Report", "with_error"]
