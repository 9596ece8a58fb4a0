"""What a user waits for: whole commands, from files to the printed table, in fresh processes."""

import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from PIL import Image
from rich.table import Table

from experiments import lab
from experiments.cost import timing
from experiments.data import sets

_FIVE = " ".join(f"m{k}.npy" for k in range(5))
COMMANDS = {
    "imports": ("import of the library", "from condvendi_jax import Gaussian, decompose, evaluate"),
    "vendi": ("score, 1,000 pairs", "score x1000.npy --prompts=t1000.npy"),
    "rke": ("score, 1,000 pairs, order 2", "score x1000.npy --prompts=t1000.npy --order=2"),
    "models": ("compare, 5 models x 1,000 pairs", f"compare {_FIVE} --prompts=answers_t.npy"),
    "pictures": ("score, 300 pictures", "score pictures --prompts=titles.txt --rule=median"),
    "texts": ("score, 300 texts", "score texts.txt --prompts=questions.txt --rule=median"),
    "many": ("score, 10,000 pairs", "score x10000.npy --prompts=t10000.npy"),
}
"""By name, what it is and what runs: Python, or the words of a command."""
_TREE = pathlib.Path(__file__).parents[2]


class Waiting(lab.Study):
    """How long does a user wait for a command, at the first call and at the next?"""

    name = "waiting"
    control = "Every round starts with an empty cache of compiled programs."
    unrepeated = ("seconds",)
    data = None
    random = False

    commands: tuple[str, ...] = lab.flag(tuple(COMMANDS), "What is run.", choices=COMMANDS)
    repeats: int = lab.flag(
        timing.AT_LEAST, "Rounds, each without compiled programs.", at_least=timing.AT_LEAST
    )

    def prepare(self, load, seed):
        """Writes the files that the commands read."""
        scratch = tempfile.TemporaryDirectory()
        folder = pathlib.Path(scratch.name)
        write_data(folder)
        arrays = {path.stem: np.load(path) for path in sorted(folder.glob("*.npy"))}
        return self.ready(state=folder, arrays=arrays, setup={"close": scratch.cleanup})

    def axes(self):
        return {"command": self.commands}

    def compute(self, state, context, *, command):
        """CPU seconds of the first call of each round and of the next, `[round, call]`.

        The first call of a round finds no compiled programs, the next those of the first. Neither
        finds embeddings.
        """
        spent = []
        for number in range(self.repeats):
            with tempfile.TemporaryDirectory() as cache:
                context.say(f"round {number + 1} of {self.repeats}")
                spent.append([seconds(command, state, cache) for _ in range(2)])
        return xr.Dataset({"seconds": (("round", "call"), spent)}, {"call": ["first", "next"]})

    def tables(self, run):
        """CPU seconds of every command: medians, with the least and the most."""
        grid = Table("command", "first call, CPU s", "next call, CPU s")
        for cell, found in run.results.items():
            spreads = [timing.spread(of) for of in found.seconds.transpose("call", "round")]
            grid.add_row(COMMANDS[cell.values["command"]][0], *(of.words() for of in spreads))
        yield grid

    @classmethod
    def facts(cls, runs: Sequence[lab.Run]) -> Mapping[str, Any]:
        """The table, and `seconds(command, call)`, the median."""

        def seconds(command: str, call: str = "next") -> float:
            return timing.spread(runs[0].found.seconds.sel(command=command, call=call)).median

        tables = [table for run in runs for table in run.study.tables(run)]
        return {"seconds": seconds, "table": tables and tables[0]}


def write_data(folder: pathlib.Path) -> None:
    """Real embeddings of one model and of five, drawn pictures, and texts of random words."""
    emoji, answers = sets.load("emoji"), sets.load("answers")
    rng = np.random.default_rng(0)
    order = rng.permutation(len(emoji))
    for n in (1000, 10_000):
        np.save(folder / f"x{n}.npy", emoji.outputs[order[:n]])
        np.save(folder / f"t{n}.npy", emoji.prompts[order[:n]])
    models = answers.labels["models"]
    by_prompt = np.argsort(answers.prompt_numbers, kind="stable")
    for k, name in enumerate(np.unique(models)[:5]):
        rows = by_prompt[models[by_prompt] == name]
        np.save(folder / f"m{k}.npy", answers.outputs[rows])
        np.save(folder / "answers_t.npy", answers.prompts[rows])
    (folder / "pictures").mkdir()
    for k in range(300):
        tiles = rng.integers(256, size=(8, 8, 3), dtype=np.uint8)
        Image.fromarray(tiles).resize((320, 240)).save(folder / "pictures" / f"{k}.png")
    words = (sets.FOLDER / "stories.txt").read_text(encoding="utf-8").split()
    lengths = {"texts": rng.lognormal(4, 0.8, 300), "questions": np.full(300, 12)}
    lengths["titles"] = lengths["questions"]
    for name, of_each in lengths.items():
        lines = (" ".join(rng.choice(words, max(1, int(length)))) for length in of_each)
        (folder / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")


def arguments(name: str, embeddings: str) -> list[str]:
    """The words after `python` of a command; what it embeds is kept in the folder given."""
    if name == "imports":
        return ["-c", COMMANDS[name][1]]
    embeds = [f"--cache={embeddings}"] if name in ("pictures", "texts") else []
    return ["-m", "condvendi_jax.cli", *COMMANDS[name][1].split(), *embeds, "--overwrite"]


def seconds(name: str, folder: pathlib.Path, cache: str) -> float:
    """The CPU seconds of a command; compiled programs are kept in `cache`, and nowhere else."""
    own = {"PYTHONPATH": os.fspath(_TREE), "XDG_CACHE_HOME": cache}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | own
    with tempfile.TemporaryDirectory() as fresh:
        call = [sys.executable, *arguments(name, fresh)]
        return timing.of_process(call, cwd=folder, env=environment)[0]
