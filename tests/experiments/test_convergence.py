"""The convergence study: what it computes, on data whose scores an oracle knows."""

import dataclasses

import numpy as np
import pytest
import xarray as xr
from oracles import entropy, gaussian_gram
from small import small_run
from studies import execute

from experiments import convergence, lab
from experiments.convergence import Convergence

ROWS, MODES = 150, 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("convergence")


def points_of(flags):
    return [np.load(flag.partition("=")[2]).astype(np.float64) for flag in flags[:2]]


@pytest.fixture(scope="module")
def finished(folder):
    flags = small_run(Convergence, folder, 0)
    return execute(Convergence, folder, *flags), points_of(flags)


def test_the_study_saves_what_the_oracle_computes(finished):
    run, points = finished
    study = run.study
    assert list(map(str, run.results)) == ["median-0", "median-1"]
    assert (study.truncation, study.sizes, run.seed) == (("32", "10"), (40, 80), 0)
    assert list(study.curves) == ["Vendi", "Vendi, t = 32", "Vendi, t = 10", "RKE"]
    (widths,) = study.bandwidths.axis
    grams = [
        gaussian_gram(p, b) for p, b in zip(points, (widths.outputs, widths.prompts), strict=True)
    ]
    # At all pairs the random order does not matter, so the oracle needs no seed.
    expected = [entropy(g, order=2) for g in (*grams, grams[0] * grams[1])]
    for repeat in range(2):
        last = run.found.entropy.sel(rule="median", repeat=repeat, curve="RKE", n=ROWS)
        np.testing.assert_allclose(last.sel(term=["outputs", "prompts", "joint"]), expected, 1e-5)


def test_spectra_of_all_pairs_are_the_oracles_and_taken_once(folder, tmp_path):
    flags = small_run(Convergence, tmp_path, 0)[:2]
    widths = ("--output_bandwidth=0.9", "--prompt_bandwidth=0.8")
    more = ("--sizes=60,150", "--truncation=20", "--repeats=2")
    found = execute(Convergence, tmp_path, *flags, *widths, *more).found.sel(rule="given")
    grams = [gaussian_gram(p, b) for p, b in zip(points_of(flags), (0.9, 0.8), strict=True)]
    for name, truncation in (("Vendi", None), ("Vendi, t = 20", 20)):
        curve = found.entropy.sel(curve=name)
        expected = [entropy(g, truncation=truncation) for g in (*grams, grams[0] * grams[1])]
        np.testing.assert_allclose(curve.sel(repeat=0, n=150), expected, rtol=2e-5)
        for repeat, sizes in enumerate(([60, 150], [60])):
            assert curve.sel(repeat=repeat).dropna("n").n.values.tolist() == sizes
    known = found.sel(n=[60, 150])
    assert known.method.sel(repeat=0).values.tolist() == ["exact", "exact"]
    low, high = (known.interval.sel(repeat=0, end=end) for end in range(2))
    np.testing.assert_array_equal(low, high)
    assert np.isfinite(low.sel(curve="Vendi")).all()


def test_repeats_and_truncations_differ(finished):
    found = finished[0].found.entropy.sel(rule="median", n=[40, 80])
    assert found.sizes["curve"] == 4 and np.isfinite(found).all()
    assert (found.sel(repeat=0) != found.sel(repeat=1)).any()
    assert (found.diff("curve").isel(curve=slice(2)) != 0).any(("repeat", "term", "n")).all()


def test_a_score_is_read_off_its_three_entropies():
    entropies = np.log([8.0, 3.0, 12.0])
    labels = {"term": ["outputs", "prompts", "joint"]}
    scores = convergence.scores_of(xr.Dataset({"entropy": ("term", entropies)}, labels))
    expected = {"vendi": 8, "conditional": 4, "information": 2}
    np.testing.assert_allclose(scores.sel(score=list(expected)), list(expected.values()))


