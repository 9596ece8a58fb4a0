"""The studies of types, clusters and modes of prompts, and of the model's or prompts' diversity."""

from typing import Any

import jax
import numpy as np
import pytest
import studies
import xarray as xr
from oracles import gaussian_gram, scores
from scipy import stats
from small import flags, widths, write

import condvendi_jax as cv
from experiments import lab
from experiments.conditional_vendi import model_or_prompts, prompt_clusters
from experiments.conditional_vendi import type_ablation as of_types
from experiments.conditional_vendi.prompt_clusters import PromptClusters
from experiments.conditional_vendi.prompt_modes import PromptModes, told, whole_prompts
from experiments.conditional_vendi.type_ablation import EACH, PROMPTINGS, SCORES, TypeAblation
from experiments.data import PairedEmbeddings
from experiments.lab import sizes, store

pytestmark = pytest.mark.slow
CLUSTERED = [*of_types.CONDITIONAL]

TYPES, MODES, PER_MODE = 3, 2, 4
WIDTHS = [*widths(0.5), *flags(scales=1, repeats=2, in_all="2,6,9")]


def known():
    """Three types of two modes each, all far apart; one wording, with the type and without."""
    types = np.repeat(np.arange(TYPES), MODES * PER_MODE)
    modes = MODES * types + np.tile(np.repeat(np.arange(MODES), PER_MODE), TYPES)
    return {
        "outputs": 9.0 * np.eye(TYPES * MODES)[modes],
        "prompts": np.ones((len(types), TYPES)),
        "typed_prompts": 9.0 * np.eye(TYPES)[types],
        "types": np.array(["ape", "bee", "cow"])[types],
    }


def small_type_ablation(folder):
    return [*write(folder, **known(), wording=np.zeros(24, int)), *WIDTHS]


type_ablation_run = studies.finished(TypeAblation, small_type_ablation)


def test_each_type_more_is_diversity_where_the_prompt_leaves_it_open(type_ablation_run):
    study, found = type_ablation_run.study, type_ablation_run.found
    assert study.exchanged
    draws = found.value.sel(scale=1, design=EACH)
    for score in SCORES[:-1]:
        # With one wording, prompts without the type are one: no score can tell them apart.
        for prompting in PROMPTINGS:
            grows = prompting == PROMPTINGS[0] or score in ("Vendi", "RKE")
            expected = MODES * (draws.j if grows else xr.ones_like(draws.j))
            value = draws.sel(score=score, prompting=prompting)
            np.testing.assert_allclose(value / expected, 1, rtol=1e-4, err_msg=score)
    np.testing.assert_allclose(found.agreement, [[0, 1]] * 2)
    np.testing.assert_allclose(found.stability, 1)
    growth = of_types.over_one(draws.sel(score="Conditional-Vendi")).isel(j=-1)
    np.testing.assert_allclose(growth.value, [TYPES, 1], rtol=1e-4)
    np.testing.assert_allclose(growth.error, 0, atol=1e-4)
    np.testing.assert_allclose(of_types.correlations(draws, ["prompting", "j"]), 1, atol=1e-5)
    # Designs hold n in all or of each type.
    designs = study.designs
    assert list(designs) == [EACH, "6 in all"]  # 2 are fewer than types, and no type has 9.
    assert [of.tolist() for of in designs[EACH]] == [[8, 0, 0], [8, 8, 0], [8, 8, 8]]
    assert [of.tolist() for of in designs["6 in all"]] == [[6, 0, 0], [3, 3, 0], [2, 2, 2]]
    named = found.value.sel(scale=1, prompting=PROMPTINGS[1], score="Conditional-RKE")
    assert (named.sel(design="6 in all", j=1) > 1).all() and (named <= MODES * 1.0001).all()
    assert found.value.sel(score=CLUSTERED[1], design="6 in all").isnull().all()
    # A growing sample that is not said is refused.
    unsaid = studies.changed(TypeAblation, grows=())
    with pytest.raises(ValueError, match=r"TypeAblation scores different .* \(0: 6 to 24\)"):
        sizes.refuse_unsaid(store.read_run(type_ablation_run.folder, unsaid))


