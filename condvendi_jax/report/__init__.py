"""Results for others: a page of HTML, a figure, a paragraph and a table for a paper."""

from typing import TYPE_CHECKING

import lazy_loader

from condvendi_jax.report.paper import Report, latex
from condvendi_jax.report.webpage import html

if TYPE_CHECKING:
    from condvendi_jax.report.curves import figure

__all__ = ["Report", "figure", "html", "latex"]
# Matplotlib is slow to import.
__getattr__, *_ = lazy_loader.attach(__name__, submod_attrs={"curves": ["figure"]})
