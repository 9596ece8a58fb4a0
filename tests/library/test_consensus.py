"""Several encoders or similarities in one comparison: which models lead under all of them."""

import itertools
import json
import math
import pathlib

import fake_encoders
import numpy as np
import pytest
from rates import is_at_most

import condvendi_jax as cv
from condvendi_jax.cli import __main__, verbs
from condvendi_jax.inference import Agreement, Consensus, datasets
from condvendi_jax.statistics.reasons import Reason
from experiments.calibration import simulations as study

PROMPTS = np.repeat(np.arange(12), 4)
OPTIONS = {"orders": [2], "profile": False, "output_kernel": cv.Gaussian(1.0)}
MODELS = {"A": 4.0, "B": 1.0, "C": 0.4}
WORDS = "fig", "a small fig", "a fig tree", "an apple", "an orchard of small apple trees"
ASKED = [f"question {k}" for k in PROMPTS]
TEXTS = {"A": [f"{WORDS[7 * k % 5]} {'a' * (k % 7)}" for k in range(48)]}
TEXTS["B"] = [f"{WORDS[4 * k % 5]} {'a' * (k % 4)}" for k in range(48)]


def views(**second):
    """Outputs of three models under two encoders, with the spreads of `second` under the second."""
    rng, spreads = np.random.default_rng(3), (MODELS, MODELS | second)
    drawn = [{m: np.float32(rng.normal(size=(48, 2)) * by[m]) for m in by} for by in spreads]
    return dict(zip(("one", "two"), drawn, strict=True))


@pytest.mark.parametrize("second", [{}, {"A": 0.3}])
def test_one_leads_under_all_where_every_test_says_so(second):
    """Scores of A have no number under the first encoder, as nearly all of its outputs differ."""
    models, worst = views(**second), []
    found = cv.compare(models, PROMPTS, **OPTIONS)
    alone = {name: cv.compare(models[name], PROMPTS, **OPTIONS) for name in models}
    rankings = {name: one.ranking("conditional", 2) for name, one in alone.items()}
    assert math.isnan(rankings["one"].difference("A", "B").value)
    for pair in found.pairs:
        tests = {name: ranking.difference(*pair[:2]) for name, ranking in rankings.items()}
        places = {name: [*ranking.values].index for name, ranking in rankings.items()}
        ways = {n: 1 if at(pair.first) < at(pair.second) else -1 for n, at in places.items()}
        assert pair.signs == {n: ways[n] if tests[n].adjusted <= 0.05 else 0 for n in alone}
        worst.append(max(d.p_value for d in tests.values()) if len({*ways.values()}) == 1 else 1)
    assert [pair.p_value for pair in found.pairs] == pytest.approx(worst)
    # Closed testing: of all intersections, each by Bonferroni, which Holm shortens.
    sets = [s for r in (1, 2, 3) for s in itertools.combinations(range(3), r)]
    bounds = {s: min(1, len(s) * min(worst[j] for j in s)) for s in sets}
    closed = [max(p for s, p in bounds.items() if k in s) for k in range(3)]
    assert [pair.adjusted for pair in found.pairs] == pytest.approx(closed)
    assert [pair.holds for pair in found.pairs] == [p <= 0.05 for p in closed]
    assert (1 in worst) == bool(second) and any(pair.holds for pair in found.pairs)


def test_a_pair_without_a_test_under_one_encoder_is_not_tested():
    models = views()
    far = np.arange(96, dtype=np.float32).reshape(48, 2)
    models["two"] |= {"A": 8 * far, "B": 9 * far}
    with pytest.warns(UserWarning, match="numerically the identity"):
        found = cv.compare(models, PROMPTS, **OPTIONS)
    (pair,) = (pair for pair in found.pairs if {*pair[:2]} == {*"AB"})
    assert "not tested: " in str(pair) and math.isnan(pair.p_value) and math.isnan(pair.adjusted)


def test_a_pair_says_what_each_encoder_shows():
    why, each = Reason("few"), "A > B under one; A > B under two"
    told = {
        "A > B": (1, 1, None, 0.01),
        "B > A": (-1, -1, None, 0.01),
        "A - B (A > B under two only)": (0, 1, None, 0.3),
        "A - B (B > A under one; A > B under two)": (-1, 1, None, 1.0),
        f"A - B ({each}; not for all pairs at once)": (1, 1, None, 0.06),
        "A - B (no significant difference)": (0, 0, None, 0.4),
        "A - B (A > B under one only; not tested: few)": (1, 0, why, math.nan),
    }
    for words, (one, two, *rest, p) in told.items():
        pair = Agreement("A", "B", {"one": one, "two": two}, *rest, p, p, p <= 0.05)
        lines = str(Consensus({}, {"one": "A > B"}, (pair,), 0.05)).splitlines()
        assert str(pair) == words and lines[0] == "one: A > B"
        assert ["at most about 5% of" in line for line in lines[2:]] == [True] * pair.holds
        assert lines[1] == f"Under all 0: {'' if pair.holds else 'none; not under all: '}{words}"


