"""How often 95% intervals cover the mean score: the table of docs/errors.md, and some of its cells.

    PYTHONPATH=tests python tests/library/test_interval_coverage.py > coverage.jsonl

measures every cell of that table, which takes hours, and writes one line of JSON for each score.
"""

import copy
import dataclasses
import functools
import itertools
import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import assert_close
from rates import covered, is_nominal

import condvendi_jax as cv
from condvendi_jax.entropies import Entropy
from condvendi_jax.inference import _infinitesimal as infinitesimal
from condvendi_jax.inference import _jackknife as jackknife
from condvendi_jax.inference._jackknife import Groups
from condvendi_jax.pairs import Pairs
from condvendi_jax.spectra import AUTO
from condvendi_jax.spectra._methods import Leaving
from condvendi_jax.testing import FiniteSupport, GaussianMixture
from experiments.data import load

EACH = 8  # Outputs of a prompt, where rows depend on each other.
SCORES = ("vendi", "conditional", "information")


@dataclasses.dataclass(frozen=True)
class Population:
    """k values of an output and a prompt, with the prompt's number; or None for the mixture."""

    values: FiniteSupport | None
    kinds: np.ndarray
    widths: tuple[float, float]
    truncation: int

    @property
    def kernels(self) -> dict[str, Any]:
        of_outputs, of_prompts = map(cv.Gaussian, self.widths)
        return {"output_kernel": of_outputs, "prompt_kernel": of_prompts}

    @functools.cached_property
    def pairs(self) -> Pairs:
        """One of each value."""
        values: Any = self.values
        return Pairs(values.outputs, values.prompts, **self.kernels)


def unequal() -> Population:
    """60 outputs that overlap, 5 near each of 12 prompts, of unequal weights."""
    rng = np.random.default_rng(5)
    prompts, kinds = 2 * rng.normal(size=(12, 2)), np.repeat(np.arange(12), 5)
    outputs = 0.6 * prompts[kinds] + 1.2 * rng.normal(size=(60, 2))
    weights = np.repeat(rng.dirichlet(np.full(12, 3.0)), 5)
    weights *= np.concatenate([rng.dirichlet(np.full(5, 1.5)) for _ in range(12)])
    return Population(FiniteSupport(outputs, prompts[kinds], weights), kinds, (0.8, 0.8), 5)


def equal() -> Population:
    """4 outputs and 4 prompts, far apart and independent, all 16 pairs of one weight."""
    outputs, kinds = np.repeat(np.arange(4), 4), np.tile(np.arange(4), 4)
    return Population(FiniteSupport(outputs[:, None], kinds[:, None]), kinds, (0.1, 0.1), 8)


def modes() -> Population:
    """15 outputs far apart, of unequal weights, and 3 prompts far apart, each with 5 outputs."""
    weights = np.array([0.25, 0.2, 0.15, 0.12, 0.1, *[0.018] * 10])
    outputs, kinds = 1.0 * np.arange(15), np.arange(15) % 3
    values = FiniteSupport(outputs[:, None], 1.0 * kinds[:, None], weights)
    return Population(values, kinds, (0.1, 0.1), 5)


_CENTRES = np.random.default_rng(9).normal(size=(4, 4, 2)) * 2  # A prompt and its 3 outputs.
_OF_MODES = np.outer([0.4, 0.3, 0.2, 0.1], [0.5, 0.3, 0.2])
_SPREAD = 0.35


def mixture() -> Population:
    """4 modes of prompts, 3 modes of outputs for each."""
    return Population(None, np.zeros(0, int), (1.0, 1.0), 10)


def narrow() -> Population:
    """The mixture at bandwidths of which half of 200 outputs count as different."""
    return dataclasses.replace(mixture(), widths=(0.2, 0.3))


def emoji() -> Population:
    """The drawings of activities by four designers, under the names of the emoji."""
    pairs = load("emoji")
    designers = np.isin(pairs.labels["models"], ["Fluent", "Noto", "OpenMoji", "Twemoji"])
    return _shipped(pairs.rows(designers & (pairs.labels["types"] == "activities")))


def gallery() -> Population:
    """Nine pictures by latent diffusion for each of 41 prompts."""
    pairs = load("gallery")
    return _shipped(pairs.rows(pairs.labels["models"] == "latent diffusion"))


