"""Claims on the RKE paper: verdicts, counterexamples by hand, and that they can fail."""

import dataclasses
import math

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies
from hypothesis.extra import numpy as arrays
from scipy import integrate, linalg

from theory_checks import rke
from theory_checks.claim import Verdict, judge, registry, try_claim

CLAIMS = {name: entry for name, entry in registry().items() if entry.theme == "rke"}


def verdict(name: str) -> Verdict:
    return try_claim(CLAIMS[name]).judgement.verdict


@pytest.mark.parametrize("name", CLAIMS)
def test_verdict_stands_under_another_seed(name):
    """The registry's own test runs seed 0."""
    outcome = try_claim(CLAIMS[name], seed=1)
    assert outcome.judgement.verdict is outcome.claim.expected, outcome.judgement


def test_coverage():
    sources = {entry.source for entry in CLAIMS.values()}
    wanted = {f"RKE Theorem {number}" for number in range(1, 8)}
    wanted |= {"RKE Proposition 1", "RKE Corollary 1", "RKE Corollary 2"}
    assert wanted <= sources


def test_false_claims_are_corrected():
    corrected = {entry.corrects for entry in CLAIMS.values()}
    false = {name for name, entry in CLAIMS.items() if entry.expected is Verdict.FALSE}
    # Corollary 1 fails twice: against the truth and against Theorem 1 as printed.
    assert false - corrected == {"rke-corollary-1-follows"}


def test_counterexample_of_theorem_1():
    """Two modes at 0 and 1 of variance 1, sigma = 1: the exponent is 1/5, printed as 1/2."""
    example = try_claim(CLAIMS["rke-theorem-1"]).judgement.counterexample
    left, right = example["lhs"], example["rhs"]
    width = 5**-0.5
    assert right == pytest.approx(-math.log(width * (1 + math.exp(-1 / 5)) / 2), rel=1e-10)
    assert left == pytest.approx(-math.log(width * (1 + math.exp(-1 / 2)) / 2), rel=1e-10)

    # X - Y is 0 on average or +-1 and of variance 2: by quadrature of its density.
    def density(z, m):
        return math.exp(-((z - m) ** 2) / 4) / math.sqrt(4 * math.pi)

    means = [
        integrate.quad(lambda z, m=m: math.exp(-(z**2)) * density(z, m), -20, 20)[0] for m in (0, 1)
    ]
    assert right == pytest.approx(-math.log(sum(means) / 2), rel=1e-9)


def test_counterexample_of_corollary_1():
    """The same mixture: a = 5 multiplies where it must divide."""
    example = try_claim(CLAIMS["rke-corollary-1"]).judgement.counterexample
    assert example["lhs"] == pytest.approx(-math.log(5**-0.5 * (1 + math.exp(-5)) / 2), rel=1e-10)


def test_counterexample_of_theorem_4():
    """Two coinciding modes of weight 1/2 on both sides: X = Y, and the sum is 4 / 2."""
    half, zero = np.full(2, 0.5), np.zeros((2, 1))
    assert rke.root_fidelity((zero, half), (zero, half)) == pytest.approx(1.0)
    example = try_claim(CLAIMS["rke-theorem-4"]).judgement.counterexample
    assert example["lhs"] == pytest.approx(1.0)
    # Without coincidence: X at one of Y's two modes. Fidelity^2 = 1/2, the sum is sqrt(1/2).
    far = np.array([[0.0], [50.0]])
    value = rke.root_fidelity((far[:1], np.ones(1)), (far, half)) ** 2
    assert value == pytest.approx(0.5)


def test_counterexample_of_the_mode_count():
    example = try_claim(CLAIMS["rke-mode-count"]).judgement.counterexample
    assert example["lhs"] == pytest.approx(1 / (0.81 + 0.01))
    # The note: one Gaussian of width sigma/4 in 64 dimensions counts as 1262.
    assert (1 + 4 / 16) ** 32 == pytest.approx(1262, abs=1)


