"""What every result does: print, show itself in a notebook, draw, and give plain data."""

import base64
import csv
import dataclasses
import io
import json
import math
import sys

import jax
import numpy as np
import pytest
from canonical import OUTPUTS, N
from matplotlib.figure import Figure
from matplotlib.text import Text

import condvendi_jax as cv
from condvendi_jax.base import files
from condvendi_jax.base.result import comma_separated
from condvendi_jax.entropies import PerScore
from condvendi_jax.results import plots

PROMPTS, KERNEL = np.repeat(np.arange(8), 6), cv.Gaussian(1.0)
MODELS = {
    name: np.random.default_rng(seed).normal(size=OUTPUTS.shape).astype(np.float32)
    for seed, name in enumerate(("<a>", "b, c"))
}
ONE = (MODELS["<a>"], PROMPTS)


def looks_at(*kinds):
    rng, prompts = np.random.default_rng(0), np.repeat(np.arange(50), 10)
    monitor = cv.monitor(rng.integers(8, size=500), prompts)
    return [monitor.look(rng.integers(k, size=500), step=10 * k) for k in kinds][-1]


@pytest.fixture(scope="module")
def results():
    compared = cv.compare(MODELS, PROMPTS, output_kernel=KERNEL)
    return {
        "evaluation": cv.evaluate(*ONE, output_kernel=KERNEL),
        "comparison": compared,
        "ranking": compared.ranking("conditional", 2),
        "profile": compared.profile,
        "between": compared.between,
        "contributions": cv.contributions(*ONE, kernel=KERNEL, order=2),
        "prompts": cv.prompt_table(*ONE, kernel=KERNEL, order=2, labels=PROMPTS.astype(str)),
        "decomposition": cv.decompose(*ONE, kernel=KERNEL, order=2),
        "interval": cv.inference.finite_sample_interval(*ONE, kernel=KERNEL),
        "plan": cv.plan(compared),
        "looks": looks_at(8, 8, 2, 2),
    }


LINES = {  # How many a table of data has.
    "evaluation": 3 * 3,  # Order 2 unbiased, its plug-in, order 1.
    "comparison": 6 * 2 + 2 + 1,  # Scores, what differs, the number of different models.
    "ranking": 2,
    "profile": 3 * 2 * 13,
    "between": 1,
    "contributions": N,
    "prompts": 8,
    "decomposition": 1,
    "interval": 1,
    "plan": 5,
    "looks": 4,
}


@pytest.mark.parametrize("name", LINES)
def test_a_result_is_short_text_a_table_of_data_and_plain(name, results):
    result = results[name]
    text, shown = str(result).splitlines(), repr(result).splitlines()
    assert shown == text or (len(shown) == 15 and shown[:14] == text[:14])
    assert shown[-1] == text[-1] or shown[-1] == f"... {len(text) - 14} more lines: use print()"
    json.dumps(files.jsonable(result.as_dict()), allow_nan=False)
    lines = result.lines()
    assert len(lines) == LINES[name]
    frame, read = result.to_dataframe(), csv.DictReader(io.StringIO(result.comma_separated()))
    assert list(frame.columns) == list(lines[0]) == read.fieldnames
    for line, cells in zip(lines, read, strict=True):
        for key, value in line.items():
            missing = value is None or (isinstance(value, float) and math.isnan(value))
            assert cells[key] == ("" if missing else str(value))
    page = result._repr_html_()
    assert "<a>" not in page.replace("&lt;a&gt;", "")
    assert page.count("<img") == hasattr(result, "plot")


def test_data_have_the_numbers_of_the_result(results):
    scored, rows = results["evaluation"].order(2), results["evaluation"].lines()
    lines = {(line["order"], line["score"], line["unbiased"]): line for line in rows}
    line = lines[2, "conditional", True]
    assert line["value"] == scored.unbiased.conditional
    assert line["standard_error"] == scored.population.standard_errors.conditional
    assert (line["low"], line["high"]) == scored.population.intervals.conditional
    assert lines[2, "vendi", False]["value"] == float(scored.decomposition.vendi)
    line, over = results["profile"].lines()[13 + 2], results["profile"]
    # RKE of the second model at the third bandwidth.
    assert (line["model"], line["score"], line["bandwidth"]) == ("b, c", "vendi", 0.25)
    assert line["value"] == over.values.vendi[1, 2]
    rows = results["contributions"]
    told = [line["influence_on_information"] for line in rows.lines()]
    assert told == rows.influences.information.tolist()
    shown = [int(line.split()[0]) for line in str(rows).splitlines()[3:]]
    order = np.argsort(rows.influences.conditional, kind="stable")
    assert shown == [*order[:3], *order[-3:]]  # Those at both ends.