def test_texts_go_once_to_each_encoder_and_similarity(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    means, others = fake_encoders.Means(), fake_encoders.Others()
    kernels = {"means": cv.Gaussian(2.0), "others": cv.Gaussian(3.0), "exact": None}
    how = {"encoder": [means, others], "similarity": ("exact",), "output_kernel": kernels}
    texts = {m: [f"<think>hm</think>{text}" for text in said] for m, said in TEXTS.items()}
    with pytest.warns(UserWarning, match="cut reasoning from 96") as told:
        found = cv.compare(texts, ASKED, **OPTIONS | how)
    assert len({str(one.message) for one in told}) == 1
    assert [*found.comparisons] == [*kernels] and len(means.seen) == 1
    assert [*datasets.views(TEXTS, ASKED, {"encoder": [None, means]})] == ["default", "means"]
    alone = {"encoder": [others], "output_kernel": kernels["others"]}
    single = cv.compare(TEXTS, ASKED, **OPTIONS | alone)
    assert str(single.main[0].values) == str(found.comparisons["others"].main[0].values)


def test_what_does_not_belong_together_is_refused():
    for models, options, words in (
        (TEXTS, {"encoder": [fake_encoders.ready] * 2}, "different names, received .'means', 'm"),
        (TEXTS, {"encoder": ["st", "x:y"]}, "'st': expected"),
        (TEXTS, {"encoder": []}, "encoder: expected one, received 0; compare takes"),
        (views(), {"encoder": ["a", "b"]}, "encoder: expected one, received 2; compare"),
        (views(), {"output_kernel": {"one": None}}, "output_kernel: expected those of .'one', 't"),
        (views() | {"two": {"B": np.eye(3)}}, {}, "models: expected those of .'A', 'B', 'C'"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            cv.compare(models, ASKED, **OPTIONS | options)


def test_the_command_takes_several(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    for name, texts in TEXTS.items():
        lines = [json.dumps({"prompt": p, "answer": t}) for p, t in zip(ASKED, texts, strict=True)]
        pathlib.Path(f"{name}.jsonl").write_text("\n".join(lines))
    pathlib.Path("a,b").mkdir()
    assert [*verbs.Compare(text_encoder="st:a,b").views()] == ["st:a,b"]  # The name of a folder.
    names = ["fake_encoders:Means", "fake_encoders:Others", "exact"]
    files = ["condvendi", "compare", "A.jsonl", "B.jsonl", "--order=2"]
    flags = [f"--text_encoder={', '.join(names[:2])}", "--similarity=exact"]
    __main__.main([*files, "--output_bandwidth=2", *flags, "--json=all.json", "--csv=all.csv"])
    __main__.main([*files, flags[1], "--json=one.json"])
    written, one = (json.loads(pathlib.Path(f"{n}.json").read_text()) for n in ("all", "one"))
    assert capfd.readouterr().out.startswith("fake_encoders:Means: Conditional-RKE: ")
    assert [*written["comparisons"]] == [*written["inputs"]] == names
    assert written["comparisons"]["exact"]["rankings"] == one["rankings"]
    assert len(pathlib.Path("all.csv").read_text().splitlines()) == 4
    for words in (["score"], ["plan"], ["report", "--output=a.html"], ["compare", "--latex=a"]):
        with pytest.raises(ValueError, match="expected one encoder or similarity, received 3"):
            __main__.main(["condvendi", *words, "A.jsonl", *flags])


@pytest.mark.slow
def test_statements_under_all_are_rarely_false():
    """Of three models, which are equal under the first encoder and far apart under the second."""
    rng, false, options = np.random.default_rng(4), [], OPTIONS | {"output_kernel": cv.Indicator()}
    for _ in range(100):
        prompts = rng.integers(400, size=20)
        drawn = [study.draw_answers(rng, "mild", prompts, 10)[0][:, 0].astype(int) for _ in "abc"]
        far = [rng.integers(kinds, size=200) for kinds in (2, 4, 8)]
        rows = {n: dict(zip("abc", x, strict=True)) for n, x in (("one", drawn), ("two", far))}
        found = cv.compare(rows, np.repeat(np.arange(20), 10), **options)
        false.append(any(pair.holds for pair in found.pairs))
    assert is_at_most(np.mean(false), 100, 0.05)
