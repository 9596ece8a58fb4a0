"""What planned studies find, and how often models are wrongly stated to be equal.

python -m experiments.planning --splits=5 --draws=400

prints the tables of docs/decisions.md as JSON: plans from 30 prompts of the set `answers`, judged
on the other 70 prompts; and pairs of models whose scores differ by exactly the margin.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

import condvendi_jax as cv
from experiments.calibration import simulated
from experiments.data import load

PILOT, RATIO = 30, 1.2
EACH = 10  # Answers to a prompt.


def achieved(split: int) -> dict[str, Any]:
    """The power on other prompts of studies that 30 prompts planned for each pair of models."""
    pairs, rng = load("answers"), np.random.default_rng(split)
    prompt, model = pairs.labels["prompt"], pairs.labels["models"]
    chosen = np.isin(prompt, rng.permutation(np.unique(prompt))[:PILOT])
    kernels = {"output_kernel": cv.Gaussian(0.504), "prompt_kernel": cv.Indicator()}

    def compared(rows: np.ndarray) -> cv.inference.Comparison:
        of = {name: rows & (model == name) for name in np.unique(model).tolist()}
        outputs, prompts = (
            {k: of_rows[v] for k, v in of.items()} for of_rows in (pairs.outputs, prompt)
        )
        return cv.compare(outputs, prompts, **kernels, orders=[2], profile=False)

    pilot, others, found = compared(chosen), compared(~chosen), []
    for two in itertools.combinations(pilot.models, 2):
        planned = cv.plan(pilot, models=two, ratio=RATIO, level=0.05)
        there, (prompts, k, *_) = cv.plan(others, models=two).spread, planned.best
        power = there.power(k, prompts, there.effect(RATIO), 0.05, at=0.0)
        low, high = planned.open_power
        found.append((power, low <= power <= high, prompts, k))
    power, inside, prompts, k = np.array(found).T
    ends = np.quantile(power, [0.05, 0.95]).tolist()
    shown = {"power": float(power.mean()), "5% and 95%": ends, "in the range": inside.mean()}
    return shown | {"median prompts": np.median(prompts), "median answers": np.median(k)}


def stated(kind: str, prompts: int, draws: int) -> dict[str, Any]:
    """How often two models are stated to be equal: at the margin, where 5% may be, and if equal."""
    rng, shares = np.random.default_rng([prompts, EACH]), simulated.answers_of(kind)
    narrower = 0.9 * shares  # A tenth of its answers is always the likeliest one.
    narrower[np.arange(400), shares.argmax(axis=1)] += 0.1
    similar = [float(np.mean(np.sum(of**2, axis=1))) for of in (shares, narrower)]
    margin, rates = similar[1] / similar[0], []
    options: dict[str, Any] = {"orders": [2], "profile": False, "equal_ratio": margin}
    for _ in range(draws):
        drawn, models = rng.integers(400, size=prompts), {}
        for name, of in (("one", shares), ("narrower", narrower), ("twin", shares)):
            answers = [rng.choice(40, EACH, p=of[prompt]) for prompt in drawn]
            models[name] = np.float32(np.ravel(answers)[:, None])
        found = []
        for other in ("narrower", "twin"):
            two = {name: models[name] for name in ("one", other)}
            tested = cv.compare(two, np.repeat(range(prompts), EACH), **options, **simulated.EXACT)
            found.append(tested.ranking("conditional", 2).differences[0].equal_p_value <= 0.05)
        rates.append(found)
    at_margin, twins = np.mean(rates, axis=0).tolist()
    return {"margin": margin, "false": at_margin, "of twins": twins}


def cells(splits: int = 5, draws: int = 400) -> Iterator[dict[str, Any]]:
    """The plans of each choice of the pilot's prompts, and cells of `draws` samples each."""
    for split in range(splits):
        yield {"split": split} | achieved(split)
    for kind, prompts in itertools.product(simulated.KINDS, (10, 20, 50, 100)):
        yield {"kind": kind, "prompts": prompts} | stated(kind, prompts, draws)


if __name__ == "__main__":
    simulated.run(cells)
