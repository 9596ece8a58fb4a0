"""The evaluation of LaTeX, against NumPy."""

import numpy as np
import pytest
from scipy import linalg

from theory_checks import latex
from theory_checks.latex import Formula

RNG = np.random.default_rng(0)
W, V, K = RNG.random(3), RNG.random(3), RNG.random((3, 3))
NAMES = {"n": 7.0, r"\delta": 0.1, r"\omega_i": W, "s_i": V, "K_{ij}": K}
EXPECTED = {
    r"\tfrac12 n^2+3": 27.5,
    r"-n/2\lfloor n/2\rfloor": -10.5,
    r"\sqrt[4]{\tfrac2{\sqrt n}}": (2 / np.sqrt(7)) ** 0.25,
    r"\big(1+\sqrt{2\log\tfrac4\delta}\big)": 1 + np.sqrt(2 * np.log(40)),
    r"\max\lbrace n^{-2}, 4\delta\rbrace": 0.4,
    r"\lvert\delta-n\rvert e^{-\delta}": 6.9 * np.exp(-0.1),
    r"(\delta-n)_+ + \pi": np.pi,
    r"\sum_i\omega_is_i^2": W @ V**2,
    r"\sum_{i,j}\omega_i\omega_jK_{ij}": W @ K @ W,
    r"\sum_{i\ne j}K_{ij}": K.sum() - np.trace(K),
    r"\max_i\sum_{j\ne i}K_{ij}": (K - np.diag(np.diag(K))).sum(1).max(),
    r"\sum_i\omega_i\sum_{j<i}K_{ij}": W @ np.tril(K, -1).sum(1),
    r"\lVert(\omega_is_i)_i\rVert_3": np.linalg.norm(W * V, 3),
    r"n > 2\delta": 1.0,
    r"6\delta \ge n": 0.0,
    r"0 < \delta \le \tfrac12": 1.0,
    r"0 < n \le \tfrac12": 0.0,
}


@pytest.mark.parametrize("text", EXPECTED)
def test_formulas_against_numpy(text):
    assert Formula(text)(NAMES) == pytest.approx(EXPECTED[text])


def test_minima_over_theta_have_a_range():
    for low in (0, 0.5):
        found = Formula(rf"s_is_j\wedge\min_{{{low}\le\theta\le1}}[\theta+K_{{ij}}]")(NAMES)
        np.testing.assert_allclose(found, np.minimum(np.outer(V, V), low + K))
    with pytest.raises(latex.Unknown, match="range"):
        Formula(r"\min_{\theta}[\theta+n]")(NAMES)


def test_norms_do_not_underflow():
    found = Formula(r"\lVert(\omega_i)_i\rVert_{300}")({r"\omega_i": np.full(2, 1e-3)})
    assert found == pytest.approx(1e-3 * 2 ** (1 / 300))


def test_what_is_not_understood_is_said():
    with pytest.raises(latex.Unknown, match="alpha"):
        Formula(r"2\alpha")({"n": 1})


def test_constants_are_changed_one_by_one():
    """The digits of a fraction are two constants; an index is none; only formulas are searched."""
    text = r"5 \le ⟦\tfrac12\delta_2+16^2⟧"
    found = dict(latex.changed(text))
    assert [constant for constant, _ in latex.changed(text)] == ["1", "2", "16", "2"]
    assert found["16"](2.0) == r"5 \le ⟦\tfrac12\delta_2+{32}^2⟧"
    assert latex.shown(text) == r"5 \le \tfrac12\delta_2+16^2"
    braces = r"⟦\tfrac{45\sqrt\rho}{12n}+\frac{0.5}3\min_{0.5\le\theta\le1}[\theta]⟧"
    assert [constant for constant, _ in latex.changed(braces)] == ["45", "12", "0.5", "3"]


A, B = (np.cov(RNG.normal(size=(3, 9))) for _ in range(2))
C = RNG.normal(size=(3, 2))
MATRICES = {
    r"2A+\tfrac{B}{\lVert B\rVert_F^2}": 2 * A + B / np.sum(B**2),
    r"AB\odot B": (A @ B) * B,
    r"-C^\top(A+BA)^{-1}C": -C.T @ np.linalg.inv(A + B @ A) @ C,
    r"\log A": linalg.logm(A),
    r"(AB)^{-1}B^{-1/2}": np.linalg.inv(A @ B) @ np.linalg.inv(linalg.sqrtm(B)),
}
NUMBERS = {
    r"\lVert AB\rVert_*": np.linalg.norm(A @ B, "nuc"),
    r"\det(A)^{-1/2}": np.linalg.det(A) ** -0.5,
    r"\mathrm{Tr}\sqrt{A}": np.trace(linalg.sqrtm(A)),
}


@pytest.mark.parametrize("text", [*MATRICES, *NUMBERS])
def test_matrices_against_scipy(text):
    found = Formula(text)({name: latex.matrix(m) for name, m in (("A", A), ("B", B), ("C", C))})
    np.testing.assert_allclose(found, (MATRICES | NUMBERS)[text], atol=1e-12, rtol=1e-9)


def test_arrays_that_are_no_matrices_are_multiplied_entry_by_entry():
    np.testing.assert_allclose(Formula("AB")({"A": A, "B": B}), A * B)
