"""The mixture theorems: exact populations, counterexamples by hand, checks that bite."""

import dataclasses

import numpy as np
import pytest
from scipy import linalg

from theory_checks import mixture_populations as populations
from theory_checks import mixture_proof, mixtures
from theory_checks.claim import QUICK, Verdict, judge, registry, try_claim

CLAIMS = {
    name: entry
    for name, entry in registry().items()
    if entry.theme in ("mixtures", "mixture_proof")
}
TIGHT = [
    "cv-theorem-6-corrected-point-prompts",
    "cv-theorem-6-corrected",
    "cv-theorem-5-corrected",
    "cv-theorem-5-corrected-supports",
    "cv-theorem-7-corrected-von-neumann",
    "cv-theorem-7-corrected-point-prompts",
    "cv-eq-17-corrected",
    "cv-eq-18-corrected",
    "cv-lemma-5-sharper",
    "cv-lemma-5-a",
    "cv-g-chain-1-corrected",
]


def random_mixtures(count=3):
    rng = np.random.default_rng(5)
    return [
        populations.decode(rng.standard_normal(shape.dimension), shape)
        for shape in populations.SHAPES
        for _ in range(count)
    ]


def features_of(gram):
    values, vectors = np.linalg.eigh(gram)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def explicit(mixture):
    """C_{X,T}, C_T and the C_i as matrices, by Kronecker products (few copies only)."""
    prompts = features_of(mixture.prompt_gram)
    size = sum(len(b.prompts) * int(b.copies) for b in mixture.blocks)
    width = len(prompts)
    joint = np.zeros((size * width, size * width))
    output = np.zeros((mixture.modes, size, size))
    prompt = np.zeros((width, width))
    start = 0
    for block in mixture.blocks:
        rows = features_of(block.gram)
        for copy in range(int(block.copies)):
            for atom, weight in zip(range(len(rows)), block.weights / block.copies, strict=True):
                x = np.zeros(size)
                begin = start + copy * len(rows)
                x[begin : begin + len(rows)] = rows[atom]
                t = prompts[block.prompts[atom]]
                joint += weight * np.kron(np.outer(x, x), np.outer(t, t))
                prompt += weight * np.outer(t, t)
                i = mixture.component[block.prompts[atom]]
                output[i] += weight / mixture.weights[i] * np.outer(x, x)
        start += len(rows) * int(block.copies)
    return joint, prompt, output


def renyi(matrix, order):
    values = linalg.eigvalsh(matrix)
    values = values[values > 1e-14]
    if order == 1:
        return -np.sum(values * np.log(values))
    return np.log(np.sum(values**order)) / (1 - order)


@pytest.mark.parametrize("name", CLAIMS)
def test_verdict_stands_under_another_seed(name):
    outcome = try_claim(CLAIMS[name], seed=1)
    assert outcome.judgement.verdict is outcome.claim.expected, outcome.judgement


@pytest.mark.parametrize("order", [1, 2, 3.5])
def test_spectra_match_explicit_operators(order):
    """Kronecker products of features, at 3 copies of each flat output."""
    for mixture in random_mixtures(2):
        blocks = [dataclasses.replace(b, copies=min(b.copies, 3.0)) for b in mixture.blocks]
        mixture = dataclasses.replace(mixture, blocks=tuple(blocks))
        joint, prompt, output = explicit(mixture)
        assert mixture.joint.entropy(order) == pytest.approx(renyi(joint, order), abs=1e-9)
        assert mixture.prompts.entropy(order) == pytest.approx(renyi(prompt, order), abs=1e-9)
        entropies = np.array([renyi(c, order) for c in output])
        for part, value in zip(mixture.outputs, entropies, strict=True):
            assert part.entropy(order) == pytest.approx(value, abs=1e-9)
        if order == 1:
            aggregate = mixture.weights @ entropies
        else:
            law = mixture.weights**order / np.sum(mixture.weights**order)
            aggregate = np.log(law @ np.exp((1 - order) * entropies)) / (1 - order)
        assert mixture.aggregate(order) == pytest.approx(aggregate, abs=1e-9)


def test_component_moments():
    """Means and variances against a direct sum."""
    for mixture in random_mixtures(1):
        for i in range(mixture.modes):
            rows = mixture.component == i
            law = mixture.prompt_weights[rows] / mixture.prompt_weights[rows].sum()
            mean = law @ mixture.location[rows]
            np.testing.assert_allclose(mixture.means[i], mean, atol=1e-10)
            squares = ((mixture.location[rows] - mean) ** 2).sum(1)
            assert mixture.variances[i] == pytest.approx(law @ squares, abs=1e-9)


