"""Results for others: a page of HTML, a paragraph and a table for a paper."""

from condvendi_jax.report.paper import Report, latex
from condvendi_jax.report.webpage import html

__all__ = ["Report", "html", "latex"]
