"""Keywords of functions: an unknown one is named, with the one that was meant."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable


def check(given: Iterable[str], signature: inspect.Signature, *, of: str) -> None:
    """Raises TypeError for a keyword that a function does not have, and names the likeliest one."""
    known = signature.parameters
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in known.values()):
        return
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}."
            if difflib.get_close_matches(name, ("bandwidth", "output_bandwidth", "sigma"), n=1):
                meant = "for a bandwidth of 0.5, say, pass output_kernel=cv.Gaussian(0.5)."
            raise TypeError(f"{of}: unknown keyword {name}; {meant}")
