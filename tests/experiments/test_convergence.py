"""The convergence study: what it computes, on data whose scores an oracle knows."""

import dataclasses

import numpy as np
import pytest
from oracles import entropy, gaussian_gram
from small import small_run
from studies import execute

from experiments import convergence

STUDY = convergence.STUDY
ROWS, MODES = 150, 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("convergence")


@pytest.fixture(scope="module")
def finished(folder):
    flags = small_run(STUDY, folder, 0)
    return execute(STUDY, folder, *flags), [
        np.load(flag.partition("=")[2]).astype(np.float64) for flag in flags[:2]
    ]


def test_the_study_saves_what_the_oracle_computes(finished):
    run, points = finished
    settings = run.settings
    assert list(run.results) == [convergence.Cell("median", repeat) for repeat in (0, 1)]
    assert (settings.truncations, settings.sizes, run.seed) == ((32, 10), (40, 80), 0)
    widths = settings.bandwidths["median"]
    grams = [
        gaussian_gram(p, b) for p, b in zip(points, (widths.outputs, widths.prompts), strict=True)
    ]
    # At all pairs the random order does not matter, so the oracle needs no seed.
    expected = [entropy(g, order=2) for g in (*grams, grams[0] * grams[1])]
    for found in run.results.values():
        assert found.order_two_sizes[-1] == ROWS
        np.testing.assert_allclose(found.order_two[:, -1], expected, rtol=1e-5)


def test_spectra_of_all_pairs_are_the_oracles_and_taken_once(folder, tmp_path):
    flags = [*small_run(STUDY, tmp_path, 0)[:2], "--output_bandwidth=0.9", "--prompt_bandwidth=0.8"]
    run = execute(STUDY, tmp_path, *flags, "--sizes=60,150", "--truncation=20", "--repeats=2")
    points = [np.load(flag.partition("=")[2]).astype(np.float64) for flag in flags[:2]]
    grams = [gaussian_gram(p, b) for p, b in zip(points, (0.9, 0.8), strict=True)]
    first, second = run.results.values()
    assert first.sizes.tolist() == [60, 150]
    assert second.sizes.tolist() == [60]
    for index, truncation in enumerate((None, 20)):
        expected = [entropy(g, truncation=truncation) for g in (*grams, grams[0] * grams[1])]
        np.testing.assert_allclose(first.spectral[index, :, -1], expected, rtol=2e-5)
    assert first.methods == ("exact", "exact")
    np.testing.assert_array_equal(first.intervals[:, :, 0], first.intervals[:, :, 1])


def test_repeats_and_truncations_differ(finished):
    first, second = finished[0].results.values()
    assert (first.spectral != second.spectral).any()
    assert (first.spectral[0] != first.spectral[1]).any()
    assert (first.spectral[1] != first.spectral[2]).any()
    assert first.spectral.shape == (3, 3, 2)


def test_a_score_is_read_off_its_three_entropies():
    entropies = np.log([[8.0], [3.0], [12.0]])
    assert convergence._values(entropies, "vendi") == pytest.approx([8])
    assert convergence._values(entropies, "conditional") == pytest.approx([4])
    assert convergence._values(entropies, "information") == pytest.approx([2])


@pytest.mark.slow
def test_estimated_curves_are_saved_with_their_intervals(tmp_path):
    """At all pairs the random order does not matter, so the two runs estimate the same."""
    generator = np.random.default_rng(1)
    for name, d in {"x": 6, "t": 4}.items():
        np.save(tmp_path / f"{name}.npy", generator.normal(size=(600, d)).astype(np.float32))
    files = [f"--{k}={tmp_path / f'{v}.npy'}" for k, v in {"outputs": "x", "prompts": "t"}.items()]
    widths = ("--output_bandwidth=0.7", "--prompt_bandwidth=0.7", "--repeats=1", "--truncation=40")
    found = {}
    for method, more in (("exact", ()), ("stored", ("--rtol=0.002",))):
        run = execute(
            STUDY, tmp_path / method, *files, *widths, "--sizes=600", f"--method={method}", *more
        )
        (found[method],) = run.results.values()
        assert found[method].methods == (method,)
    for index in range(2):
        value = convergence._values(found["exact"].spectral[index], "conditional")[0]
        assert found["exact"].intervals[index, 1, :, 0] == pytest.approx([value, value], rel=1e-5)
        low, high = found["stored"].intervals[index, 1, :, 0]
        assert low - (high - low) / 4 < value < high + (high - low) / 4
        assert 0 < (high - low) / 2 < 0.0021 * value


