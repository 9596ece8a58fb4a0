"""Results for others: a page of HTML, a figure, a paragraph and a table for a paper."""

from typing import TYPE_CHECKING, Any

from condvendi_jax.report.paper import Report, latex
from condvendi_jax.report.webpage import html

if TYPE_CHECKING:
    from condvendi_jax.report.curves import figure

__all__ = ["Report", "figure", "html", "latex"]


def __getattr__(name: str) -> Any:
    """Imports `figure` when it is used: matplotlib is slow to import."""
    if name != "figure":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from condvendi_jax.report.curves import figure

    return figure
