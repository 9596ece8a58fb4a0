"""The type ablation, on types whose diversity is known."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import xarray as xr
from small import small_run
from studies import execute

import condvendi_jax as cv
from experiments import lab, type_draws
from experiments.data import PairedEmbeddings
from experiments.type_ablation import TypeAblation
from experiments.type_draws import PROMPTINGS, SCORES

pytestmark = pytest.mark.slow

TYPES, MODES, PER_MODE = 3, 2, 4
AXES = ("prompting", "score", "j")


def write(folder, **arrays):
    for role, array in arrays.items():
        np.save(folder / f"{role}.npy", array)
    return [f"--{role}={folder / role}.npy" for role in arrays]


def known():
    """Three types of two modes each, all far apart; one wording, with the type and without."""
    types = np.repeat(np.arange(TYPES), MODES * PER_MODE)
    modes = MODES * types + np.tile(np.repeat(np.arange(MODES), PER_MODE), TYPES)
    return {
        "outputs": 9 * np.eye(TYPES * MODES, dtype=np.float32)[modes],
        "prompts": np.ones((len(types), TYPES), np.float32),
        "typed_prompts": 9 * np.eye(TYPES, dtype=np.float32)[types],
        "types": np.array(["ape", "bee", "cow"])[types],
    }


WIDTHS = ("--output_bandwidth=0.5", "--prompt_bandwidth=0.5", "--scales=1", "--repeats=2")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("types")
    wording = write(folder, wording=np.zeros(TYPES * MODES * PER_MODE, int))
    return execute(TypeAblation, folder, *write(folder, **known()), *wording, *WIDTHS)


def test_each_type_more_is_diversity_where_the_prompt_leaves_it_open(finished):
    assert finished.study.exchanged
    assert finished.study.per_type == MODES * PER_MODE
    j = np.arange(1, TYPES + 1)
    for draw in finished.found.value.sel(scale=1).transpose("repeat", *AXES).values:
        unspecified, specified = draw
        for index, score in enumerate(SCORES):
            # With one wording, prompts without the type are one: no score can tell them apart.
            np.testing.assert_allclose(unspecified[index], MODES * j, rtol=1e-4, err_msg=score)
            whole = score in ("Vendi", "RKE")
            expected = MODES * (j if whole else np.ones(TYPES))
            np.testing.assert_allclose(specified[index], expected, rtol=1e-4, err_msg=score)
    for found in finished.results.values():
        np.testing.assert_allclose(found.agreement, [0, 1])
        np.testing.assert_allclose(found.stability, [1, 1])


def test_growth_and_correlation_of_the_known_scores(finished):
    draws = finished.found.value.sel(scale=1)
    found = type_draws.growth(draws.sel(score="Conditional-Vendi"))
    np.testing.assert_allclose(found.value, [TYPES, 1], rtol=1e-4)
    np.testing.assert_allclose(found.error, 0, atol=1e-4)
    for family in ("Vendi", "RKE"):
        for kind in ("Cluster", "K-means Cluster"):
            both = type_draws.correlation(draws, family, kind, None, seed=0)
            np.testing.assert_allclose(both, 1, atol=1e-5)


def test_correlations_have_the_sign_and_the_interval_of_their_draws():
    draws = np.ones((4, 2, len(SCORES), 5))
    j = np.arange(5.0)
    draws[:, 0, SCORES.index("Conditional-RKE")] = j
    draws[:2, 0, SCORES.index("Cluster-RKE")] = 3 + 2 * j
    draws[2:, 0, SCORES.index("Cluster-RKE")] = 3 - 2 * j
    labels = {"repeat": range(4), "prompting": list(PROMPTINGS), "score": list(SCORES), "j": j}
    draws = xr.DataArray(draws, labels, tuple(labels))
    r, low, high = type_draws.correlation(draws, "RKE", "Cluster", PROMPTINGS[0], seed=0)
    assert r == pytest.approx(0)
    assert (low, high) == pytest.approx((-1, 1))
    # Vendi's do not change, and those of the other prompting neither.
    for family, prompting in (("Vendi", PROMPTINGS[0]), ("RKE", PROMPTINGS[1])):
        found = type_draws.correlation(draws, family, "Cluster", prompting, seed=0)
        assert np.isnan(found).all()


def test_a_draw_exchanges_prompts_within_types_only():
    types = np.array(["a", "b", "c"])[np.random.default_rng(0).integers(3, size=60)]
    least = min(np.unique(types, return_counts=True)[1])
    rows, prompts = type_draws.draw_rows(types, least, exchanged=True, seed=[1])
    assert len(set(rows.tolist())) == len(set(prompts.tolist())) == 3 * least
    np.testing.assert_array_equal(types[rows], types[prompts])
    assert (rows != prompts).any()
    assert len(np.unique(types[rows][:least])) == 1
    same, kept = type_draws.draw_rows(types, least, exchanged=False, seed=[1])
    np.testing.assert_array_equal(same, kept)
    orders = {
        tuple(types[type_draws.draw_rows(types, 1, exchanged=True, seed=[s])[0]]) for s in range(40)
    }
    assert len(orders) == 6


def test_several_clusterings_at_once_are_scored_as_one_by_one():
    generator = np.random.default_rng(0)
    outputs = generator.normal(size=(40, 3)).astype(np.float32)
    labelings = [generator.integers(k, size=n) for k, n in ((1, 20), (3, 40), (7, 33))]
    kernel = cv.Gaussian(0.8)
    found = type_draws.cluster_scores(outputs, labelings, kernel)
    for labels, (by_vendi, by_rke) in zip(labelings, found.T, strict=True):
        rows = outputs[: len(labels)]
        assert by_vendi == pytest.approx(
            float(cv.clusters.cluster_vendi(rows, labels, kernel=kernel))
        )
        assert by_rke == pytest.approx(float(cv.clusters.cluster_rke(rows, labels, kernel=kernel)))


def test_k_means_gives_every_start_the_best_first():
    generator = np.random.default_rng(0)
    points = np.repeat(generator.normal(size=(12, 2)), 3, axis=0).astype(np.float32)

    def inertia(labels):
        return sum(
            ((points[labels == c] - points[labels == c].mean(0)) ** 2).sum() for c in range(4)
        )

    starts = type_draws.by_k_means(points, 4, 8, jax.random.key(0))
    assert len(starts) == 8
    found = [inertia(labels) for labels in starts]
    assert found == pytest.approx(sorted(found), rel=1e-5)
    assert found[0] < found[-1]
    (all_points,) = type_draws.by_k_means(points, 99, 1, jax.random.key(0))
    assert len(np.unique(all_points)) == 12


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    return folder, small_run(TypeAblation, folder, 0)


def test_bandwidths_are_of_both_promptings_together(small, tmp_path):
    """Typed prompts lie further apart, and the median of all distances says so."""
    _, flags = small
    own = [flag for flag in flags if "bandwidth" not in flag and "scales" not in flag]
    setups = {}
    for swapped in (False, True):
        given = TypeAblation(bandwidths=lab.Scales(rule="median"))
        arrays = {f.partition("=")[0][2:]: np.load(f.partition("=")[2]) for f in own[:3]}
        first, second = arrays["prompts"], arrays["typed_prompts"]
        pairs = PairedEmbeddings(
            "own",
            arrays["outputs"],
            second if swapped else first,
            "own",
            labels={"types": np.repeat(["ape", "bee", "cow"], 8)},
            further={"typed_prompts": first if swapped else second},
        )
        setups[swapped] = given.prepare(lambda p=pairs: p, 0).study
    widths = [setups[swapped].bandwidths.prompt_bandwidth for swapped in (False, True)]
    assert widths[0] == pytest.approx(widths[1], rel=1e-5)
    assert setups[False].bandwidths.scales == (0.5, 1, 2)
    assert not setups[False].exchanged
    assert setups[False].per_type == 8


def test_the_second_encoder_takes_its_own_prompts(small, tmp_path):
    _, flags = small
    shown = dict(flag[2:].split("=") for flag in flags)
    second = ("--prompts_by=second", f"--second_prompts={shown['typed_prompts']}")
    more = [*second, f"--second_typed_prompts={shown['prompts']}"]
    run = execute(TypeAblation, tmp_path, *flags, *more, "--repeats=1", "--scales=1")
    unspecified, specified = run.found.value.sel(score="Conditional-Vendi").values[0, 0, :, -1]
    # The encoders are exchanged: now it is the other prompts that leave the type open.
    assert specified > 1.5 * unspecified
    assert run.folder.name == "type_ablation-second"
    assert run.study.prompts_by == "second"


def test_captions_say_data_draws_bandwidths_and_seed(finished):
    figures = TypeAblation.figures([finished])
    assert set(figures) == {
        "type_ablation_outputs",
        "type_ablation_bandwidths",
        "type_ablation_correlation",
    }
    for name, parts in {
        "type_ablation_outputs": (
            "24 pairs",
            "2 draws",
            "seed 0",
            "8 a type",
            "(outputs / prompts) 0.5 ",
        ),
        "type_ablation_bandwidths": ("2 draws of 8 a type", "seed 0", "standard deviation"),
        "type_ablation_correlation": ("2 draws of 8 a type", "Pearson"),
    }.items():
        caption = figures[name]._supxlabel.get_text().replace("\n", " ")
        assert all(part in caption for part in parts), caption
    titles = [axes.get_title() for axes in figures["type_ablation_outputs"].axes[:6]]
    assert titles[:3] == ["Conditional-Vendi x 3", "Vendi x 3", "Cluster-Vendi x 3"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--per_type=9",), "--per_type: received 9, but there are 8 of the type ape"),
        (("--per_type=0",), "--per_type"),
        (("--repeats=0",), "--repeats"),
        (("--restarts=0",), "--restarts"),
        (("--prompts_by=second",), "--second_prompts: the study needs the prompts twice"),
        (("--prompts_by=third",), "prompts_by"),
        (("--scales=1,1",), "a scale is given twice"),
    ],
)
def test_bad_flags_are_refused(small, tmp_path, flags, message):
    with pytest.raises(ValueError, match=message):
        execute(TypeAblation, tmp_path, *small[1], *flags)


def test_files_that_do_not_fit_are_refused(small, tmp_path):
    flags = dict(flag[2:].split("=") for flag in small[1])
    one = np.array(["a"] * 24)
    narrow = np.zeros((24, 2), np.float32)
    for role, array, message in (
        ("types", one, "--types: expected at least two types, received 1"),
        ("typed_prompts", narrow, r"of one encoder, received shapes \(24, 3\) and \(24, 2\)"),
    ):
        changed = flags | {role: str(tmp_path / f"{role}.npy")}
        np.save(changed[role], array)
        with pytest.raises(ValueError, match=message):
            execute(
                TypeAblation, tmp_path, *(f"--{name}={value}" for name, value in changed.items())
            )
    del flags["typed_prompts"]
    with pytest.raises(ValueError, match="--typed_prompts: the study needs the prompts twice"):
        execute(TypeAblation, tmp_path, *(f"--{name}={value}" for name, value in flags.items()))


@pytest.mark.filterwarnings("ignore:.*the Gram is numerically the identity")
def test_fewer_of_each_type_are_taken_where_that_is_asked(small, tmp_path):
    run = execute(TypeAblation, tmp_path, *small[1], "--per_type=1", "--repeats=1", "--scales=1")
    found = run.found.value
    np.testing.assert_allclose(found.sel(j=1), 1, rtol=1e-5)
    assert (found.sel(j=3, score="Vendi") > 1.5).all()
    assert np.isnan(type_draws.over_draws(found).error).all()


def test_results_of_draws_differ_and_are_read_back(small, tmp_path):
    run = execute(TypeAblation, tmp_path, *small[1])
    assert run.study.per_type == 8
    first, second = run.results.values()
    assert first.value.shape == (2, 2, len(SCORES), 3)
    assert (first.value != second.value).any()
    assert json.loads((run.folder / "run.json").read_text())
    scores, correlations, indices = run.study.tables(run)
    rows = set(zip(*(column.cells for column in scores.columns[:3]), strict=True))
    assert ("1", "Conditional-Vendi", "3") in rows
    assert correlations.row_count == 8 and indices.row_count == 2


@pytest.fixture(scope="module")
def of_models(tmp_path_factory):
    """Runs of two models in the same files: one has both modes of every type, the other one."""
    folder = tmp_path_factory.mktemp("models")
    both = {role: np.concatenate([array] * 2) for role, array in known().items()}
    half = len(both["types"]) // 2
    both["outputs"][half:] = np.repeat(both["outputs"][half :: MODES * PER_MODE], 8, axis=0)
    models = write(folder, models=np.repeat(["model one", "model/two"], half))
    flags = [*write(folder, **both), *models, *WIDTHS, "--scales=1,2"]
    names = ("model one", "model/two")
    return flags, [
        execute(TypeAblation, folder / str(k), *flags, f"--model={m}") for k, m in enumerate(names)
    ]


def test_a_model_is_taken_alone(of_models):
    _, runs = of_models
    for run, modes in zip(runs, (MODES, 1), strict=True):
        assert run.study.per_type == MODES * PER_MODE
        assert run.study.n == TYPES * MODES * PER_MODE
        found = run.found.value.sel(scale=1)
        unspecified = found.sel(score="RKE", prompting=PROMPTINGS[0])
        np.testing.assert_allclose(unspecified / (modes * unspecified.j), 1, rtol=1e-4)
        conditional = found.sel(score="Conditional-RKE", prompting=PROMPTINGS[1])
        np.testing.assert_allclose(conditional, modes, rtol=1e-4)
    assert [run.folder.name for run in runs] == [
        "type_ablation-model_one",
        "type_ablation-model_two",
    ]
    assert runs[1].study.description.endswith("; the 24 of model/two")


def test_models_stand_side_by_side_and_not_among_the_sets(of_models, finished):
    _, runs = of_models
    figures = TypeAblation.figures(runs)
    assert set(figures) == {
        "type_ablation_outputs",
        "type_ablation_outputs_model one",
        "type_ablation_outputs_model/two",
    }
    axes = figures["type_ablation_outputs"].axes
    titles = [panel.get_title().partition(":")[0] for panel in axes[:2]]
    assert titles == ["model one", "model/two"]
    heights = [panel.get_lines()[0].get_ydata()[-1] for panel in axes[:2]]
    assert heights == pytest.approx([TYPES * MODES, TYPES], rel=1e-4)
    assert "type_ablation_bandwidths" in TypeAblation.figures([finished, *runs])


def test_bandwidths_are_those_of_all_models(of_models):
    flags, _ = of_models
    files = dict(flag[2:].split("=") for flag in flags[:5])
    arrays = {role: np.load(path) for role, path in files.items()}
    pairs = PairedEmbeddings(
        "own",
        arrays["outputs"],
        arrays["prompts"] + 0.1 * arrays["typed_prompts"],
        "own",
        labels={role: arrays[role] for role in ("types", "models")},
        further={"typed_prompts": arrays["typed_prompts"]},
    )
    found = [
        TypeAblation(model=model).prepare(lambda: pairs, 0).study
        for model in (None, "model one", "model/two")
    ]
    assert found[0].bandwidths == found[1].bandwidths == found[2].bandwidths
    assert [settings.n for settings in found] == [48, 24, 24]
    with pytest.raises(ValueError, match="unknown 'three'; known: model one, model/two"):
        TypeAblation(model="three").prepare(lambda: pairs, 0)
    without = dataclasses.replace(pairs, labels={"types": arrays["types"]})
    with pytest.raises(ValueError, match="--model: own has no models"):
        TypeAblation(model="three").prepare(lambda: without, 0)