def curve(values, sizes=(10, 20, 30)):
    return convergence.Curve("Vendi", np.array(sizes), np.array(values, float))


def test_mean_and_spread_are_over_the_repeats_that_have_a_size():
    found = curve([[1, 4, 9], [3, 8, np.nan]])
    np.testing.assert_allclose(found.mean, [2, 6, 9])
    np.testing.assert_allclose(found.spread[:2], [np.sqrt(2) / 2, np.sqrt(8) / 6])
    assert np.isnan(found.spread[2])
    assert np.isnan(curve([[1, 2, 3]]).spread).all()


def test_the_table_says_where_each_curve_ends(finished):
    run, _ = finished
    grid = convergence.table(run)
    columns = [list(column.cells) for column in grid.columns]
    row = columns[1].index("Conditional-RKE")
    last = [convergence._values(r.order_two, "conditional")[-1] for r in run.results.values()]
    assert columns[2][row] == "150"
    assert columns[3][row] == f"{np.mean(last):.4g}"
    assert "Information-Vendi, t = 32" in columns[1]


def test_captions_say_data_n_bandwidth_rule_truncation_and_seed(finished):
    run, _ = finished
    figures = convergence.draw([run])
    assert set(figures) == {"convergence", "convergence_information", "convergence_vendi"}
    figure = figures["convergence"]
    caption = figure._supxlabel.get_text().replace("\n", " ")
    for part in ("150 pairs", "2 random orders", "seed 0", "Bandwidths: median distance"):
        assert part in caption
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [
        "Conditional-Vendi",
        "Conditional-Vendi, t = 32",
        "Conditional-Vendi, t = 10",
        "Conditional-RKE",
    ]
    widths = run.settings.bandwidths["median"]
    assert f"{widths.outputs:.3g} (outputs)" in figure.axes[0].get_title()


def circles(figure):
    return [line for line in figure.axes[0].get_lines() if line.get_marker() == "o"]


def test_what_is_known_exactly_is_marked_where_pairs_and_kernels_are_the_same(finished):
    run, _ = finished

    def known(**changes):
        settings = dataclasses.replace(run.settings, method="exact", **changes)
        return dataclasses.replace(run, settings=settings)

    assert not circles(convergence.draw([run])["convergence"])
    # A circle a size for each of the three spectral curves, and one for the legend.
    assert len(circles(convergence.draw([run, known()])["convergence"])) == 4
    widths = run.settings.bandwidths["median"]
    other = {"median": dataclasses.replace(widths, prompts=1.01 * widths.prompts)}
    assert not circles(convergence.draw([run, known(bandwidths=other)])["convergence"])
    foreign = {**run.identity, "arrays": {"outputs": "of others"}}
    stranger = dataclasses.replace(known(), identity=foreign)
    assert not circles(convergence.draw([run, stranger])["convergence"])
    assert set(convergence.draw([known()])) == {"convergence_full"}