def test_counterexample_of_the_abstract():
    """N(0, 1): order-2 entropy log(4 pi)/2 = 1.266, Shannon's log(2 pi e)/2 = 1.419."""
    shifted = rke._entropy_gap("normal", 1e-6) - math.log(rke.DENSITIES["normal"][2])
    assert shifted == pytest.approx(0.5 * math.log(4 * math.pi), abs=1e-6)
    assert shifted < 0.5 * math.log(2 * math.pi * math.e) - 0.15


@pytest.mark.parametrize("name", [name for name in rke.DENSITIES if rke.DENSITIES[name][0] == 1])
def test_energies_by_quadrature(name):
    """Closed forms against the double integral in one dimension."""
    densities = {
        "normal": (lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi), -9, 9),
        "Laplace": (lambda x: math.exp(-abs(x)) / 2, -25, 25),
        "exponential": (lambda x: math.exp(-x), 0, 35),
        "uniform": (lambda x: 1.0, 0, 1),
        "two normals": (
            lambda x: sum(math.exp(-((x - m) ** 2) / 2) for m in (-1, 1)) / math.sqrt(8 * math.pi),
            -10,
            10,
        ),
    }
    density, low, high = densities[name]
    grid = np.linspace(low, high, 2001)
    values = np.array([density(x) for x in grid])
    weights = np.full(2001, grid[1] - grid[0])
    weights[[0, -1]] /= 2
    mass = values * weights
    sigma = 1.3
    energy = mass @ np.exp(-((grid[:, None] - grid) ** 2) / sigma**2) @ mass
    _, closed, square = rke.DENSITIES[name]
    assert closed(sigma) == pytest.approx(energy, rel=3e-4)
    assert square == pytest.approx(mass @ values, rel=2e-2)


