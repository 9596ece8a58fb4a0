"""How often 95% intervals cover: the tables of docs/errors.md, and some of their cells.

    PYTHONPATH=tests python tests/library/test_interval_coverage.py > coverage.jsonl

measures every cell, which takes hours, and writes one line of JSON for each.
"""

import copy
import dataclasses
import functools
import itertools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import assert_close
from rates import covered, is_nominal
from scipy import stats
from scipy.spatial.distance import pdist, squareform

import condvendi_jax as cv
from condvendi_jax.entropies import Entropy
from condvendi_jax.inference import _compare as compare
from condvendi_jax.inference import _infinitesimal as infinitesimal
from condvendi_jax.inference import _jackknife as jackknife
from condvendi_jax.inference import _population as populations
from condvendi_jax.inference._jackknife import Groups
from condvendi_jax.pairs import Pairs
from condvendi_jax.spectra import AUTO
from condvendi_jax.spectra._methods import Leaving
from condvendi_jax.spectra._order_two import Answers
from condvendi_jax.testing import FiniteSupport
from experiments.data import load

EACH = 8  # Outputs of a prompt, where rows depend on each other.
SCORES = ("vendi", "conditional", "information")


@dataclasses.dataclass(frozen=True)
class Population:
    """k values of an output and a prompt, with the prompt's number."""

    values: FiniteSupport
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
        return Pairs(self.values.outputs, self.values.prompts, **self.kernels)


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


_EVERY = (unequal, modes, equal, emoji, gallery)
POPULATIONS = {of.__name__: of for of in _EVERY}


