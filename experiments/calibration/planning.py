"""What planned studies find, and how often models are wrongly stated to be equal.

python -m experiments.planning --splits=5 --draws=400

prints the tables of docs/decisions.md as JSON: plans from 30 prompts of the set `answers`, judged
on the other 70 prompts; and pairs of models whose scores differ by exactly the margin.
"""

import itertools
import json
from typing import Any

import numpy as np
from absl import flags

import condvendi_jax as cv
from condvendi_jax.cli import command
from experiments.calibration.interval_coverage import EXACT, answers_of
from experiments.data import load
from experiments.lab import runner

PILOT = 30
RATIO = 1.2
_FLAGS = flags.FlagValues()
flags.DEFINE_integer("splits", 5, "Choices of the pilot's prompts.", 1, flag_values=_FLAGS)
flags.DEFINE_integer("draws", 400, "Samples of each cell.", 1, flag_values=_FLAGS)


def achieved(split: int, ratio: float = RATIO) -> dict[str, Any]:
    """The power on other prompts of studies that 30 prompts planned for each pair of models."""
    pairs, rng = load("answers"), np.random.default_rng(split)
    prompt, model = pairs.labels["prompt"], pairs.labels["models"]
    chosen = np.isin(prompt, rng.permutation(np.unique(prompt))[:PILOT])
    kernels = {"output_kernel": cv.Gaussian(0.504), "prompt_kernel": cv.Indicator()}

    def compared(rows: np.ndarray) -> cv.inference.Comparison:
        of = {name: np.flatnonzero(rows & (model == name)) for name in np.unique(model).tolist()}
        outputs = {name: pairs.outputs[rows] for name, rows in of.items()}
        prompts = {name: prompt[rows] for name, rows in of.items()}
        return cv.compare(outputs, prompts, **kernels, orders=[2], profile=False)

    pilot, others, found = compared(chosen), compared(~chosen), []
    for two in itertools.combinations(pilot.models, 2):
        planned = cv.plan(pilot, models=two, ratio=ratio, level=0.05)
        there, (prompts, k, *_) = cv.plan(others, models=two).spread, planned.best
        power = there.power(k, prompts, there.effect(ratio), 0.05, at=0.0)
        low, high = planned.open_power
        found.append((power, low <= power <= high, prompts, k))
    power, inside, prompts, k = np.array(found).T
    ends = np.quantile(power, [0.05, 0.95]).tolist()
    shown = {"power": float(power.mean()), "5% and 95%": ends, "in the range": inside.mean()}
    return shown | {"median prompts": np.median(prompts), "median answers": np.median(k)}


def stated(kind: str, prompts: int, draws: int, each: int = 10) -> dict[str, Any]:
    """How often two models are stated to be equal: at the margin, where 5% may be, and if equal."""
    rng, shares = np.random.default_rng([prompts, each]), answers_of(kind)
    narrower = 0.9 * shares  # A tenth of its answers is always the likeliest one.
    narrower[np.arange(400), shares.argmax(axis=1)] += 0.1
    similar = [float(np.mean(np.sum(of**2, axis=1))) for of in (shares, narrower)]
    margin, rates = similar[1] / similar[0], []
    numbers = np.repeat(np.arange(prompts), each)
    for _ in range(draws):
        drawn = rng.integers(400, size=prompts)

        def sample(of: np.ndarray, drawn: np.ndarray = drawn) -> np.ndarray:
            answers = [rng.choice(40, each, p=of[prompt]) for prompt in drawn]
            return np.concatenate(answers)[:, None].astype(np.float32)

        models = {"one": sample(shares), "narrower": sample(narrower), "twin": sample(shares)}
        options: dict[str, Any] = {"orders": [2], "profile": False, "equal_ratio": margin, **EXACT}
        pairs = [
            {name: models[name] for name in two} for two in (("one", "narrower"), ("one", "twin"))
        ]
        found = [cv.compare(two, numbers, **options).ranking("conditional", 2) for two in pairs]
        rates.append([of.differences[0].equal <= 0.05 for of in found])
    at_margin, twins = np.mean(rates, axis=0).tolist()
    return {"margin": margin, "false": at_margin, "of twins": twins}


def main(argv: list[str]) -> None:
    """Measures and prints."""
    command.no_words(runner.parse(_FLAGS, argv))
    for split in range(_FLAGS.splits):
        print(json.dumps({"split": split} | achieved(split)), flush=True)
    for kind, prompts in itertools.product(("mild", "heavy", "bimodal"), (10, 20, 50, 100)):
        found = stated(kind, prompts, _FLAGS.draws)
        print(json.dumps({"kind": kind, "prompts": prompts} | found), flush=True)


if __name__ == "__main__":
    command.run(main, parse_flags=False)
