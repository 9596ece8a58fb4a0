"""What a user waits for: whole commands, from files to the printed table, in fresh processes.

    python -m experiments.waiting                              # this checkout
    python -m experiments.waiting --against=../before          # in turns with another checkout
    python -m experiments.waiting --cases='score.*' --repeats=5

Prints a Markdown table of the CPU seconds, user and system, of each command: of a first call, whose
cache of compiled programs is empty, and of the next call on data that were never embedded.
"""

import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags
from PIL import Image

from condvendi_jax.cli import command
from experiments.cost.timing import cpu_seconds
from experiments.data import sets
from experiments.lab import runner

_FLAGS = flags.FlagValues()
flags.DEFINE_string("against", None, "The folder of another checkout.", flag_values=_FLAGS)
flags.DEFINE_string("cases", ".*", "Which commands: a regular expression.", flag_values=_FLAGS)
flags.DEFINE_integer("repeats", 3, "Of which the median is taken.", 1, flag_values=_FLAGS)

_EQUAL = "--prompts=answers_t.npy --equal_prompts --output_bandwidth=0.3"
_NEAR = "--prompts=answers_t.npy --output_bandwidth=0.3 --prompt_bandwidth=0.7"
CASES = {
    "score, 1,000 pairs": "score x1000.npy --prompts=t1000.npy",
    "score, 1,000 pairs, order 2": "score x1000.npy --prompts=t1000.npy --order=2",
    "score, 1,000 pairs, by prompt": "score x1000.npy --prompts=t1000.npy --by_prompt=p",
    "score, 10,000 pairs": "score x10000.npy --prompts=t10000.npy",
    "compare, 5 models x 1,000": f"compare {{5}} {_NEAR.partition(' --output')[0]}",
    "compare, 24 models x 1,000": f"compare {{24}} {_NEAR}",
    "compare, 24 models x 1,000, equal prompts": f"compare {{24}} {_EQUAL}",
    "score, 300 pictures": "score pictures --prompts=titles.txt --rule=median",
    "score, 3,000 texts": "score texts.txt --prompts=questions.txt --rule=median",
}
"""Commands by what they do; `{k}` stands for the files of k models."""


def write_data(folder: pathlib.Path) -> None:
    """Real embeddings of one model and of 24, drawn pictures, and texts of random words."""
    emoji, answers = sets.load("emoji"), sets.load("answers")
    rng = np.random.default_rng(0)
    order = rng.permutation(len(emoji))
    for n in (1000, 10_000):
        np.save(folder / f"x{n}.npy", emoji.outputs[order[:n]])
        np.save(folder / f"t{n}.npy", emoji.prompts[order[:n]])
    models = answers.labels["models"]
    by_prompt = np.argsort(answers.prompt_numbers, kind="stable")
    for k, name in enumerate(np.unique(models)):
        rows = by_prompt[models[by_prompt] == name]
        np.save(folder / f"m{k}.npy", answers.outputs[rows])
        np.save(folder / "answers_t.npy", answers.prompts[rows])
    (folder / "pictures").mkdir()
    for k in range(300):
        tiles = rng.integers(256, size=(8, 8, 3), dtype=np.uint8)
        Image.fromarray(tiles).resize((320, 240)).save(folder / "pictures" / f"{k}.png")
    words = (sets.FOLDER / "stories.txt").read_text(encoding="utf-8").split()
    lengths = {"texts": rng.lognormal(4, 0.8, 3000), "questions": np.full(3000, 12)}
    lengths["titles"] = lengths["questions"][:300]
    for name, of_each in lengths.items():
        lines = (" ".join(rng.choice(words, max(1, int(length)))) for length in of_each)
        (folder / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")


def arguments(case: str) -> list[str]:
    """The words of a command on the files of `write_data`."""
    counted = re.sub(
        r"\{(\d+)\}", lambda k: " ".join(f"m{i}.npy" for i in range(int(k[1]))), CASES[case]
    )
    return counted.split()


def seconds(words: Sequence[str], tree: str, folder: pathlib.Path, cache: str) -> float:
    """The CPU seconds of a command of a checkout; its caches are folders of their own."""
    with tempfile.TemporaryDirectory() as fresh:
        embeds = any(word.startswith(("--images", "--texts")) for word in words)
        embedded = [f"--cache={fresh}"] * embeds
        environment = os.environ | {"PYTHONPATH": tree, "XDG_CACHE_HOME": cache}
        options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        before = cpu_seconds(resource.RUSAGE_CHILDREN)
        call = [sys.executable, "-m", "condvendi_jax.cli", *words, *embedded, "--overwrite"]
        subprocess.run(call, cwd=folder, env=environment, check=True, **options)
        return cpu_seconds(resource.RUSAGE_CHILDREN) - before


def main(argv: list[str]) -> None:
    """Measures and prints."""
    command.no_words(runner.parse(_FLAGS, argv))
    given: dict[str, Any] = _FLAGS.flag_values_dict()
    here = os.fspath(pathlib.Path(__file__).resolve().parents[2])
    trees = [here] if given["against"] is None else [os.path.abspath(given["against"]), here]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_data(folder)
        print("| command | first call | next call |\n| --- | --- | --- |")
        for case in filter(re.compile(given["cases"]).search, CASES):
            words = arguments(case)
            first: dict[str, list[float]] = {tree: [] for tree in trees}
            following: dict[str, list[float]] = {tree: [] for tree in trees}
            for repeat in range(given["repeats"]):
                for tree in trees:
                    cache = folder / f"cache-{trees.index(tree)}-{repeat}"
                    spent = seconds(words, tree, folder, os.fspath(cache))
                    first[tree].append(spent)
                    following[tree].append(seconds(words, tree, folder, os.fspath(cache)))
            shown = [_shown([of[tree] for tree in trees]) for of in (first, following)]
            print(f"| {case} | {' | '.join(shown)} |", flush=True)


def _shown(of_trees: Sequence[Sequence[float]]) -> str:
    """The medians in seconds and, of two checkouts, the median of their ratios."""
    words = " → ".join(f"{statistics.median(spent):.3g} s" for spent in of_trees)
    if len(of_trees) > 1:
        before, after = map(np.asarray, of_trees)
        ratio = np.median(before / after)
        words += f" ({ratio:.1f}x)"
    return words


if __name__ == "__main__":
    command.run(main, parse_flags=False)