def test_truncation_and_distance_with_multiplicities():
    """Against plain sorted vectors."""
    rng = np.random.default_rng(0)
    for t in (1, 2, 5, 9, 30):
        copies = rng.integers(1, 5, (2, 4)).astype(float)
        spectra = []
        for row in copies:
            values = rng.exponential(size=4)
            spectra.append(populations.Spectrum(values / (row @ values), row))
        plain = [spectrum.sorted() for spectrum in spectra]
        size = max(map(len, plain)) + t
        padded = [np.pad(v, (0, size - len(v))) for v in plain]
        cut = [np.where(np.arange(size) < t, v + (1 - v[:t].sum()) / t, 0.0) for v in padded]
        for spectrum, expected in zip(spectra, cut, strict=True):
            found = spectrum.truncated(t).sorted()
            np.testing.assert_allclose(found[found > 1e-12], expected[expected > 1e-12])
        for order in (1.0, 2.0, 3.0):
            expected = linalg.norm(padded[0] - padded[1], order)
            assert populations.distance(*spectra, order) == pytest.approx(expected)


def test_lemma_5_distance_matches_explicit_operators():
    for mixture in random_mixtures(1):
        blocks = tuple(dataclasses.replace(b, copies=min(b.copies, 2.0)) for b in mixture.blocks)
        mixture = dataclasses.replace(mixture, blocks=blocks)
        everything = np.concatenate([mixture.location, mixture.means])
        features = features_of(populations.gaussian(everything))
        count = len(mixture.location)
        total, start = 0.0, 0
        size = sum(len(b.prompts) * int(b.copies) for b in mixture.blocks)
        total = np.zeros((size * len(features), size * len(features)))
        for block in mixture.blocks:
            rows = features_of(block.gram)
            for copy in range(int(block.copies)):
                for atom, p in enumerate(block.prompts):
                    x = np.zeros(size)
                    begin = start + copy * len(rows)
                    x[begin : begin + len(rows)] = rows[atom]
                    t, mu = features[p], features[count + mixture.component[p]]
                    change = np.outer(t, t) - np.outer(mu, mu)
                    total += block.weights[atom] / block.copies * np.kron(np.outer(x, x), change)
            start += len(rows) * int(block.copies)
        found = mixture_proof.squared_distance(mixture, np.eye(mixture.modes))
        assert found == pytest.approx((total**2).sum(), abs=1e-10)


def test_counterexample_of_theorem_5_by_hand():
    """Two prompts one sigma apart, p = q = 1e-3, 1e8 images: the pair averages in plain sight."""
    p, q, copies, overlap = 1e-3, 1e-3, 1e8, np.exp(-1.0)
    first = q**2 + (1 - q) ** 2 / copies
    joint = (1 - p) ** 2 * first + p**2 + 2 * p * (1 - p) * overlap * q
    prompts = (1 - p) ** 2 + p**2 + 2 * p * (1 - p) * overlap
    mass = (1 - p) ** 2 + p**2
    gap = np.log(prompts / joint) - np.log(mass / ((1 - p) ** 2 * first + p**2))
    bound = 4 * np.log(1 / (1 - 32 * p * overlap / np.sqrt(mass)))
    mixture = populations.rare_mode(p, q, 1.0, copies)
    assert mixture.gap(2.0) == pytest.approx(gap, rel=1e-9)
    assert abs(gap) > 5 * bound
    # The corrected bound is nearly attained: log(1 + e^{-1}).
    assert 0.95 < abs(gap) / np.log1p(overlap) < 1


def test_counterexample_of_theorem_6_by_hand():
    """Two prompts, two images: the gap is log of sum ((1 +- k)^a) / 2 over a - 1."""
    order, k = 150.0, 0.005
    gap = np.log(((1 + k) ** order + (1 - k) ** order) / 2) / (order - 1)
    norm = 0.5 * 2 ** (1 / order)
    bound = 2 * order / (order - 1) * np.log(1 / (1 - 16 * k**2 / norm))
    assert gap > bound
    assert mixtures.two_images(k).gap(order) == pytest.approx(gap, rel=1e-9)
    corrected = mixtures.point_prompt_bound(mixtures.two_images(k), order)
    assert corrected == pytest.approx(gap, rel=1e-9)


def test_counterexample_of_theorem_7_by_hand():
    """Joint spectrum (1/2, 1/4, 1/4), t = 2, shifted to (5/8, 3/8); against log(2) / 2."""
    conditional = -(5 / 8 * np.log(5 / 8) + 3 / 8 * np.log(3 / 8)) - np.log(2)
    gap = abs(conditional - np.log(2) / 2)
    mixture = mixtures.two_prompts_two_images()
    assert conditional < 0
    assert mixtures.truncated_gap(mixture, 2) == pytest.approx(gap, abs=1e-9)
    assert mixtures.gamma(mixture) < 1e-26


def test_counterexample_of_the_coefficient_bound():
    """Two prompts: |r_2|^2 = (1 + k^2) / (1 - k^2)."""
    k = 0.3
    rows = mixture_proof.gram_schmidt(np.array([[1.0, k], [k, 1.0]]))
    assert rows[1] @ rows[1] == pytest.approx((1 + k**2) / (1 - k**2))


@pytest.mark.parametrize("name", TIGHT)
def test_sharp_bounds_leave_no_room(name):
    """Shrinking a sharp bound by 2% makes its claim fail: the search reaches it."""
    outcome = try_claim(CLAIMS[name])
    smaller = dataclasses.replace(outcome.evidence, rhs=0.98 * outcome.evidence.rhs)
    assert judge(outcome.evidence).verdict is Verdict.HOLDS
    assert judge(smaller).verdict is Verdict.FALSE