def test_correlations_have_the_sign_of_each_draw():
    noise = np.random.default_rng(0).normal(size=(2, 2, len(SCORES), 5))
    draws, j = 1 + 1e-7 * noise, np.arange(5.0)  # What rounding leaves of a constant.
    draws[:, 0, SCORES.index("Conditional-RKE")] = j
    draws[:, 0, SCORES.index("Cluster-RKE")] = 3 + np.outer([2, -2], j)
    draws[:, 0, SCORES.index("K-means Cluster-RKE")] = [0, 1, 0, 1, 0]
    labels = {"repeat": range(2), "prompting": list(PROMPTINGS), "score": list(SCORES), "j": j}
    found = of_types.correlations(xr.DataArray(draws, labels, tuple(labels)), ["j"])
    signs = found.sel(prompting=PROMPTINGS[0], score=CLUSTERED[2:])
    np.testing.assert_allclose(signs, [[1, 0], [-1, 0]], atol=1e-12)
    # Vendi's do not change, and those of the other prompting neither.
    assert np.isnan(found.sel(score=CLUSTERED[:2])).all()
    assert np.isnan(found.sel(prompting=PROMPTINGS[1])).all()


def test_a_draw_exchanges_prompts_within_types_only():
    types = np.array(["a", "b", "c"])[np.random.default_rng(0).integers(3, size=60)]
    least = min(np.unique(types, return_counts=True)[1])
    rows, prompts = of_types.draw_rows(types, [least] * 3, exchanged=True, seed=[1])
    assert len(set(rows.tolist())) == len(set(prompts.tolist())) == 3 * least
    np.testing.assert_array_equal(types[rows], types[prompts])
    assert (rows != prompts).any() and len(np.unique(types[rows][:least])) == 1
    rows, prompts = of_types.draw_rows(types, [least] * 3, exchanged=False, seed=[1])
    np.testing.assert_array_equal(rows, prompts)
    draws = [of_types.draw_rows(types, [1] * 3, exchanged=True, seed=[s])[0] for s in range(40)]
    assert len({tuple(types[rows]) for rows in draws}) == 6


def test_scores_of_a_gram_matrix_are_the_librarys():
    generator = np.random.default_rng(0)
    x, t = generator.normal(size=(2, 40, 3)).astype(np.float32)
    kernels: Any = {"output_kernel": cv.Gaussian(0.8), "prompt_kernel": cv.Gaussian(1.5)}
    k_x, k_t = map(of_types.gram_of, kernels.values(), (x, t))
    labels = [generator.integers(k, size=40) for k in (3, 7)]
    found = of_types.scores_of(k_x, [k_t] * 2, labels[0], [None, labels[1]])
    pairs = cv.Pairs(x, t, prompt_ids=range(40), **kernels)
    expected = []
    for order in (1, 2):
        whole = cv.decompose(pairs, order=order)
        options: Any = {"kernel": kernels["output_kernel"], "order": order}
        by = [cv.clusters.cluster_vendi(x, of, **options) for of in labels]
        expected += [whole.conditional, whole.vendi, *by]
    expected.append(cv.decompose(pairs, order=2, unbiased=True).conditional)
    np.testing.assert_allclose(found[1], expected, rtol=1e-4)
    same = [0, 1, 4, 5, 8]
    np.testing.assert_allclose(found[0, same], found[1, same])
    np.testing.assert_allclose(found[0, [2, 6]], found[0, [1, 5]])  # One cluster without types.


def test_k_means_gives_every_start_the_best_first():
    points = np.repeat(np.random.default_rng(0).normal(size=(12, 2)), 3, axis=0).astype(np.float32)
    starts = of_types.by_k_means(points, 4, 8, jax.random.key(0))
    parts = [[points[labels == c] for c in range(4)] for labels in starts]
    inertia = [sum(len(p) * p.var(axis=0).sum() for p in of_start) for of_start in parts]
    assert len(starts) == 8 and inertia == pytest.approx(sorted(inertia), rel=1e-5)
    assert inertia[0] < inertia[-1]
    (all_points,) = of_types.by_k_means(points, 99, 1, jax.random.key(0))
    assert len(np.unique(all_points)) == 12
    close = np.stack([np.repeat([0.0, 240.0, 480.0], 5), 1e-3 * np.arange(15)], 1)
    (every,) = of_types.by_k_means(close.astype(np.float32), 15, 1, jax.random.key(0))
    assert sorted(every) == list(range(15))