def _shipped(pairs: Any) -> Population:
    values, key = FiniteSupport(pairs.outputs, pairs.prompts), jax.random.key(0)
    _, kinds = np.unique(pairs.labels["prompt"], return_inverse=True)
    of_outputs = cv.bandwidth.median_heuristic(pairs.outputs, key=key)
    of_prompts = cv.bandwidth.median_heuristic(pairs.prompts, key=key)
    return Population(values, kinds, (of_outputs, of_prompts), 20)


_EVERY = (unequal, modes, equal, mixture, narrow, emoji, gallery)
POPULATIONS = {of.__name__: of for of in _EVERY}


def draw(population: Population, rng: Any, n: int, dependent: bool) -> tuple[Any, Any, Any]:
    """Outputs and prompts, or in their place the values' numbers, and the label of each row.

    Rows are independent, or `EACH` outputs of each of n / EACH prompts that are drawn.
    """
    count = n // EACH if dependent else n
    labels = np.repeat(np.arange(count), n // count)
    if population.values is None:
        mode = rng.choice(4, count, p=_OF_MODES.sum(axis=1))
        prompts = (_CENTRES[mode, 0] + _SPREAD * rng.normal(size=(count, 2)))[labels]
        of_mode = 1 + rng.choice(3, n, p=_OF_MODES[0] / _OF_MODES[0].sum())
        outputs = _CENTRES[mode[labels], of_mode] + _SPREAD * rng.normal(size=(n, 2))
        return outputs.astype(np.float32), prompts.astype(np.float32), labels
    weights = np.asarray(population.values.weights, np.float64)
    if not dependent:
        return rng.choice(len(weights), n, p=weights / weights.sum()), None, labels
    of_kinds = np.bincount(population.kinds, weights)
    chosen = rng.choice(len(of_kinds), count, p=of_kinds / of_kinds.sum())
    rows = np.zeros(n, int)
    for kind in np.unique(chosen):
        own = np.flatnonzero(population.kinds == kind)
        of = np.flatnonzero((chosen == kind)[labels])
        rows[of] = rng.choice(own, of.size, p=weights[own] / weights[own].sum())
    return rows, None, labels


def scored(population: Population, drawn: Any, entropy: Entropy, *, merge: bool = True) -> Any:
    """The scores of a draw with errors, as `evaluate` gives them.

    Equal rows are merged, unless groups have to leave: their influences are the same.
    """
    rows, prompts, labels = drawn
    n, values = len(labels), population.values
    if values is None or not merge:
        arrays = (rows, prompts) if values is None else _rows(population, rows)
        options: Any = {"orders": [entropy.order], "truncation": entropy.truncation}
        return cv.evaluate(*arrays, **population.kernels, **options, groups=labels).orders[0]
    pairs = copy.copy(population.pairs)
    pairs._weigh(np.bincount(rows, minlength=pairs.n))
    units = Groups(labels, "rows" if labels[-1] == n - 1 else "given labels")
    if units.units == "rows":
        left = infinitesimal.leaving(pairs, Groups(np.arange(pairs.n), "rows"))
    else:
        each = n // EACH
        left = [Leaving(np.arange(each), rows.reshape(-1, EACH), np.full((each, EACH), 1 / n))]
    found = infinitesimal.influences(pairs, entropy, AUTO, left)
    alone = Pairs.trusted(pairs.arrays, pairs.kernels, n=n)  # Of its rows the number counts.
    reason = infinitesimal.doubt(alone, found, units)
    if reason is not None:
        alone = Pairs(*_rows(population, rows), **population.kernels)
        options = {"method": AUTO, "moved": (), "progress": lambda: None, "reason": reason}
        return jackknife.score(alone, entropy, units, **options)
    changes: Any = {"of_rows": found.of_rows}
    if found.of_deletions is not None and units.units == "rows":
        changes["of_deletions"] = found.of_deletions
    found = found._replace(
        **{name: type(of)(*(row[:, rows] for row in of)) for name, of in changes.items()}
    )
    return infinitesimal.score(alone, entropy, found, units)


def _rows(population: Population, rows: np.ndarray) -> list[Any]:
    values: Any = population.values
    return [np.asarray(of)[rows] for of in (values.outputs, values.prompts)]


def known(population: Population) -> np.ndarray:
    """The population's scores of order 2, `[3]`; NaN where there is no formula."""
    if population.values is not None:
        return np.array(population.values.scores(**population.kernels, order=2), np.float64)
    means = np.array([[*c[0 + k], *c[0]] for c in _CENTRES for k in (1, 2, 3)])
    of = GaussianMixture(means, np.full(12, _SPREAD**2), _OF_MODES.ravel(), d_x=2)
    output_kernel, prompt_kernel = population.kernels.values()
    vendi = float(of.rke(kernel=output_kernel))
    conditional = float(of.conditional_rke(**population.kernels))
    return np.array([vendi, conditional, vendi / conditional])


def measure(
    population: Population, n: int, dependent: bool, entropy: Entropy, draws: int, seed: int = 0
) -> dict[str, dict[str, Any]]:
    """By score: the coverage of the mean score at this n, and what else there is to say of it."""
    rng = np.random.default_rng([seed, n, dependent])
    every = [scored(population, draw(population, rng, n, dependent), entropy) for _ in range(draws)]
    freedom = np.array([of.errors_by.groups - 1 for of in every])
    of_population = known(population) if entropy == cv.renyi(2) else np.full(3, np.nan)
    found = {}
    for name, truth in zip(SCORES, of_population, strict=True):
        values = np.array([float(getattr(of.decomposition, name)) for of in every])
        errors = np.array([float(getattr(of.standard_errors, name)) for of in every])
        # Where rounding alone makes values differ, it is not what an interval covers.
        errors = np.maximum(errors, 1e-5 * values)
        found[name] = {
            "coverage": covered(values, errors, values.mean(), freedom),
            "of population": covered(values, errors, truth, freedom) if truth > 0 else None,
            "mean": values.mean(),
            "deviation": values.std(),
            "error / deviation": np.sqrt(np.mean(errors**2)) / max(values.std(), 1e-9),
            "by": sorted({of.errors_by.method for of in every}),
        }
    return found


@pytest.mark.slow
@pytest.mark.parametrize("dependent", [False, True])
@pytest.mark.parametrize("entropy", [Entropy(), Entropy(order=2), Entropy(truncation=5)])
@pytest.mark.parametrize("n", [200, 400])
def test_merged_rows_have_the_errors_of_the_rows(n, entropy, dependent):
    population = unequal()
    drawn = draw(population, np.random.default_rng(0), n, dependent)
    merged, alone = (scored(population, drawn, entropy, merge=merge) for merge in (True, False))
    assert merged.errors_by == alone.errors_by
    assert_close(jnp.array(merged.standard_errors), np.array(alone.standard_errors), loosened=50)


CELLS = [
    ("unequal", 200, False, Entropy()),
    ("unequal", 200, False, Entropy(order=2, truncation=5)),
    ("unequal", 1000, True, Entropy()),
    ("unequal", 200, True, Entropy(order=2)),
    ("mixture", 200, False, Entropy(order=2)),
    ("gallery", 1000, True, Entropy(order=2)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n", "dependent", "entropy"), CELLS)
def test_intervals_cover_the_mean_score_at_their_nominal_rate(name, n, dependent, entropy):
    """Of 200 draws; a right method fails with probability 1e-3 per score."""
    for of in measure(POPULATIONS[name](), n, dependent, entropy, 200).values():
        assert is_nominal(of["coverage"], 200, 0.95), of
        assert 0.85 < of["error / deviation"] < 1.2
        assert of["by"] == ["influences"]


def main(names: list[str]) -> None:
    """Prints the cells of some populations, or of all."""
    for name, n, dependent in itertools.product(names or POPULATIONS, (200, 1000, 4000), (0, 1)):
        population = POPULATIONS[name]()
        for order, truncation in itertools.product((1, 2), (None, population.truncation)):
            spectral = (order, truncation) != (2, None)
            if population.values is None and spectral and n == 4000:
                continue  # 20 seconds a draw.
            cell = {"population": name, "n": n, "dependent": bool(dependent), "order": order}
            slow = name not in ("unequal", "modes", "equal") or (dependent and n == 200)
            draws = 400 if spectral and slow else 1000
            entropy = Entropy(order=order, truncation=truncation)
            for score, of in measure(population, n, bool(dependent), entropy, draws).items():
                print(
                    json.dumps(cell | {"truncation": truncation, "score": score} | of), flush=True
                )


if __name__ == "__main__":
    main(sys.argv[1:])
