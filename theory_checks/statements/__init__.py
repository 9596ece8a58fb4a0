"""The texts: what the papers state, in their order, and what is said beside it; the root errors.

A TOML file a paper, a table a claim. A statement is LaTeX under `printed`, `implied` (by the
print), `reading` (ours) or `ours`, which says whose it is; `corrected` is its correction. What
stands between ⟦ and ⟧ is evaluated beside the evidence (`latex.py`). `quote` has the words of the
text that was extracted from the paper's PDF. `loose` has the factors by which the constants of the
formulas must change before the claim fails, in their order: 1.25 where none is given, infinite
where it does not fail. `mutants` has pieces of the text and what makes the claim wrong in their
place; `misprints` pieces of a false statement without which it shows other numbers. Of the wrong
versions that are drawn by the symbols (`narrowing.py`), `slack` names those that do not fail (the
bound is not that close, or the version is true, too), and `only` kinds of populations to which the
statement is confined.
`root` is an error of `roots.toml`; `proof` a heading of docs/proofs.md.
White space does not count.
"""

import functools
import pathlib
import re
import tomllib
from typing import Any

PAPERS = {
    "cv": "Conditional Vendi Score (AISTATS 2026)",
    "cv-early": "Conditional-Vendi, the earlier version",
    "rke": "Renyi Kernel Entropy (NeurIPS 2023)",
    "mid": "Mutual Information Divergence (NeurIPS 2022)",
}
"""Beginning of a claim's name, and its file's, with the paper that it says."""


NOTATION = dict(
    re.findall(
        r"^## (.*)\n\n((?:.+\n)+)",
        (pathlib.Path(__file__).parent / "notation.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
)
"""What the statements of a paper, or of its appendix, write without a definition beside them."""


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