def test_the_second_encoder_takes_its_own_prompts(tmp_path):
    own = small_type_ablation(tmp_path)
    shown = dict(flag[2:].split("=") for flag in own)
    second = flags(second_prompts=shown["typed_prompts"], second_typed_prompts=shown["prompts"])
    more = [*second, *flags(prompts_by="second", repeats=1, scales=1, per_type=5)]
    run = studies.execute(TypeAblation, tmp_path, *own, *more)
    # The encoders are exchanged: now it is the other prompts that leave the type open.
    values = run.found.value.sel(score="Conditional-Vendi", design=EACH).values
    unspecified, specified = values[0, 0, -1]
    assert specified == pytest.approx(3 * unspecified, rel=1e-4)
    assert (run.folder.name, run.study.per_type) == ("type_ablation-second", 5)


def test_a_model_is_taken_alone(tmp_path):
    """Of two models on the same prompts, the second has one mode of every type."""
    both = {role: np.concatenate([array] * 2) for role, array in known().items()}
    both["outputs"][24:] = np.repeat(both["outputs"][24 :: MODES * PER_MODE], 8, axis=0)
    own = [*write(tmp_path, **both, models=np.repeat(["model one", "model/two"], 24)), *WIDTHS]
    run = studies.execute(TypeAblation, tmp_path, *own, "--model=model/two")
    found = run.found.value.sel(scale=1, score="RKE", design=EACH)
    np.testing.assert_allclose(found / found.j, 1, rtol=1e-4)
    assert (run.study.n, run.folder.name) == (24, "type_ablation-model_two")
    assert run.study.description.endswith("; the 24 of model/two")
    with pytest.raises(ValueError, match="unknown 'three'; known: model one, model/two"):
        studies.execute(TypeAblation, tmp_path, *own, "--model=three")


GROUPS, MEMBERS = 4, 5


def small_prompt_clusters(folder):
    """Four groups of five prompts that the kernel cannot tell apart, an output each of its own.

    Of two models; a third one has too few of the prompts.
    """
    n = GROUPS * MEMBERS
    prompts = np.stack([10.0 * np.repeat(np.arange(GROUPS), MEMBERS), 1e-3 * np.arange(n)], 1)
    # Well apart under a bandwidth of 0.35, and not so far that the kernel would say nothing.
    outputs, rows = np.arange(n)[:, None] * np.ones(3), np.r_[np.tile(np.arange(n), 2), :3]
    names = [f"model {i}" for i in np.repeat(np.arange(2), n)] + ["small"] * 3
    files = write(folder, outputs=outputs[rows], prompts=prompts[rows], models=names)
    return [*files, *widths(0.35, 1), *flags(scales=1, counts="2,4,20", repeats=2)]


prompt_clusters_run = studies.finished(PromptClusters, small_prompt_clusters)


def test_scores_against_k_are_those_of_the_population(prompt_clusters_run):
    """Up to the true clusters the answer is a function of them: Conditional is 1, Information k.

    Beyond, Information stays and Conditional rises to the five outputs of each cluster.
    """
    study, found = prompt_clusters_run.study, prompt_clusters_run.found.isel(scale=0)
    assert (study.models, study.left_out) == (("model 0", "model 1"), ("small",))
    value = found.value.transpose("k", ...)
    for name in ("Vendi", "RKE"):
        conditional, information = (
            value.sel(score=f"{of}-{name}") for of in ("Conditional", "Information")
        )
        np.testing.assert_allclose(conditional.mean(["model", "repeat"]), [1, 1, MEMBERS], 1e-3)
        np.testing.assert_allclose(information.sel(k=[4, 20]), GROUPS, rtol=1e-3)
        assert (information.sel(k=2) <= 2.001).all()
        np.testing.assert_allclose(value.sel(score=name), conditional * information, rtol=1e-4)
    np.testing.assert_allclose(found.agreement.sel(k=[4, 20]), 1)


def test_a_prompt_gets_the_output_nearest_to_its_centre_and_models_a_mean_and_range():
    prompts = np.array([[0.0], [1.0], [5.0], [9.0], [10.0], [20.0]])
    found = prompt_clusters.answers(prompts, np.array([0, 0, 1, 0, 1, 1]))
    assert found.tolist() == [1, 1, 4, 1, 4, 4]  # Centres 10/3 and 35/3.
    values = xr.DataArray([[1.0, 2, 3], [2, 2, 1]], {"model": [0, 1], "k": [2, 4, 8]})
    found = prompt_clusters.over_models(values)
    np.testing.assert_allclose(found.value, [1.5, 2, 2])
    np.testing.assert_allclose(found.ends, [[1, 2, 1], [2, 2, 3]])


