"""The studies, a folder for each theme; `python -m experiments.NAME --help` lists a study's flags.

`experiments.NAME` is the command of the study NAME, or a file of a theme. This serves commands.
Code imports `experiments.conditional_vendi.convergence`, so that no module is loaded twice.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import pathlib
import sys

if importlib.util.find_spec("xarray") is None:
    raise ModuleNotFoundError("The studies need more packages: pip install -e '.[studies]'")

THEMES = ("conditional_vendi", "rke", "guidance", "language_models", "calibration", "cost")


class _ByName(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds what has no folder in its name: commands of studies, and files of themes."""

    def find_spec(self, fullname, path=None, target=None):
        package, _, name = fullname.rpartition(".")
        if package != __name__:
            return None
        folders = [str(pathlib.Path(__file__).parent / theme) for theme in THEMES]
        found = importlib.machinery.PathFinder.find_spec(fullname, folders)
        if found is None or found.submodule_search_locations:
            return found
        from experiments.lab import registry  # Imported where it is needed: it is slow.

        if name not in registry.NAMES:
            return found
        return importlib.util.spec_from_loader(fullname, self, origin=found.origin)

    def get_source(self, fullname):
        study = f"registry.load({fullname.rpartition('.')[2]!r})"
        start = "from experiments import lab\nfrom experiments.lab import registry\n"
        return f"{start}if __name__ == '__main__':\n    lab.main({study})\n"


sys.meta_path.append(_ByName())
