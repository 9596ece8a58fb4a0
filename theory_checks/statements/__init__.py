"""The texts: what the papers state, in their order, and what is said beside it; the root errors.

A TOML file a paper, a table a claim; `roots.toml` has the root errors. They feed the registry, the
terminal and docs/theory.md alike.
"""

import functools
import pathlib
import tomllib
from typing import Any

PAPERS = {
    "cv": "Conditional Vendi Score (AISTATS 2026)",
    "cv-early": "Conditional-Vendi, the earlier version",
    "rke": "Renyi Kernel Entropy (NeurIPS 2023)",
    "mid": "Mutual Information Divergence (NeurIPS 2022)",
}
"""Beginning of a claim's name, and its file's, with the paper that it says."""


def read(name: str) -> dict[str, dict[str, Any]]:
    """The tables of one file; a text is one line, however it was broken.

    Raises:
        ValueError: a table is there twice, or the file is no TOML.
    """
    text = (pathlib.Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8")
    return {
        key: {
            field: " ".join(value.split()) if isinstance(value, str) else value
            for field, value in table.items()
        }
        for key, table in tomllib.loads(text).items()
    }


@functools.cache
def texts() -> dict[str, dict[str, Any]]:
    """The tables of all papers by claim, in their order, each with its `paper`."""
    return {
        name: {"paper": paper, **table} for paper in PAPERS for name, table in read(paper).items()
    }