def test_at_k_of_all_prompts_the_scores_are_the_oracles(tmp_path):
    generator = np.random.default_rng(4)
    outputs, prompts = generator.normal(size=(10, 3)), generator.normal(size=(10, 4))
    own = [*write(tmp_path, outputs=outputs, prompts=prompts), *widths(0.9, 0.8)]
    run = studies.execute(PromptClusters, tmp_path, *own, *flags(scales="0.5,1", repeats=2))
    assert run.study.counts == (2, 3, 4, 5, 7, 10)
    for scale in (0.5, 1):
        grams = gaussian_gram(outputs, scale * 0.9), gaussian_gram(prompts, scale * 0.8)
        expected = [value for order in (1, 2) for value in scores(*grams, order=order).values()]
        found = run.found.value.sel(scale=scale, k=10).isel(model=0, repeat=1)
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def small_prompt_modes(folder):
    """Dogs: 12 prompts and eight outputs; sofas: 9 and two; planes: 6 and one; two pairs each."""
    group, prompt = np.repeat([0, 1, 2], [24, 18, 12]), np.arange(54) // 2
    prompts = np.stack([5.0 * group, 2e-3 * prompt], 1)
    outputs = 100 * group + np.arange(54) % np.array([8, 2, 1])[group]
    files = write(folder, outputs=1.0 * outputs[:, None], prompts=prompts)
    return [*files, *widths(0.1, 1), *flags(scales="1,0.5", modes=3)]


prompt_modes_run = studies.finished(PromptModes, small_prompt_modes)


def test_modes_of_known_groups_have_their_shares_sizes_and_scores(prompt_modes_run):
    found = prompt_modes_run.found.sel(scale=1)
    np.testing.assert_allclose(found.share, [24 / 54, 18 / 54, 12 / 54], rtol=1e-4)
    np.testing.assert_allclose(found["size"], [24, 18, 12], rtol=1e-3)
    np.testing.assert_allclose(found.value, [[8, 2, 1]] * 2, rtol=1e-3)
    for mode, prompts in enumerate(((0, 12), (12, 21), (21, 27))):
        assert set(found.prompts.values[mode]) <= set(range(*prompts))
    # Prompts are drawn with all of their outputs.
    prompts = np.repeat(np.arange(6.0), [1, 2, 3, 4, 5, 6])[:, None]
    rows = whole_prompts(prompts, 12, seed=0)
    kinds, counts = np.unique(prompts[rows], return_counts=True)
    assert 6 < len(rows) <= 12 and (counts == kinds + 1).all()
    assert len(whole_prompts(prompts, 21, seed=0)) == 21


def entropies_of(gram, weights):
    root = np.sqrt(weights / weights.sum())
    values = np.linalg.eigvalsh(gram * np.outer(root, root))
    values = values[values > 0]
    return np.array([-np.sum(values * np.log(values)), -np.log(np.sum(values**2))])


def influences(gram, weights, units):
    """The derivatives of both entropies in the logarithm of the weight of each unit."""
    tilts = 1e-5 * np.eye(units.max() + 1)[units].T
    ends = [[entropies_of(gram, weights * (1 + s * tilt)) for tilt in tilts] for s in (-1, 1)]
    return np.diff(ends, axis=0)[0].T / 2e-5


def test_covariances_are_sums_over_prompts():
    """Of influences under the weights v^2, by the eigenvectors v of the prompts' Gram."""
    rng, kind = np.random.default_rng(2), np.arange(40) % 20
    outputs, prompts = rng.normal(size=(40, 2)), rng.normal(size=(20, 2))[kind]
    pairs = PairedEmbeddings("own", outputs.astype("f4"), prompts.astype("f4"), "")
    scales = lab.Scales(output_bandwidth=0.8, prompt_bandwidth=0.9, scales=(1.0,))
    found = studies.computed(PromptModes(bandwidths=scales, modes=2), pairs)[1]
    vectors = np.linalg.eigh(gaussian_gram(prompts, 0.9))[1][:, ::-1]
    gram = gaussian_gram(outputs, 0.8)
    effects = [influences(gram, v**2, kind) for v in vectors[:, :2].T]
    for other in (1, 2):
        expected = np.sum(effects[0] * effects[other - 1], axis=1) * 20 / 19
        covariance = found.covariance.sel(mode=1, other=other)
        np.testing.assert_allclose(covariance, expected, rtol=1e-3, atol=1e-6)