@pytest.mark.slow
def test_estimated_curves_are_saved_with_their_intervals(tmp_path):
    """At all pairs the random order does not matter, so the two runs estimate the same."""
    generator = np.random.default_rng(1)
    for name, d in {"x": 6, "t": 4}.items():
        np.save(tmp_path / f"{name}.npy", generator.normal(size=(600, d)).astype(np.float32))
    files = [f"--{k}={tmp_path / f'{v}.npy'}" for k, v in {"outputs": "x", "prompts": "t"}.items()]
    widths = ("--output_bandwidth=0.7", "--prompt_bandwidth=0.7", "--repeats=1", "--truncation=40")
    runs = {}
    for method, more in (("exact", ()), ("stored", ("--rtol=0.002",))):
        flags = (*files, *widths, "--sizes=600", f"--method={method}", *more)
        runs[method] = execute(Convergence, tmp_path / method, *flags)
        assert runs[method].found.method.sel(n=600).item() == method
    values = convergence.scores_of(runs["exact"].found)
    place = {"rule": "given", "repeat": 0, "n": 600, "score": "conditional"}
    errors = []
    for name in ("Vendi", "Vendi, t = 40"):
        value = values.sel(place | {"curve": name}).item()
        exact, (low, high) = (
            run.found.interval.sel(place | {"curve": name}).values for run in runs.values()
        )
        assert exact == pytest.approx([value, value], rel=1e-5)
        assert low - (high - low) / 4 < value < high + (high - low) / 4
        assert 0 < (high - low) / 2 < 0.0021 * value
        estimate = convergence.scores_of(runs["stored"].found).sel(place | {"curve": name}).item()
        errors.append(abs(estimate / value - 1))
    found = convergence.deviation([runs["stored"]], [runs["exact"]], "conditional")
    assert found == pytest.approx(max(errors)) and 0 < found < 0.003


def test_mean_and_spread_are_over_the_repeats_that_have_a_size():
    """Scores 1, 4, 9, 5 and 3, 8, -, 5 at four sizes, of which the last is all pairs."""
    vendi = np.log(np.array([[1, 4, 9, 5], [3, 8, np.nan, 5]]))
    terms = np.stack([vendi, 0 * vendi, vendi], axis=1)
    labels = {"term": ["outputs", "prompts", "joint"], "n": [10, 20, 30, 40]}
    found = xr.Dataset({"entropy": (("repeat", "term", "n"), terms)}, labels)
    mean, spread = (v.sel(score="vendi").values for v in convergence.over_orders(found))
    np.testing.assert_allclose(mean, [2, 6, 9, 5])
    np.testing.assert_allclose(spread, [np.sqrt(2), np.sqrt(8), np.nan, np.nan])
    alone = convergence.over_orders(found.isel(repeat=[0]))[1]
    assert np.isnan(alone).all()


def test_the_table_says_where_each_curve_ends(finished):
    run, _ = finished
    (grid,) = run.study.tables(run)
    columns = [list(column.cells) for column in grid.columns]
    row = columns[1].index("Conditional-RKE")
    place = {"curve": "RKE", "score": "conditional", "n": ROWS}
    last = convergence.scores_of(run.found).sel(place).mean().item()
    assert columns[2][row] == "150"
    assert columns[3][row] == f"{last:.4g}"
    assert "Information-Vendi, t = 32" in columns[1]


