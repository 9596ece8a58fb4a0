"""Prompt-aware diversity scores of generative models, in JAX.

H(X) = H(X|T) + I(X;T): how much of the diversity of outputs X the model adds, and how much it
owes to the prompts T. See the README for a tour, `evaluate` and `compare` for the scores with
errors in one call, and `decompose` for the scores alone.
"""

__version__ = "0.1.0"

import importlib
import pathlib
import re
import sys

# The stub beside this file lists the public names. A name is imported when it is first used, so
# that `import condvendi_jax` takes no time and the command line can be interrupted from the start.
_STUB = pathlib.Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOMES = {name: home for home, name in re.findall(r"^from (\S+) import (\w+)", _STUB, re.MULTILINE)}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(_HOMES[name])
    is_module = home is sys.modules[__name__] or not hasattr(home, name)
    value = importlib.import_module(f"{_HOMES[name]}.{name}") if is_module else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