def test_small_p_values_and_roundings_are_shown_as_what_they_are(results):
    found, scored = results["comparison"], results["evaluation"].orders[0]
    for p, cell in ((0.005, "0.005"), (0.0009, "<0.001")):
        difference = found.main[0].differences[0]._replace(p_value=p, adjusted=p)
        ranking = dataclasses.replace(found.main[0], differences=(difference,))
        (row,) = dataclasses.replace(found, rankings=(ranking,)).differences().rows
        assert row[5:7] == [cell, cell]
    for moved, told in ((0.05, [True]), (0.005, [])):
        rounding = PerScore(*[math.log1p(moved)] * 3)
        changed = dataclasses.replace(scored.decomposition, rounding=rounding)
        orders = (dataclasses.replace(scored, decomposition=changed),)
        notes = dataclasses.replace(results["evaluation"], orders=orders).notes()
        assert ["float32 may change scores by 5%" in n for n in notes if "rounding" in n] == told


def test_an_axis_ends_at_twice_the_largest_value():
    ends = np.array([[[1, 100], [2, 100]]])
    assert plots._reach(np.array([[2.0, 3.0]]), ends)[1] == pytest.approx(1.05 * 6)


def test_a_decomposition_prints_inside_a_transformation():
    seen = []

    @jax.jit
    def score(outputs):
        result = cv.decompose(outputs, kernel=KERNEL, order=2)
        seen.append(repr(result))
        return result.vendi

    score(ONE[0])
    assert seen[0].startswith("order 2, n = 48: vendi ")


UNKNOWN = {
    "evaluate: unknown keyword promt_ids; did you": lambda: cv.evaluate(*ONE, promt_ids=1),
    "did you mean level": lambda: cv.compare(MODELS, lvel=1),
    "decompose: unknown keyword ordre; did you mean order": lambda: cv.decompose(*ONE, ordre=1),
    r"pass output_kernel=cv.Gaussian\(0.5\)": lambda: cv.vendi(*ONE, bandwidth=1),
    "expected one of models, prompts, encoder": lambda: cv.profile(MODELS, xyz=1),
}


@pytest.mark.parametrize("message", UNKNOWN)
def test_an_unknown_keyword_is_named_with_the_one_that_was_meant(message):
    with pytest.raises(TypeError, match=message):
        UNKNOWN[message]()


def test_without_pandas_the_error_has_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[notebook\]'"):
        cv.decompose(*ONE, kernel=KERNEL).to_dataframe()


def test_the_numbers_of_the_first_sentence_stand_in_the_short_table_and_the_data(results):
    compared = results["comparison"]
    lines = str(compared).splitlines()
    (heading,) = (k for k, line in enumerate(lines) if line.startswith("model"))
    assert "differ, of 6" in lines[heading]
    told = [line for line in compared.lines() if line["score"] == "differ"]
    for line, shown in zip(told, compared.as_dict()["differ"]["models"], strict=True):
        evaluation = compared.evaluations[line["model"]]
        scored, (alone,) = evaluation.order(2), evaluation.as_dict()["differ"]["models"]
        (row,) = (text for text in lines[heading + 2 :] if text.startswith(line["model"]))
        assert f"  {scored.given}  " in row
        assert f"  {scored.estimate('conditional', unbiased=True)}  " in row
        assert f"{scored.given.value:.3g}" in str(scored.estimate("conditional", unbiased=False))
        low, high = scored.given.ends[:2]
        expected = {"value": scored.given.value, "low": low, "high": high}
        assert shown == {"model": line["model"]} | expected == alone | {"model": line["model"]}
        assert shown.items() <= line.items()
    alone = cv.compare(MODELS, output_kernel=KERNEL, orders=[2])
    assert "differ, of" not in str(alone) and "Without prompts" in str(alone)
    plain = cv.compare(MODELS, PROMPTS, output_kernel=KERNEL, orders=[2], unbiased=False)
    assert "differ, of" not in str(plain)
    scores = cv.compare(MODELS, output_kernel=KERNEL, orders=[1])  # A score, which has lines.
    assert "differ" not in {line["score"] for line in scores.lines()}
    assert cv.compare({"a": ONE[0]}, ONE[1], output_kernel=KERNEL).comma_separated("pairs") == ""