def test_a_difference_of_modes_that_share_prompts_is_paired(prompt_modes_run):
    """By hand: log 4 in errors of sqrt(0.04 + 0.09 - 2 * 0.05)."""
    covariance = np.tile([[0.04, 0.05, 0], [0.05, 0.09, 0], [0, 0, 0.01]], (2, 1, 1))
    found = prompt_modes_run.found.sel(scale=1)
    found["covariance"] = (("score", "mode", "other"), covariance)
    vendi = told(found).sel(score="Vendi")
    apart = np.log(4) / np.sqrt(0.03)
    assert vendi.apart.sel(mode=1, other=2) == pytest.approx(apart, rel=1e-3)
    np.testing.assert_allclose(vendi.apart, -vendi.apart.transpose("other", "mode"))
    assert vendi.error.sel(mode=2).item() == pytest.approx(2 * 0.3, rel=1e-3)
    # Of modes 2 and 3 alone: log 2 in errors of sqrt(0.09 + 0.01).
    assert vendi.among.item() == pytest.approx(np.log(2) / np.sqrt(0.1), rel=1e-3)


def loaded(name):
    """Ten breeds, alike within, and 24 wordings; ten scenes that the captions ask for."""
    n = 1010 if name == "captions" else 1400
    types, wording, scene = np.arange(n) // 140, np.arange(n) % 24, np.arange(n) % 10
    pictures = np.where(np.arange(n) < 1000, "dog", "other")
    of = (scene, scene) if name == "captions" else (types, wording)
    outputs, prompts = (np.outer(kind, [9]).astype("f4") for kind in of)
    labels = {"types": types, "wording": wording, "pictures": pictures}
    return PairedEmbeddings(name, outputs, prompts, "", labels)


def test_only_what_prompts_leave_open_is_conditional(tmp_path, monkeypatch):
    """Ten breeds for one prompt are 10 and 10; one breed 1 and 1; ten scenes about 10, and 1."""
    monkeypatch.setattr(model_or_prompts, "load", loaded)
    own = [*widths(0.5), *flags(scales=1)]
    found = studies.execute(model_or_prompts.ModelOrPrompts, tmp_path, *own).found.sel(scale=1)
    expected = zip(([10, 10], [1, 1], [10, 1]), (1e-4, 1e-4, 0.2), strict=True)
    for name, (values, rtol) in zip(model_or_prompts.SETS, expected, strict=True):
        for order in ("Vendi", "RKE"):
            value = found.value.sel(set=name, score=[order, f"Conditional-{order}"])
            np.testing.assert_allclose(value, [values] * 10, rtol=rtol)


def test_draws_share_no_photograph_and_have_the_wordings_that_they_say():
    dogs, scenes = (loaded(name) for name in ("dogs", "captions"))
    for pairs in (dogs, scenes):
        pairs.outputs[:, 0] = np.arange(len(pairs))  # Their rows.
    drawn = list(model_or_prompts.draws(dogs, scenes.rows(np.arange(1000)), 0))
    rows = np.array([[outputs[:, 0] for outputs, _ in sets] for sets in drawn])
    assert rows.shape == (10, 3, 100)
    assert [len(np.unique(rows[:, kind])) for kind in range(3)] == [1000] * 3
    for (many, one, _), sets in zip(rows // 140, drawn, strict=True):
        assert np.bincount(many.astype(int)).tolist() == [10] * 10 and len(np.unique(one)) == 1
        assert len({*sets[0][0][:, 0], *sets[1][0][:, 0]}) == 200
        assert [len(np.unique(prompts, axis=0)) for _, prompts in sets] == [1, 10, 10]
    # Ratios are geometric means with Student's intervals.
    names, values = list(model_or_prompts.SETS), np.random.default_rng(0).uniform(1, 2, (5, 3))
    logs = np.log(values[:, 2] / values[:, 0])
    ends = stats.t.interval(0.95, 4, logs.mean(), stats.sem(logs))
    found = model_or_prompts.ratios(xr.DataArray(values, {"draw": range(5), "set": names}))
    np.testing.assert_allclose(found.sel(set=names[2]), np.exp([logs.mean(), *ends]))


test_flags_that_make_no_sense_are_refused = studies.refuses(
    (PromptClusters, small_prompt_clusters, "--counts=2,30", "at most the 20 prompts"),
    (PromptModes, small_prompt_modes, "--modes=28", "--modes: expected at most the 27 prompts, "),
)
