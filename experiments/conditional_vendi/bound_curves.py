"""Errors and bounds of theorems on ordinary populations: what the figures of `theorems` show."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize

from theory_checks import claim, concentration, latex, mixtures, populations, rke
from theory_checks.concentration import TAILS

Curves = dict[str, Any]
_DELTA = 0.05
_SIZES = np.array([1000, 3000, 10000, 30000, 100000, 1000000])
_PRINTED = {
    "cv-theorem-1-sharp": "cv-theorem-1",
    "cv-theorem-2-sharp": "cv-theorem-2",
    "cv-theorem-3-sharp": "cv-theorem-3-appendix",
}


def curves(name: str, seed: int, samples: int) -> Curves:
    """Axes and arrays of one claim, by their names.

    Args:
      name: of the claim.
      seed: of the samples.
      samples: of each population and size.
    """
    if name in _PRINTED:
        return _of_samples(name, np.random.default_rng(seed), samples)
    return {
        "rke-theorem-6-sharper": _of_energies,
        "cv-theorem-6-corrected-point-prompts": _of_modes,
        "rke-theorem-3": _of_bandwidths,
    }[name]()


def _formulas(name: str, printed: bool = False) -> tuple[latex.Formula, ...]:
    entry = claim.registry()[name]
    return latex.formulas((entry.stated if printed else entry.holding).latex)


def _of_samples(name: str, generator: np.random.Generator, samples: int) -> Curves:
    """95% errors, with the printed bound and the sharper one."""
    generic = [p for p in concentration.finite_populations() if p.name != "uniform"]
    tail, printed = TAILS[name], TAILS[_PRINTED[name]]
    width = width_of_rke if "theorem-3" in name else tail.bound
    forms, drawn = _formulas(name), _formulas(_PRINTED[name], printed=True)
    found = np.zeros((3, len(generic), len(_SIZES)))
    each = np.array([_DELTA / len(tail.errors)])
    for row, p in enumerate(generic):
        for column, n in enumerate(_SIZES):
            errors = tail.errors[0](p, p.frequencies(generator, n, samples))
            ends = [width(p, n, each, i, None, *forms) for i, _ in enumerate(tail.errors)]
            bound = np.squeeze(printed.bound(p, n, np.array([_DELTA]), 0, None, *drawn))
            found[:, row, column] = np.quantile(np.abs(errors), 0.95), bound, np.max(ends)
    axes = {"n": _SIZES, "population": [p.name for p in generic]}
    return axes | dict(zip(("quantile", "bound", "sharp"), found, strict=True))


def width_of_rke(
    p: populations.Population, n: int, delta: Any, which: int, levels: Any, *forms: Any
) -> float:
    """How far a sample's Conditional-RKE may lie above or below."""
    score = float(p.conditional_rke(p.weights))

    def margin(c: float) -> float:
        sides = concentration.theorem_3_margin(p, n, delta, which, np.array([c]), *forms)
        return float((sides[0] - sides[1])[0])

    end = (1e-9, 1.0)[which]
    if margin(end) <= 0:
        return (np.inf, score - 1)[which]
    root = optimize.root_scalar(margin, bracket=(end, 1 / score), xtol=1e-15).root
    return abs(1 / root - score)


def _of_energies() -> Curves:
    """Root mean squared errors of exp(-RKE), exactly, and both bounds."""
    laws = {
        "modes of 0.95 and 0.05": rke.Law(0.95, True),
        "a mode of 3/4 and rare ones": rke.LAWS[0],
        "two equal modes": rke.Law(0.5, True),
    }
    sizes, rows = 2.0 ** np.arange(6, 14), []
    for law in laws.values():
        found = [law.errors(int(n)) for n in sizes]
        rows.append([np.sqrt(np.exp(logs) @ errors**2) for errors, logs in found])
    ends = {"printed": "rke-theorem-6", "sharper": "rke-theorem-6-sharper"}
    bounds = {k: rke.energy_bound(_formulas(v), sizes, _DELTA, 0.0, 0.0) for k, v in ends.items()}
    return {"n": sizes, "population": list(laws), "error": rows} | bounds


def _of_modes() -> Curves:
    """Both sides of the aggregation over the separation of the modes; NaN where g is undefined."""
    separation = np.linspace(0.05, 7.0, 60)
    makes: dict[str, Callable[[float], populations.Mixture]] = {
        "ordinary": populations.typical,
        "rare": lambda d: populations.rare_mode(1e-3, 1e-3, d, 1e8),
    }
    printed = _formulas("cv-theorem-5", printed=True)
    ours = _formulas("cv-theorem-6-corrected-point-prompts")
    found: Curves = {"separation": separation}
    for name, make in makes.items():
        modes = list(map(make, separation))
        found[f"{name}_gap"] = [abs(each.gap(2.0)) for each in modes]
        found[f"{name}_printed"] = [mixtures.printed_bound(printed, m, 2.0)[0] for m in modes]
        found[f"{name}_corrected"] = [mixtures.point_prompt_bound(ours, m, 2.0)[0] for m in modes]
    return found


def _of_bandwidths() -> Curves:
    """How far RKE with its shift lies from the differential entropy."""
    evidence = claim.try_claim(claim.registry()["rke-theorem-3"]).stated.evidence
    density, sigma = (evidence.parameters[name] for name in ("density", "sigma"))
    return {"sigma": sigma[0], "density": density[:, 0].tolist(), "gap": evidence.lhs}