MUTATIONS = {
    "K^order without its diagonal growth": (
        "cv-theorem-6-corrected-point-prompts",
        (mixtures, "alignment", lambda mixture, order: np.ones(mixture.modes)),
    ),
    "half the spread loss": (
        "cv-theorem-5-corrected",
        (mixtures, "spread_losses", lambda mixture: -np.expm1(-mixture.variances) / 2),
    ),
    "no overlap in the joint": (
        "cv-theorem-5-corrected",
        (mixtures, "overlap_bound", lambda mixture, alike: np.zeros_like(alike)),
    ),
    "the norm in place of its square root": (
        "cv-theorem-7-corrected",
        (mixtures, "spectral_distance_bound", lambda mixture: mixtures.gamma(mixture) / 100),
    ),
    "norm of omega in place of lambda-hat": (
        "cv-g-chain-1-corrected",
        (
            mixtures,
            "margin",
            lambda z, norm, order: order / (order - 1) * -np.log1p(-z) if z < 1 else np.nan,
        ),
    ),
    "truncated blocks in place of the stack": (
        "cv-theorem-7-corrected",
        (
            mixtures,
            "stacked_truncated",
            lambda mixture, t: (
                mixture.weights @ [part.truncated(t).entropy(1) for part in mixture.outputs]
            ),
        ),
    ),
    "prompt entropies forgotten": (
        "cv-theorem-7-corrected-von-neumann",
        (mixtures, "holevo_bounds", lambda mixture: (0.0, 0.0)),
    ),
    "constants of eq. 18 divided by 16": (
        "cv-g-chain-4-corrected",
        (mixture_proof, "four_eight", lambda mixture: mixtures.gamma(mixture) / 128),
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_wrong_formula_is_caught(mutation, monkeypatch):
    """Each corrected theorem turns false when one ingredient is wrong."""
    name, (module, attribute, wrong) = MUTATIONS[mutation]
    monkeypatch.setattr(module, attribute, wrong)
    assert try_claim(CLAIMS[name]).judgement.verdict is Verdict.FALSE


@pytest.mark.parametrize("factor", [1.0, 32.0])
def test_the_printed_constant_decides_nothing(factor, monkeypatch):
    """A larger constant in Gamma does not save Theorem 5: p -> 0 beats any."""
    printed = mixtures.gamma
    monkeypatch.setattr(mixtures, "gamma", lambda mixture: factor * printed(mixture))
    gap, bound = mixtures._printed(populations.rare_mode(1e-6, 1e-6, 1.0, 1e15), 2.0)
    assert gap > bound


def test_gamma_depends_on_the_labelling():
    """Eq. 16 weighs an overlap with the later component: relabelling changes Gamma."""
    rare_last = populations.rare_mode(1e-3, 1e-3, 1.0, 1e8)
    first, last = (
        populations.point_modes(np.array([[0.0], [1.0]]), np.array(w), np.ones((2, 1)))
        for w in ([0.001, 0.999], [0.999, 0.001])
    )
    assert mixtures.gamma(last) == pytest.approx(mixtures.gamma(rare_last))
    assert mixtures.gamma(first) == pytest.approx(999 * mixtures.gamma(last))


def test_alignment_is_the_matrix_power():
    gram = populations.gaussian(np.array([[0.0], [1.0], [2.5]]))
    mixture = populations.point_modes(
        np.array([[0.0], [1.0], [2.5]]), np.full(3, 1 / 3), np.ones((3, 1))
    )
    for order in (1.5, 2.0, 7.0):
        expected = np.diag(linalg.fractional_matrix_power(gram, order))
        np.testing.assert_allclose(mixtures.alignment(mixture, order), expected, rtol=1e-9)


def test_false_theorems_have_corrections():
    corrected = {entry.corrects for entry in CLAIMS.values()}
    false = {name for name, entry in CLAIMS.items() if entry.expected is Verdict.FALSE}
    assert {"cv-theorem-5", "cv-theorem-6", "cv-theorem-7"} <= false & corrected
    assert {"cv-eq-17", "cv-eq-18", "cv-g-chain-1", "cv-g-chain-4"} <= false & corrected


def test_figure_data_shows_the_failure():
    """The rare mode stays above the printed bound where the ordinary one is below it."""
    rng = np.random.default_rng(0)
    evidence = CLAIMS["cv-theorem-6-corrected-point-prompts"].evidence(rng, QUICK)
    data = evidence.data
    stated = np.isfinite(data["rare_printed"])
    assert (data["rare_gap"] > data["rare_printed"])[stated].any()
    stated = np.isfinite(data["ordinary_printed"])
    assert (data["ordinary_gap"] <= data["ordinary_printed"] + 1e-12)[stated].all()
    for kind in ("rare", "ordinary"):
        assert (data[f"{kind}_gap"] <= data[f"{kind}_corrected"] + 1e-10).all()