def test_a_spreadsheet_runs_no_text_of_a_table():
    texts = ["=HYPERLINK(1)", "+a", "-a", "@a", "\t=a", "-0.5", "+2", "a=b", "", "=1+1"]
    rows = [{"model": text, "score": score} for text, score in zip(texts, [-1.5] * 10, strict=True)]
    cells = [row["model"] for row in csv.DictReader(io.StringIO(comma_separated(rows)))]
    run = {"=HYPERLINK(1)", "+a", "-a", "@a", "\t=a", "=1+1"}
    assert cells == [f"'{text}" if text in run else text for text in texts]
    assert comma_separated(rows).count(",-1.5\n") == 10


@pytest.mark.parametrize("name", ["comparison", "profile", "plan", "looks", "contributions"])
def test_a_picture_fits_a_column_and_a_notebook_shows_it_without_a_magic_line(name, results):
    """As PNG by itself, and not through pyplot, which `%matplotlib inline` would show again."""
    picture = results[name].plot()
    data, size = picture._repr_png_()
    data = base64.b64decode(data)
    dots = np.frombuffer(data[16:24], ">i4")  # Two to a pixel.
    assert data[1:4] == b"PNG" and dots == pytest.approx([2 * n for n in size.values()], abs=2)
    assert isinstance(picture, Figure) and not hasattr(picture, "number")
    assert picture.get_size_inches()[0] == 3.3 and len(picture.get_supxlabel().split("\n")) < 3
    texts = [text for text in picture.findobj(Text) if text.get_text()]
    assert len(texts) > 8 and min(text.get_fontsize() for text in texts) >= 7
    box = picture.get_tightbbox()
    assert 0 <= box.xmin and box.xmax <= 3.3


def test_pictures_mark_the_alarm_the_chosen_size_and_both_ends(results):
    looks, planned, rows = (results[name] for name in ("looks", "plan", "contributions"))
    (panel,) = looks.plot().axes
    alarm = looks.alarm
    assert panel.lines[-1].get_xydata().tolist() == [[alarm.step, alarm.score]]
    assert f"step {alarm.step}:" in looks.plot().get_suptitle()
    assert looks_at(8, 8).plot().get_suptitle() == "No alarm in 2 looks"
    (panel,) = planned.plot().axes
    curve, _, chosen = (line.get_xydata() for line in panel.lines)
    assert chosen[0, 0] == planned.best.prompts
    assert np.interp(chosen[0, 0], *curve.T) == pytest.approx(planned.best.power, abs=0.01)
    order = np.argsort(rows.influences.conditional)
    names = [text.get_text() for text in rows.plot().axes[0].texts]
    assert names == [f"row {k}" for k in (*order[:3], *order[-3:])]
    by_prompt = {k: one.conditional for k, one in rows.by(PROMPTS).items()}
    picture = rows.plot(PROMPTS)
    assert picture.axes[0].texts[0].get_text() == str(min(by_prompt, key=by_prompt.get))
    assert picture.axes[0].patches[-1].get_width() == max(by_prompt.values())


def test_a_first_number_counts_answers_only_where_models_have_equally_many_and_no_score_is_cut():
    kinds = np.array([[0, 0, 1, 1, 2, 3]] * 10) + 10 * np.arange(10)[:, None]
    prompts, labels = np.repeat(np.arange(10), 6), {"output_kernel": cv.Indicator()}
    cut = cv.evaluate(kinds.reshape(-1, 1), prompts, orders=[2], truncation=9, **labels)
    assert "Different outputs to a prompt: about " in str(cut) and "effectively" not in str(cut)
    assert ", by Conditional-RKE, t = 9." in str(cut)
    two = np.where(np.arange(10)[:, None] % 2, kinds[:, :2], kinds[:, 1:3])
    models = {"six": kinds.reshape(-1, 1), "two": two.reshape(-1, 1)}
    asked = {"six": prompts, "two": np.repeat(np.arange(10), 2)}
    found = cv.compare(models, asked, orders=[1], profile=False, **labels)
    values = found.ranking("conditional", 1).values
    assert {bar.model: bar.value for bar in found.bars.models} == values
    assert f"about {values['six']:.2g} (six)" in str(found) and "differ, of" not in str(found)
