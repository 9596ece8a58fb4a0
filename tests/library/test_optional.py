"""A part of a result that fails leaves a line; the scores, and what else there is, stand."""

import contextlib
import warnings

import numpy as np
import pytest

import condvendi_jax as cv
from condvendi_jax import report
from condvendi_jax.base import checks
from condvendi_jax.cli import __main__
from condvendi_jax.inference import comparisons, designs, profiles, prompt_tables, quality
from condvendi_jax.report import webpage

RNG = np.random.default_rng(0)
PROMPTS = np.repeat(np.arange(8), 4)
MODELS = {name: RNG.normal(size=(32, 2)).astype(np.float32) for name in "AB"}
OPTIONS = {"output_kernel": cv.Gaussian(1.0), "orders": [2]}
RATED = {"quality": np.arange(32) % 3, "at_least": 1}


def fail(error):
    def failing(*_, **__):
        raise error

    return failing


@pytest.fixture(scope="module")
def compared():
    return cv.compare(MODELS, PROMPTS, profile=True, **OPTIONS, **RATED)


def test_a_comparison_stands_without_parts_that_fail(compared, monkeypatch, tmp_path):
    names = ["quality", "overlaps", "profile"]
    places = [(quality, "_numbers"), (comparisons.between_models, "of_pairs")]
    for name, place in zip(names, [*places, (profiles, "of_curves")], strict=True):
        monkeypatch.setattr(*place, fail(np.linalg.LinAlgError(f"no {name}\nat all")))
    words = r"^not computed: .* \(no .*\)\. The scores stand\.$"
    with pytest.warns(UserWarning, match=words) as told:
        found = cv.compare(MODELS, PROMPTS, profile=True, **OPTIONS, **RATED)
    assert [one.filename for one in told] == [__file__] * 3
    assert found.failed == found.as_dict()["failed"] == {name: f"no {name}" for name in names}
    assert found.rankings == compared.rankings[: len(found.rankings)] and len(found.rankings) == 3
    assert (found.profile, found.between, found.qualities) == (None, None, {})
    report.html(found, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    for name in names:
        line = f"ot computed: {name} (no {name})"
        assert all(line in text for text in (str(found), found.details(), page))
    assert "Over the bandwidths nothing was tested: no profile." in page


def test_an_evaluation_and_a_table_stand_without_parts_that_fail(monkeypatch):
    options = {"output_kernel": cv.Gaussian(1.0), "orders": [1], "errors": False}
    expected = cv.evaluate(MODELS["A"], PROMPTS, **options, **RATED)
    monkeypatch.setattr(designs, "slope", fail(FloatingPointError()))
    monkeypatch.setattr(quality, "_numbers", fail(MemoryError("no memory")))
    with pytest.warns(UserWarning, match="not computed: "):
        found = cv.evaluate(MODELS["A"], PROMPTS, **options, **RATED)
    assert found.failed == {"slope of order 1": "FloatingPointError", "quality": "no memory"}
    assert expected.order(1).slope and found.order(1).slope is None is found.quality
    assert found.order(1).decomposition.scores == expected.order(1).decomposition.scores
    assert "not computed: quality (no memory)" in str(found) and expected.failed == {}
    monkeypatch.setattr(prompt_tables.shrinkage, "shrink", fail(ZeroDivisionError("by 0")))
    with pytest.warns(UserWarning, match="not computed: shrunken similarities"):
        table = cv.prompt_table(MODELS["A"], PROMPTS, output_kernel=cv.Gaussian(1.0), order=2)
    assert table.reason == "by 0" and len(table.prompts) == 8


def test_a_page_stands_without_the_outputs_or_figures(compared, monkeypatch, tmp_path):
    for function in ("encoded", "outputs_behind"):
        monkeypatch.setattr(f"condvendi_jax.report.webpage.{function}", fail(ValueError("inf")))
    with pytest.warns(UserWarning, match="not computed: "):
        report.html(compared, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("(inf)") == 2 and webpage.answered(compared)[0] in page
    assert all(words not in page for words in ("<img", 'id="prompts"', "<script>"))


def test_the_command_prints_the_scores_where_what_was_asked_for_fails(
    monkeypatch, tmp_path, capsys
):
    np.save(tmp_path / "x.npy", MODELS["A"])
    np.save(tmp_path / "t.npy", PROMPTS[:, None].astype(np.float32))
    words = ["", "score", f"{tmp_path}/x.npy", f"--prompts={tmp_path}/t.npy", "--order=2"]
    words += ["--output_bandwidth=1", f"--profile={tmp_path}/p.png", "--noerrors"]
    words += [f"--by_prompt={tmp_path}/b.csv"]
    monkeypatch.setattr(profiles, "of_curves", fail(np.linalg.LinAlgError("so")))
    monkeypatch.setattr(prompt_tables, "contributions", fail(np.linalg.LinAlgError("so")))
    with (
        pytest.warns(UserWarning, match="not computed: (profile|by_prompt)"),
        pytest.raises(ValueError, match="--by_prompt=.*b.csv: not written, since there is no tab"),
    ):
        __main__.main(words)
    assert "2 (RKE)" in capsys.readouterr().out


def test_only_what_data_do_is_a_failure_of_a_part():
    def run(error, **options):
        with contextlib.suppress(UserWarning), checks.optional("x", {}, **options):
            raise error

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for error in (ValueError(), OverflowError(), MemoryError(), np.linalg.LinAlgError()):
            run(error)
        run(np.linalg.LinAlgError(), asked=True)
        for error in (TypeError, AttributeError, KeyError, KeyboardInterrupt):
            with pytest.raises(error):
                run(error())
        with pytest.raises(ValueError, match="argument"):
            run(ValueError("argument"), asked=True)