def test_relative_entropy_of_diagonal_states():
    """Commuting matrices: sum of p^a q^(1-a)."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    for order in (0.5, 2.0, 3.0):
        value = rke.relative_renyi(np.diag(p), np.diag(q), order)
        expected = math.log(np.sum(p**order * q ** (1 - order))) / (order - 1)
        assert value == pytest.approx(expected, rel=1e-10)


def test_root_fidelity_against_matrix_roots():
    rng = np.random.default_rng(0)
    features = [rke.unit_features(rng, 5, 4) for _ in range(2)]
    a, b = (rows.T @ rows / 5 for rows in features)
    root = np.real(linalg.sqrtm(b))
    expected = np.trace(np.real(linalg.sqrtm(root @ a @ root)))
    assert rke.nuclear_norm(features[0] @ features[1].T / 5) == pytest.approx(expected, rel=1e-6)


def test_hoeffding_bound_by_hand():
    """n = 4, delta = 1/2, energy 1: no bias, sqrt(log 4 / 4) * 3/4."""
    assert float(rke.hoeffding_bound(4, 0.5, 1.0)) == pytest.approx(
        0.75 * math.sqrt(math.log(4)) / 2
    )
    assert float(rke.hoeffding_bound(4, 0.5, 0.2)) == pytest.approx(
        0.75 * math.sqrt(math.log(4)) / 2 + 0.2
    )


def test_two_point_laws():
    """Mean 0, and the sub-Gaussian parameter bounds the moment generating function."""
    for share in (0.5, 0.3, 0.01):
        atoms, chances, proxy = rke._two_points(2.0, share)
        assert chances @ atoms == pytest.approx(0.0, abs=1e-12)
        for beta in np.linspace(-8, 8, 41):
            assert chances @ np.exp(beta * atoms) <= math.exp(beta**2 * proxy / 2) * (1 + 1e-9)
    assert rke._two_points(2.0, 0.5)[2] == pytest.approx(1.0)


def _loosened(key: str, factor: float):
    def trial(*args):
        values = original_trial(*args)
        return values | {key: factor * values[key]}

    return trial


def _worsened(evidence):
    """The same evidence for a statement that is off by a little, or turned round."""
    changes = {
        "==": lambda: {"lhs": evidence.lhs + 1e-3 * np.maximum(1.0, np.abs(evidence.lhs))},
        "<=": lambda: {"lhs": evidence.rhs + 1e-3, "rhs": evidence.lhs},
        "limit": lambda: {"rhs": evidence.rhs + 0.05},
        "rate": lambda: {"rhs": evidence.rhs + 0.2},
        "probability": lambda: {"rhs": evidence.rhs / 20},
    }
    return dataclasses.replace(evidence, **changes[evidence.relation]())


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, entry in registry().items()
        if entry.theme in ("rke", "mid", "gradients") and entry.expected is Verdict.HOLDS
    ],
)
def test_worse_evidence_is_rejected(name):
    """No claim is so lenient that it would pass whatever the numbers."""
    evidence = try_claim(registry()[name]).evidence
    assert judge(_worsened(evidence)).verdict is Verdict.FALSE


def _vectors(size: int):
    return arrays.arrays(float, size, elements=strategies.floats(-6, 6))


@hypothesis.settings(deadline=None, max_examples=150, derandomize=True)
@hypothesis.given(_vectors(10))
def test_mode_bounds_hold_for_any_two_modes(point):
    """Theorem 2 and its sharper form, two modes in the plane."""
    values = rke._mode_trial(point, 2, 2)
    assert values["error"] <= values["sharper"] + 1e-12
    assert values["error"] <= values["printed"] + 1e-12


@hypothesis.settings(deadline=None, max_examples=150, derandomize=True)
@hypothesis.given(_vectors(12))
def test_corrected_relative_bound_holds_for_any_two_modes(point):
    """Theorem 4 corrected, two modes on either side."""
    values = rke._relative_trial(point, 2)
    assert values["error"] <= values["bound"] + 1e-9


original_trial, original_relative = rke._mode_trial, rke._relative_trial
original_bound, original_matrix = rke.hoeffding_bound, rke.correct_norm_matrix


@pytest.mark.parametrize(
    ("function", "wrong", "claims"),
    [
        ("_mode_trial", _loosened("sharper", 0.95), ["rke-theorem-2-sharper"]),
        ("_mode_trial", _loosened("printed", 0.3), ["rke-theorem-2"]),
        (
            "_relative_trial",
            lambda *args: {"error": original_relative(*args)["error"], "bound": 1e-3},
            ["rke-theorem-4-corrected"],
        ),
        ("hoeffding_bound", lambda *args: 0.5 * original_bound(*args), ["rke-theorem-6-sharper"]),
        (
            "correct_norm_matrix",
            lambda sigma: original_matrix(1.01 * sigma),
            ["rke-theorem-1-corrected", "rke-theorem-1-five-terms"],
        ),
        ("_entropy_gap", lambda name, sigma: 0.01, ["rke-theorem-3", "rke-theorem-3-jump"]),
        (
            "relative_renyi",
            lambda a, b, order: 0.1,
            ["rke-theorem-7", "rke-fidelity"],
        ),
        ("renyi", lambda values, order: 1.0, ["rke-theorem-5", "rke-corollary-2"]),
        (
            "_root_mean_square",
            lambda rng, name, sizes, trials: list(sizes**-0.75),
            ["rke-theorem-6-rate", "rke-theorem-6-fast-rate"],
        ),
    ],
)  # fmt: skip
def test_a_wrong_formula_turns_the_claim_red(monkeypatch, function, wrong, claims):
    monkeypatch.setattr(rke, function, wrong)
    for name in claims:
        assert verdict(name) is Verdict.FALSE, name


def test_a_smaller_constant_fails_theorem_6(monkeypatch):
    """With an eighth of the printed bound the failures exceed delta."""
    original = rke.probability
    monkeypatch.setattr(
        rke,
        "probability",
        lambda lhs, rhs, *rest, **fields: original(lhs, rhs / 8, *rest, **fields),
    )
    assert verdict("rke-theorem-6") is Verdict.FALSE