def test_figures_say_what_settles_and_captions_what_is_shown(finished):
    run, _ = finished
    figures = Convergence.figures([run])
    assert list(figures) == ["convergence", "convergence_information", "convergence_vendi"]
    figure = figures["convergence"]
    caption = figure._supxlabel.get_text().replace("\n", " ")
    (widths,) = run.study.bandwidths.axis
    named = f"median {widths.outputs:.3g} / {widths.prompts:.3g}"
    for part in ("150 pairs", "2 random orders", "seed 0", named):
        assert part in caption
    assert "estimated" not in caption
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [
        "Conditional-Vendi",
        "Conditional-Vendi, t = 32",
        "Conditional-Vendi, t = 10",
        "Conditional-RKE",
    ]
    mean = convergence.over_orders(run.found)[0].sel(rule="median", score="conditional")
    starts = [convergence.settled_from(mean.sel(curve=name)) for name in mean.curve.values]
    assert starts[0] is None and starts[-1] is not None
    (axes,) = figure.axes
    assert axes.get_title() == (
        f"median rule: Conditional-RKE within 2% from {starts[-1]} of 150;\n"
        "Conditional-Vendi does not settle"
    )
    lines = [container[0] for container in axes.containers]
    assert len({(line.get_color(), str(line._dash_pattern)) for line in lines}) == 4
    circles = [line for line in axes.get_lines() if line.get_markersize() == 10]
    assert len(circles) == sum(start is not None for start in starts)


def changed(run, **fields):
    return dataclasses.replace(run, study=dataclasses.replace(run.study, **fields))


def test_estimates_are_compared_where_pairs_orders_and_kernels_are_the_same(finished):
    run, _ = finished
    known = changed(run, method="exact")
    assert convergence.deviation([run], [], "vendi") is None
    assert convergence.deviation([run], [known], "vendi") == 0
    (widths,) = run.study.bandwidths.axis
    other = lab.Rules(axis=(dataclasses.replace(widths, prompts=1.01 * widths.prompts),))
    assert convergence.deviation([run], [changed(known, bandwidths=other)], "vendi") is None
    for changes in ({"arrays": {"outputs": "of others"}}, {"seed": 1}):
        stranger = dataclasses.replace(known, identity={**run.identity, **changes})
        assert convergence.deviation([run], [stranger], "vendi") is None


def test_runs_of_other_data_have_figures_of_their_own(finished):
    """The emoji's keep their names; a set that was named is in the name of its figures."""
    run, _ = finished
    shown = {}
    for folder in ("convergence-gaussian", "convergence-captions-gaussian"):
        other = dataclasses.replace(run, folder=run.folder.with_name(folder))
        shown |= {other.data: other}
    assert list(shown) == ["", "captions"]
    known = changed(shown["captions"], method="exact")
    names = ("convergence", "convergence_information", "convergence_vendi")
    assert set(Convergence.figures([known])) == {f"{name}_captions" for name in names}
    both = Convergence.figures([*shown.values(), known])
    assert set(both) == {*names, *(f"{name}_captions" for name in names)}
    # A run by all eigenvalues has no panel beside an estimated one.
    assert [len(figure.axes) for figure in both.values()] == [1] * 6


def test_runs_with_other_truncations_and_sizes_stand_side_by_side(finished, tmp_path):
    run, _ = finished
    flags = (*small_run(Convergence, tmp_path, 0), "--rules=std", "--truncation=7", "--sizes=30,60")
    other = execute(Convergence, tmp_path, *flags)
    figure = Convergence.figures([run, other])["convergence"]
    assert [axes.get_title().partition(":")[0] for axes in figure.axes] == [
        "median rule",
        "std rule",
    ]
    assert convergence.deviation([run], [other], "vendi") is None


def test_the_set_is_read_off_the_folder_whatever_the_variant(finished):
    run, _ = finished
    for folder, name in {
        "convergence": "",
        "convergence-mixture": "mixture",
        "convergence-captioning-cosine-exact": "captioning",
        "convergence-captionsx": "",
        "elsewhere-captions": "",
    }.items():
        assert dataclasses.replace(run, folder=run.folder.with_name(folder)).data == name