def draw(population: Population, rng: Any, n: int, dependent: bool) -> tuple[Any, Any]:
    """The number of the value of each row, and its label.

    Rows are independent, or `EACH` outputs of each of n / EACH prompts that are drawn.
    """
    count = n // EACH if dependent else n
    labels = np.repeat(np.arange(count), n // count)
    weights = np.asarray(population.values.weights, np.float64)
    if not dependent:
        return rng.choice(len(weights), n, p=weights / weights.sum()), labels
    of_kinds = np.bincount(population.kinds, weights)
    chosen = rng.choice(len(of_kinds), count, p=of_kinds / of_kinds.sum())
    rows = np.zeros(n, int)
    for kind in np.unique(chosen):
        own = np.flatnonzero(population.kinds == kind)
        of = np.flatnonzero((chosen == kind)[labels])
        rows[of] = rng.choice(own, of.size, p=weights[own] / weights[own].sum())
    return rows, labels


def scored(population: Population, drawn: Any, entropy: Entropy, *, merge: bool = True) -> Any:
    """The scores of a draw with errors, as `evaluate` gives them.

    Equal rows are merged, unless groups have to leave: their influences are the same.
    """
    rows, labels = drawn
    n = len(labels)
    if not merge:
        options: Any = {"orders": [entropy.order], "truncation": entropy.truncation}
        options |= {"groups": labels, **population.kernels}
        return cv.evaluate(*_rows(population, rows), **options).orders[0]
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
    return [np.asarray(of)[rows] for of in (population.values.outputs, population.values.prompts)]


def measure(
    population: Population, n: int, dependent: bool, entropy: Entropy, draws: int, seed: int = 0
) -> dict[str, dict[str, Any]]:
    """By score: the coverage of the mean score at this n, and what else there is to say of it."""
    rng = np.random.default_rng([seed, n, dependent])
    every = [scored(population, draw(population, rng, n, dependent), entropy) for _ in range(draws)]
    freedom = np.array([of.errors_by.groups - 1 for of in every])
    found = {}
    for name in SCORES:
        values = np.array([float(getattr(of.decomposition, name)) for of in every])
        errors = np.array([float(getattr(of.standard_errors, name)) for of in every])
        # Where rounding alone makes values differ, it is not what an interval covers.
        errors = np.maximum(errors, 1e-5 * values)
        found[name] = {
            "coverage": covered(values, errors, values.mean(), freedom),
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
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n", "dependent", "entropy"), CELLS)
def test_intervals_cover_the_mean_score_at_their_nominal_rate(name, n, dependent, entropy):
    """Of 200 draws; a right method fails with probability 1e-3 per score."""
    for of in measure(POPULATIONS[name](), n, dependent, entropy, 200).values():
        assert is_nominal(of["coverage"], 200, 0.95), of
        assert 0.85 < of["error / deviation"] < 1.2
        assert of["by"] == ["influences"]


# Order 2 of a population of prompts

EXACT = cv.Indicator()
VALUES = 40  # Of an answer.


@functools.cache
def prompts_of(name: str) -> np.ndarray:
    """The probabilities of the answers to equally likely prompts, `[prompts, VALUES]`.

    A mild one has six answers; of a heavy one, one answer has a log-normal share of the pairs;
    of bimodal ones, a tenth has one answer and the others have twenty.
    """
    rng = np.random.default_rng(7)
    if name == "heavy":
        of_pairs = np.exp(np.log(0.05) + stats.norm.ppf((np.arange(400) + 0.5) / 400))
        most = np.sqrt(np.minimum(of_pairs, 0.95))
        found = np.repeat((1 - most)[:, None] / (VALUES - 1), VALUES, axis=1)
        found[np.arange(400), rng.integers(VALUES, size=400)] = most
        return found
    found, size = np.zeros((400, VALUES)), 6 if name == "mild" else 20
    for prompt, own in enumerate(found):
        several = 1 if name == "bimodal" and prompt < 40 else size
        own[rng.choice(VALUES, several, replace=False)] = rng.dirichlet(np.ones(several))
    return found


def true_scores(probabilities: np.ndarray, own: float) -> np.ndarray:
    """Of any number of answers, at this share of the pairs of a prompt with itself."""
    within = np.mean(np.sum(probabilities**2, axis=1))
    similar = own * within + (1 - own) * np.sum(probabilities.mean(axis=0) ** 2)
    return np.array([1 / similar, 1 / within, within / similar])


def answers(rng: Any, probabilities: np.ndarray, k: Any, prompts: Any) -> np.ndarray:
    """How many of k answers to each of some prompts have each value; prompts may be a number."""
    if isinstance(prompts, int):
        prompts = rng.integers(len(probabilities), size=prompts)
    return rng.multinomial(k, probabilities[prompts])


def of_answers(counts: np.ndarray) -> Any:
    """From numbers of answers `[prompts, VALUES]`, without arrays of rows."""
    prompt, value = np.nonzero(counts)
    copies, k = counts[prompt, value], counts.sum(axis=1)[prompt]
    points: Any = (1.0 * value, 1.0 * prompt)
    points = Pairs.trusted(points, (), n=copies.size, weights=copies / copies.sum())
    points.copies = copies
    sums = (np.stack([counts.sum(axis=0)[value], k, copies]) - copies) / copies.sum()
    inside = (np.stack([copies, k, copies]) - copies) / copies.sum()
    of = Answers(points, np.arange(copies.size), copies, prompt, (), 0)
    return populations.of_each(
        of,
        Groups(prompt, "rows of one prompt"),
        sums[None],
        inside[None],
        lambda of: np.where(of.weights > 0, inside[:, of.rows], 0)[None],
    )[0]


def of_rows(counts: np.ndarray, squares: np.ndarray) -> Any:
    """Of independent rows, from numbers of each value and squared kernels `[3, values, values]`."""
    rows = np.flatnonzero(counts)
    copies, own = counts[rows], squares[:, rows][:, :, rows]
    points: Any = (1.0 * rows, 1.0 * rows)
    points = Pairs.trusted(points, (), n=rows.size, weights=copies / copies.sum())
    points.copies = copies
    of = Answers(points, np.arange(rows.size), copies, None, (), 0)
    units, sums = Groups(np.arange(rows.size), "rows"), (own @ copies - copies) / copies.sum()
    return populations.of_each(
        of, units, sums[None], None, lambda of: np.zeros((1, 3, *of.weights.shape))
    )[0]


def arrays(counts: np.ndarray, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The rows: outputs, and prompts whose numbers start at `first`."""
    prompt, value = np.nonzero(counts)
    rows = np.repeat(np.stack([value, prompt + first]), counts[prompt, value], axis=1)
    return rows[0, :, None].astype(np.float32), rows[1, :, None].astype(np.float32)


def p_values(one: np.ndarray, two: np.ndarray, *, paired: bool) -> list[float]:
    """As `compare` gives them, of `answers` of two models."""
    own = 1 / min(len(one), len(two))
    both, found = [of_answers(counts).at(own, 0.0) for counts in (one, two)], []
    for score, inverted in zip(SCORES, populations.INVERTED, strict=True):
        values, at, influences = (
            {k: getattr(getattr(of, name), score) for k, of in zip("ab", both, strict=True)}
            for name in ("values", "similarities", "influences")
        )
        options: Any = {"at": at if inverted else None, "paired": paired}
        options["freedom"] = min(len(one), len(two)) - 1
        (of,) = compare._differences(values, influences, {}, **options)
        found.append(of.p_value)
    return found


def coverage(name: str, count: int, k: int, unequal: bool, draws: int) -> np.ndarray:
    """How often the intervals of the three scores hold those of the population."""
    rng, held = np.random.default_rng([count, k, unequal]), np.zeros(3)
    for _ in range(draws):
        numbers = rng.integers(2, 2 * k + 1, count) if unequal else k
        found = of_answers(answers(rng, prompts_of(name), numbers, count))
        (low, high), truth = np.transpose(found.intervals), true_scores(prompts_of(name), found.own)
        held += (low <= truth) & (truth <= high)
    return held / draws


def coverage_of_rows(population: Population, n: int, draws: int) -> np.ndarray:
    """The same of independent rows."""
    rng, held, values = np.random.default_rng(n), np.zeros(3), population.values
    each = zip((values.outputs, values.prompts), population.widths, strict=True)
    x, t = (squareform(pdist(np.asarray(of, float) / width, "sqeuclidean")) for of, width in each)
    squares, weights = np.exp(-np.stack([x, t, x + t])), np.asarray(values.weights, float)
    weights /= weights.sum()
    of_x, of_t, of_both = weights @ squares @ weights
    truth = np.array([1 / of_x, of_t / of_both, of_both / of_x / of_t])
    for _ in range(draws):
        low, high = np.transpose(of_rows(rng.multinomial(n, weights), squares).intervals)
        held += (low <= truth) & (truth <= high)
    return held / draws


NAMES = ("mild", "heavy", "bimodal")


@pytest.mark.slow
@pytest.mark.parametrize("other", [False, True])
def test_samples_without_rows_have_the_numbers_of_evaluate_and_compare(other):
    rng = np.random.default_rng(0)
    chosen = [rng.integers(400, size=12) for _ in range(2)]
    one, two = (
        answers(rng, prompts_of("heavy"), k, chosen[other * i]) for i, k in enumerate((9, 6))
    )
    (outputs, prompts), (outputs_two, prompts_two) = arrays(one), arrays(two, 50 * other)
    kernels: Any = {"output_kernel": EXACT, "prompt_kernel": EXACT, "orders": [2]}
    of_prompts, found = {"a": prompts, "b": prompts_two}, of_answers(one)
    of_both = cv.compare({"a": outputs, "b": outputs_two}, of_prompts, profile=False, **kernels)
    expected: Any = cv.evaluate(outputs, prompts, **kernels).order(2).population
    np.testing.assert_allclose(found.intervals, expected.intervals, rtol=1e-5)
    apart = [of_both.ranking(name, 2).difference("a", "b").p_value for name in SCORES]
    np.testing.assert_allclose(p_values(one, two, paired=not other), apart, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("count", "k"), [(20, 10), (50, 5), (200, 2)])
@pytest.mark.parametrize("unequal", [False, True])
def test_intervals_hold_the_score_of_the_population_of_prompts(name, count, k, unequal):
    held = coverage(name, count, k, unequal, 400)
    assert 0.91 < held[1] < 0.998  # 93 to 98.7% of 1,000.
    assert held.min() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 200, 1000, 4000])
def test_intervals_hold_the_score_of_the_population_of_rows(n):
    assert 0.92 < coverage_of_rows(unequal(), n, 400).min() < 0.985


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("design", [(40, 10, True), (20, 20, False), (40, 9, True), (40, 5, True)])
def test_models_of_one_distribution_differ_at_most_at_the_level(name, design):
    """40 prompts with 10 answers each, beside the same or other prompts."""
    count, k, paired = design
    rng, found = np.random.default_rng(11), []
    for _ in range(400):
        chosen = rng.integers(400, size=40)
        others = chosen if paired else rng.integers(400, size=count)
        both = (answers(rng, prompts_of(name), *of) for of in ((10, chosen), (k, others)))
        found.append(p_values(*both, paired=paired))
    false = np.mean(np.array(found) < 0.05, axis=0)
    assert 0.015 < false[1] < 0.09
    assert false.max() < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [4, 10])
def test_errors_of_fixed_prompts_are_the_deviation_over_other_answers(name, k):
    """Deletions alone would be up to 1.8 times too large at 4 answers."""
    rng = np.random.default_rng(3)
    chosen, values, errors = rng.integers(400, size=40), [], []
    for draw_number in range(600):
        counts = answers(rng, prompts_of(name), k, chosen)
        values.append(of_answers(counts).similarities.conditional)
        if draw_number < 60:
            pairs = Pairs(*arrays(counts), output_kernel=EXACT, prompt_kernel=EXACT)
            found: Any = populations.of_pairs(
                pairs, Groups(pairs.prompt_kinds[1], "rows of one prompt")
            )
            errors.append(found.fixed_errors.conditional * found.similarities.conditional**2)
    assert 0.85 < np.sqrt(np.mean(np.square(errors))) / np.std(values) < 1.17


def main() -> None:
    """Prints all cells: those of a population of prompts, then those of the mean score."""
    for name, count, k in itertools.product(NAMES, (20, 50, 200), (2, 5, 10, 50)):
        held = [coverage(name, count, k, unequal, 1000).tolist() for unequal in (False, True)]
        print(json.dumps({"of": name, "prompts": count, "answers": k, "held": held}), flush=True)
    for name, n, dependent in itertools.product(POPULATIONS, (200, 1000, 4000), (0, 1)):
        population = POPULATIONS[name]()
        cell = {"population": name, "n": n, "dependent": bool(dependent)}
        for entropy in (
            Entropy(),
            *(Entropy(order, population.truncation) for order in (1.0, 2.0)),
        ):
            draws = 1000 if name in ("unequal", "modes", "equal") and n > 200 else 400
            cell |= {"order": entropy.order, "truncation": entropy.truncation}
            for score, of in measure(population, n, bool(dependent), entropy, draws).items():
                print(json.dumps(cell | {"score": score} | of), flush=True)


if __name__ == "__main__":
    main()
