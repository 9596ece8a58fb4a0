"""The study of theorems: what the figures show is the evidence of the statements."""

import numpy as np
import pytest
import studies
from small import flags

from experiments.conditional_vendi.theorems import CLAIMS, Theorems
from theory_checks import claim

pytestmark = pytest.mark.slow


def small(folder, seed):
    return flags(budget="quick", seed=seed)


run = studies.finished(Theorems)


def test_the_results_are_the_evidence(run):
    """The bounds of a claim that needs no samples."""
    name = CLAIMS[4]
    tried = claim.try_claim(claim.registry()[name]).stated.evidence.data
    for key in ("rare_gap", "rare_printed", "rare_corrected"):
        np.testing.assert_allclose(run.found[key].sel(claim=name), tried[key], rtol=1e-6)