def test_all_pairs_are_the_last_tick():
    assert convergence.ticks(11_822) == [250, 1000, 4000, 11_822]
    assert convergence.ticks(8091) == [250, 1000, 4000, 8091]
    assert convergence.ticks(1400) == [250, 1400]
    assert convergence.ticks(100) == [100]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--sizes=40,1000",), "between 2 and n = 150"),
        (("--rules=nearest",), "expected some of variance, std, median"),
        (("--kernel=cosine", "--rules=median"), "--rules means nothing with --kernel=cosine"),
        (("--truncation=half",), "whole numbers or 'scaled', received 'half'"),
        (("--truncation=0",), "--truncation"),
        (("--orders=0",), "order"),
        (("--repeats=0",), "--repeats"),
        (("--rtol=2",), "--rtol: expected a number above 0 and below 1"),
        (("--method=exact", "--rtol=0.1"), "--rtol means nothing with --method=exact"),
        (("--method=fast",), "method"),
    ],
)
def test_bad_flags_are_refused(tmp_path, flags, message):
    own = small_run(Convergence, tmp_path, 0)[:2]
    with pytest.raises(ValueError, match=message):
        execute(Convergence, tmp_path, *own, *flags)


def test_too_few_rows_for_a_rule_say_which(tmp_path):
    for seed, name in enumerate(("x", "t")):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(seed).normal(size=(12, 3)))
    own = [f"--outputs={tmp_path / 'x.npy'}", f"--prompts={tmp_path / 't.npy'}"]
    message = r"--rules=variance: the rule 'variance' needs 20 rows, received 12"
    with pytest.warns(UserWarning, match="float64"), pytest.raises(ValueError, match=message):
        execute(Convergence, tmp_path, *own)


def test_arrays_of_one_file_are_named_by_key(tmp_path):
    own = small_run(Convergence, tmp_path, 0)
    outputs, prompts = (np.load(flag.partition("=")[2]) for flag in own[:2])
    np.savez(tmp_path / "both.npz", x=outputs, t=prompts)
    both = tmp_path / "both.npz"
    named = (f"--outputs={both}", f"--prompts={both}", "--outputs_key=x")
    run = execute(Convergence, tmp_path, *named, "--prompts_key=t", *own[2:])
    assert run.study.description == "both: 150 pairs from both.npz and both.npz"
    with pytest.raises(ValueError, match="keys found are t, x"):
        execute(Convergence, tmp_path, *named, *own[2:])


def test_default_sizes_go_to_all_pairs_and_stop_where_spectra_would_take_hours():
    assert convergence.sizes_of(None, 11_822) == (250, 500, 1000, 2000, 4000, 7000, 11_822)
    assert convergence.sizes_of(None, 100) == (100,)
    assert convergence.sizes_of(None, 10**6)[-1] == 20_000
    assert convergence.sizes_of((5, 3, 5), 10) == (3, 5)


def test_large_sizes_are_computed_in_the_first_random_order_alone(tmp_path):
    flags = [*small_run(Convergence, tmp_path, 0), "--sizes=40,80", "--repeated_up_to=60"]
    run = execute(Convergence, tmp_path, *flags)
    for curve, sizes in {"Vendi": ([40, 80], [40]), "RKE": ([80, ROWS], [])}.items():
        for repeat, expected in enumerate(sizes):
            found = run.found.entropy.sel(curve=curve, rule="median", repeat=repeat)
            there = found.dropna("n").n.values
            shown = there if curve == "Vendi" else [n for n in there if n in (80, ROWS)]
            assert list(shown) == expected
    # The first random order costs most.
    study = dataclasses.replace(
        run.study, sizes=(1000, 4000, 7000, 11_822), n=11_822, repeated_up_to=4000
    )
    first, second = (study.cost(rule=None, repeat=repeat) for repeat in (0, 1))
    assert first > 3 * second


def test_the_way_of_a_spectrum_goes_by_its_size(monkeypatch):
    assert convergence.method_of("exact", 10**5) == "exact"
    assert convergence.method_of("auto", 1000) == "exact"
    assert convergence.method_of("auto", 1001) == "stored"
    monkeypatch.setattr(convergence.memory, "fits", lambda n, dtype: False)
    assert convergence.method_of("auto", 1001) == "matrix-free"
