"""The study of what models have in common, against sums over pairs of answers and known models."""

import itertools

import numpy as np
import pytest
import studies
from scipy import stats
from small import flags, write, write_answers

from experiments import data
from experiments.language_models import judged
from experiments.language_models.hivemind import Hivemind

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Five models of three families and two vendors."""
    numbers = {"gemma-2-2b": 2, "gemma-2-9b": 2, "gemini-x": 4, "gpt-4o": 4, "gpt-4o-mini": 1}
    files = write_answers(folder, seed, numbers)
    files = [file for file in files if not file.startswith(("--classes", "--rewards", "--words"))]
    models = (folder / "models.txt").read_text().split()
    vendors = ["OpenAI" if name.startswith("gpt") else "Google" for name in models]
    more = flags(bandwidth=1, scales="1,2", resamples=20)
    return [*files, *write(folder, vendors=np.array(vendors)), *more]


MODELS = ("gemma-2-a", "gemma-2-b", "gemini-c", "claude-3-d")
VENDORS = ("Google", "Google", "Google", "Anthropic")


SMALL = Hivemind(widths=judged.Widths(bandwidth=1.0, scales=(1.0,)), resamples=20)


def pairs_of(outputs, **labels):
    """Pairs of outputs `[m, prompts, n, d]`; further labels are by model."""
    m, prompts, n, d = outputs.shape
    prompt = np.tile(np.repeat(np.arange(prompts), n), m)
    of_models = {"models": MODELS[:m], **labels}
    return data.PairedEmbeddings(
        "", outputs.reshape(-1, d).astype(np.float32), prompt[:, None].astype(np.float32), "",
        {"prompt": prompt, **{k: np.repeat(v, prompts * n) for k, v in of_models.items()}},
    )  # fmt: skip


def result(outputs, seed=0, **labels):
    labels = {"vendors": VENDORS[: len(outputs)]} | labels
    return studies.computed(SMALL, pairs_of(outputs, **labels), seed)[1]


@pytest.fixture(scope="module")
def outputs():
    generator = np.random.default_rng(0)
    places = 0.8 * generator.normal(size=(4, 1, 1, 3)) + generator.normal(size=(1, 6, 1, 3))
    return places + 0.5 * generator.normal(size=(4, 6, 5, 3))


@pytest.fixture(scope="module")
def found(outputs):
    return result(outputs)


def same(outputs, a, b, prompts=slice(None)):
    """The mean squared kernel of an answer of `a` and another one of `b`."""
    one, two = (outputs[m, prompts].astype(np.float32).astype(float) for m in (a, b))
    squares = np.exp(-np.sum((one[:, :, None] - two[:, None]) ** 2, axis=-1))
    return squares[:, ~np.eye(squares.shape[1], dtype=bool) | (a != b)].mean()


def counts(outputs, prompts=slice(None)):
    """Different models, answers of one and of all, out of mean squared kernels."""
    m = range(len(outputs))
    one = np.mean([same(outputs, a, a, prompts) for a in m])
    every = np.mean([same(outputs, a, b, prompts) for a in m for b in m])
    return np.array([one / every, 1 / one, 1 / every])


def test_counts_and_overlaps_are_sums_over_different_answers(outputs, found):
    expected = counts(outputs)
    np.testing.assert_allclose(found.counts.sel(set="all"), expected, rtol=1e-5)
    left = [counts(np.delete(outputs, p, 1)) for p in range(6)]
    error = np.sqrt(5 * np.var(left, axis=0))
    np.testing.assert_allclose(found.counts_error.sel(set="all"), error, rtol=0.02)
    own = [same(outputs, m, m) for m in range(4)]
    overlap = np.array(
        [[2 * same(outputs, a, b) / (own[a] + own[b]) for b in range(4)] for a in range(4)]
    )
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(found.overlap.values[off], overlap[off], rtol=1e-5)
    beside = 0.2 + 0.8 * np.mean(own)  # With an answer beside itself, one of five.
    of_all = 1 / expected[2] + (beside - np.mean(own)) / 4
    plain = [beside / of_all, 1 / beside, 1 / of_all]
    np.testing.assert_allclose(found.plug_in.sel(set="all"), plain, rtol=1e-5)
    google = (overlap[0, 2] + overlap[1, 2]) / 2
    other = overlap[:3, 3].mean()
    np.testing.assert_allclose(found.of_kind, [overlap[0, 1], google, other], rtol=1e-5)
    assert found.family_effect.item() == pytest.approx(overlap[0, 1] - other, rel=1e-5)
    inside = np.mean([overlap[0, 1], overlap[0, 2], overlap[1, 2]])
    expected = [[np.nan, other], [other, inside]]
    np.testing.assert_allclose(found.of_vendors, expected, rtol=1e-5)


def test_each_prompt_has_its_own_numbers_with_errors_over_answers(outputs, found):
    for p in range(6):
        of, only = found.isel(prompt=p), slice(p, p + 1)
        models, answers, _ = counts(outputs, only).tolist()
        assert of.different_models.item() == pytest.approx(models, rel=1e-5)
        assert of.different_answers.item() == pytest.approx(answers, rel=1e-5)
        shared = np.mean([same(outputs, *of, only) for of in itertools.combinations(range(4), 2)])
        assert of.shared_answers.item() == pytest.approx(shared, rel=1e-5)
        left = [counts(np.delete(outputs, k, 2), only) for k in range(5)]
        expected = np.sqrt(4 * np.var(left, axis=0))[0].item()
        assert of.different_models_error.item() == pytest.approx(expected, rel=1e-5)
    expected = stats.spearmanr(found.different_models, found.different_answers)[0]
    value, low, high = found.correlation.sel(agreement="different models").values
    assert value == pytest.approx(expected) and low <= value <= high


def classes(generator, prompts, sets, n=10):
    """Models that draw answers from sets of classes, which lie far apart, `[m, prompts, n, 4]`."""
    return np.stack([10 * np.eye(4)[generator.choice(of, size=(prompts, n))] for of in sets])


def test_models_of_known_overlap_are_counted_without_bias():
    outputs = classes(np.random.default_rng(3), 200, ([0, 1], [0, 1], [1, 2]))
    found = result(outputs)
    for (a, b), expected in {(0, 1): 1, (0, 2): 0.5, (1, 2): 0.5}.items():
        gap = abs(found.overlap.values[a, b] - expected)
        assert gap < 4 * found.overlap_error.values[a, b] < 0.1
    # Of the pairs of one model 0.5 are the same; of those of two 0.5, 0.25 and 0.25.
    different = found.sel(set="all", part="different models")
    assert abs(different.counts - 9 / 7) < 4 * different.counts_error


def test_the_family_effect_is_tested_by_relabelling_models():
    """Two families of two models: a third of all orders of the models keep them together."""
    outputs = classes(np.random.default_rng(4), 20, ([0, 1], [0, 1], [1, 2], [1, 2]))
    found = result(outputs, families=("one", "one", "two", "two"), vendors=("1", "1", "2", "2"))
    assert found.family_effect > 0.3
    assert found.family_p_value.item() == pytest.approx(1 / 3, abs=0.06)
