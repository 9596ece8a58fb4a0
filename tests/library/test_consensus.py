"""Several encoders or similarities in one comparison: which models lead under all of them."""

import itertools
import json
import math

import fake_encoders
import numpy as np
import pytest
from experiments.calibration import simulations as study
from rates import is_at_most

import condvendi_jax as cv
from condvendi_jax.inference import Agreement, Consensus
from condvendi_jax.results import consensus
from condvendi_jax.statistics.reasons import Reason

PROMPTS = np.repeat(np.arange(12), 4)
OPTIONS = {"orders": [2], "profile": False, "output_kernel": cv.Gaussian(1.0)}
MODELS = {"A": 4.0, "B": 1.0, "C": 0.4}


def views(second=None):
    """Outputs of three models under two encoders; `second` are the spreads under the second."""
    rng, spreads = np.random.default_rng(3), [MODELS, second or MODELS]
    return {
        name: {m: np.float32(rng.normal(size=(48, 2)) * by[m]) for m in MODELS}
        for name, by in zip(("one", "two"), spreads, strict=True)
    }


def closed(p_values):
    """Adjusted p-values by all intersections, each tested by Bonferroni: what Holm shortens."""
    places, adjusted = range(len(p_values)), []
    for k in places:
        sets = itertools.chain(*(itertools.combinations(places, r) for r in range(1, 4)))
        adjusted.append(max(min(1, len(s) * min(p_values[j] for j in s)) for s in sets if k in s))
    return adjusted


@pytest.mark.parametrize("second", [None, MODELS | {"A": 0.3}])
def test_one_leads_under_all_where_every_test_says_so(second):
    """Scores of A have no number under the first encoder, as nearly all of its outputs differ."""
    models = views(second)
    found = cv.compare(models, PROMPTS, **OPTIONS)
    alone = {name: cv.compare(models[name], PROMPTS, **OPTIONS) for name in models}
    assert {n: str(c) for n, c in found.comparisons.items()} == {
        n: str(c) for n, c in alone.items()
    }
    worst = []
    for pair in found.pairs:
        rankings = {name: one.ranking("conditional", 2) for name, one in alone.items()}
        tests = {name: ranking.difference(*pair[:2]) for name, ranking in rankings.items()}
        places = {name: [*ranking.values].index for name, ranking in rankings.items()}
        ways = {n: 1 if at(pair.first) < at(pair.second) else -1 for n, at in places.items()}
        assert pair.signs == {n: ways[n] if tests[n].adjusted <= 0.05 else 0 for n in alone}
        worst.append(max(d.p_value for d in tests.values()) if len({*ways.values()}) == 1 else 1)
    assert [pair.p_value for pair in found.pairs] == pytest.approx(worst)
    assert [pair.adjusted for pair in found.pairs] == pytest.approx(closed(worst))
    assert [pair.holds for pair in found.pairs] == [p <= 0.05 for p in closed(worst)]
    assert (1 in worst) == (second is not None) and any(pair.holds for pair in found.pairs)
    assert math.isnan(rankings["one"].difference("A", "B").value)


def test_a_pair_says_what_each_encoder_shows():
    why, nan = Reason("few"), math.nan
    told = {
        "A > B": ([1, 1], None, 0.01),
        "B > A": ([-1, -1], None, 0.01),
        "A - B (A > B under two only)": ([0, 1], None, 0.3),
        "A - B (B > A under one; A > B under two)": ([-1, 1], None, 1.0),
        "A - B (A > B under one; A > B under two; not for all pairs at once)": ([1, 1], None, 0.06),
        "A - B (no significant difference)": ([0, 0], None, 0.4),
        "A - B (A > B under one only; not tested: few)": ([1, 0], why, nan),
    }
    pairs = [
        Agreement("A", "B", dict(zip(("one", "two"), signs, strict=True)), p, p, reason, p <= 0.05)
        for signs, reason, p in told.values()
    ]
    assert [*map(str, pairs)] == [*told]
    lines = str(Consensus({}, {"one": "A > B"}, tuple(pairs[:3]), 0.05)).splitlines()
    assert lines[0] == "one: A > B" and lines[1].endswith(
        "A > B and B > A; not under all: " + [*told][2]
    )
    assert "at most 5% of studies" in lines[2]
