"""The study of theorems: what the figures show is the evidence of the statements."""

import pytest
import studies
from small import flags

from experiments.conditional_vendi.theorems import CLAIMS, Theorems

pytestmark = pytest.mark.slow


def small(folder, seed):
    return flags(samples=20, seed=seed)


run = studies.finished(Theorems)


def test_sharper_bounds_lie_between_the_errors_and_what_is_printed(run):
    for name in CLAIMS[:3]:
        found = run.found.sel(claim=name).isel(n=-1)
        assert (found["quantile"] < found.sharp).sum() == 5
        assert (found.sharp < found.bound).sum() == found.bound.notnull().sum() > 0


def test_the_printed_bound_fails_where_a_prompt_is_rare(run):
    found = run.found.sel(claim=CLAIMS[4])
    assert (found.rare_gap > found.rare_printed).any()
    assert not (found.rare_gap > found.rare_corrected + 1e-9).any()
    assert not (found.ordinary_gap > found.ordinary_printed + 1e-9).any()
