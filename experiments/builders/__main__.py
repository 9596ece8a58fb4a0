"""Makes a data set anew from its sources.

usage: python -m experiments.builders NAME [--flag=value ...]

`NAME --help` lists the flags of a set.
"""

import dataclasses
import faulthandler
import importlib
import inspect
import pathlib
import pkgutil
from collections.abc import Sequence
from typing import Any

from condvendi_jax.base.files import check_targets
from condvendi_jax.cli import command
from condvendi_jax.cli.flags import flag
from experiments import builders
from experiments.builders.common import RECIPES, Recipe, Work
from experiments.data.repository import Repository
from experiments.data.sets import FOLDER
from experiments.lab import runner

for _module in pkgutil.iter_modules(builders.__path__):
    if _module.name != "__main__":
        importlib.import_module(f"{builders.__name__}.{_module.name}")


@dataclasses.dataclass(frozen=True)
class Flags:
    """The flags of all builders."""

    cache_dir: str = flag("data-cache", "Folder for clones and features.")
    output: str | None = flag(None, "The file to write; the shipped file if unset.")
    overwrite: bool = flag(False, "Replace files that exist; those that ship are always replaced.")


def flags_of(recipe: Recipe) -> type[Flags]:
    """The flags of a builder: those of all, of its recipe and of its repositories."""
    entries: list[Any] = [(name, *of) for name, of in recipe.takes.items()]
    for name, (repository, _) in recipe.sources.items():
        words = f"A clone of {repository}, with a work tree or bare; made in --cache_dir if unset."
        entries.append((name, str | None, flag(None, words)))
    about = {"__doc__": inspect.getdoc(inspect.getmodule(recipe.build))}
    bases = (Flags,)
    return dataclasses.make_dataclass("Flags", entries, bases=bases, namespace=about, frozen=True)


def main(argv: Sequence[str]) -> None:
    """Refuses, before anything is computed, to write over a user's files; then makes the set.

    The file that ships with the project is replaced: to make it is what a builder is for.
    """
    words = [word for word in argv[1:] if word in RECIPES]
    if not words and {"--help", "-h"} & {*argv}:
        print(f"{__doc__}The names: {', '.join(RECIPES)}.")
        return
    if not words:
        received = " ".join(argv[1:])
        raise ValueError(f"expected one of {', '.join(RECIPES)}, received {received!r}.")
    name, recipe = words[0], RECIPES[words[0]]
    given: Any = runner.parse_once(flags_of(recipe), argv[1:], 1)[1]
    shipped = FOLDER / f"{name}.npz"
    output, cache = pathlib.Path(given.output or shipped), pathlib.Path(given.cache_dir)
    clones = {word: getattr(given, word) for word in recipe.sources}
    beside = {f"--output (its {path.name})": path for path in recipe.files_beside(output)}
    if output in beside.values():
        raise ValueError(f"--output={output} is the name of a file that is written beside the set.")
    check_targets(
        {"--output": output} | {word: path for word, path in beside.items() if path.exists()},
        {f"--{word}": [clone] for word, clone in clones.items() if clone},
        overwrite=given.overwrite or output.resolve() == shipped.resolve(),
    )
    repositories = [
        Repository.opened(*pinned, source=clones[word], cache=cache)
        for word, pinned in recipe.sources.items()
    ]
    Work(name, output, cache, repositories, given).make()


if __name__ == "__main__":
    faulthandler.enable()
    command.run(main)