def test_runs_of_other_data_have_figures_of_their_own(finished):
    """The emoji's keep their names; a set that was named is in the name of its figures."""
    run, _ = finished
    shown = {}
    for folder in ("convergence-gaussian", "convergence-captions-gaussian"):
        other = dataclasses.replace(run, folder=run.folder.with_name(folder))
        shown |= {other.data: other}
    assert list(shown) == ["", "captions"]
    both = convergence.draw(list(shown.values()))
    names = ("convergence", "convergence_information", "convergence_vendi")
    assert set(both) == {*names, *(f"{name}_captions" for name in names)}
    for name in names:
        for end in ("", "_captions"):
            assert len(both[name + end].axes) == 2
    exact = dataclasses.replace(
        shown["captions"], settings=dataclasses.replace(run.settings, method="exact")
    )
    assert set(convergence.draw([exact])) == {"convergence_full_captions"}


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
    assert convergence._ticks(11_822) == [250, 1000, 4000, 11_822]
    assert convergence._ticks(8091) == [250, 1000, 4000, 8091]
    assert convergence._ticks(1400) == [250, 1400]
    assert convergence._ticks(100) == [100]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--sizes=40,1000",), "between 2 and n = 150"),
        (("--rules=nearest",), "expected some of variance, std, median"),
        (("--kernel=cosine", "--rules=median"), "--rules means nothing with --kernel=cosine"),
        (("--kernel=cosine", "--output_bandwidth=1"), "--output_bandwidth means nothing"),
        (("--output_bandwidth=0.5",), "give both"),
        (("--output_bandwidth=0.5", "--prompt_bandwidth=0"), "--prompt_bandwidth: expected a posi"),
        (
            ("--rules=std", "--output_bandwidth=0.5", "--prompt_bandwidth=1"),
            "--rules and --output_bandwidth",
        ),
        (("--truncation=half",), "whole numbers or 'scaled', received 'half'"),
        (("--truncation=0",), "--truncation"),
        (("--orders=0",), "order"),
        (("--repeats=0",), "--repeats"),
        (("--rtol=2",), "--rtol: expected a number between 0 and 1"),
        (("--method=exact", "--rtol=0.1"), "--rtol means nothing with --method=exact"),
        (("--method=fast",), "method"),
    ],
)
def test_bad_flags_are_refused(tmp_path, flags, message):
    own = small_run(STUDY, tmp_path, 0)[:2]
    with pytest.raises(ValueError, match=message):
        execute(STUDY, tmp_path, *own, *flags)


def test_too_few_rows_for_a_rule_say_which(tmp_path):
    for seed, name in enumerate(("x", "t")):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(seed).normal(size=(12, 3)))
    own = [f"--outputs={tmp_path / 'x.npy'}", f"--prompts={tmp_path / 't.npy'}"]
    message = r"--rules=variance: the rule 'variance' needs 20 rows, received 12"
    with pytest.warns(UserWarning, match="float64"), pytest.raises(ValueError, match=message):
        execute(STUDY, tmp_path, *own)


def test_arrays_of_one_file_are_named_by_key(tmp_path):
    own = small_run(STUDY, tmp_path, 0)
    outputs, prompts = (np.load(flag.partition("=")[2]) for flag in own[:2])
    np.savez(tmp_path / "both.npz", x=outputs, t=prompts)
    both = tmp_path / "both.npz"
    named = (f"--outputs={both}", f"--prompts={both}", "--outputs_key=x")
    run = execute(STUDY, tmp_path, *named, "--prompts_key=t", *own[2:])
    assert run.settings.data == "both: 150 pairs from both.npz and both.npz"
    with pytest.raises(ValueError, match="keys found are t, x"):
        execute(STUDY, tmp_path, *named, *own[2:])


def test_default_sizes_go_to_all_pairs_and_stop_where_spectra_would_take_hours():
    assert convergence._sizes(None, 11_822) == (250, 500, 1000, 2000, 4000, 7000, 11_822)
    assert convergence._sizes(None, 100) == (100,)
    assert convergence._sizes(None, 10**6)[-1] == 20_000
    assert convergence._sizes((5, 3, 5), 10) == (3, 5)


def test_large_sizes_are_computed_in_the_first_random_order_alone(tmp_path):
    flags = [*small_run(STUDY, tmp_path, 0), "--sizes=40,80", "--repeated_up_to=60"]
    first, second = execute(STUDY, tmp_path, *flags).results.values()
    assert (first.sizes.tolist(), second.sizes.tolist()) == ([40, 80], [40])
    assert first.order_two_sizes[-1] == ROWS
    assert second.order_two_sizes[-1] <= 60


def test_the_first_random_order_costs_most(finished):
    settings = dataclasses.replace(
        finished[0].settings, sizes=(1000, 4000, 7000, 11_822), n=11_822, repeated_up_to=4000
    )
    first, second = (
        convergence.cost(settings, convergence.Cell("median", repeat)) for repeat in (0, 1)
    )
    assert first > 3 * second


def test_the_way_of_a_spectrum_goes_by_its_size(monkeypatch):
    assert convergence._method("exact", 10**5) == "exact"
    assert convergence._method("auto", 1000) == "exact"
    assert convergence._method("auto", 1001) == "stored"
    monkeypatch.setattr(convergence.memory, "fits", lambda n, dtype: False)
    assert convergence._method("auto", 1001) == "matrix-free"
