"""The type ablation, on types whose diversity is known."""

from typing import Any

import jax
import numpy as np
import pytest
import studies
import xarray as xr
from small import flags, widths, write
from studies import changed, execute

import condvendi_jax as cv
from experiments.conditional_vendi import type_draws
from experiments.conditional_vendi.type_ablation import EACH, TypeAblation
from experiments.conditional_vendi.type_draws import CONDITIONAL, PROMPTINGS, SCORES
from experiments.lab import sizes, store

pytestmark = pytest.mark.slow
CLUSTERED = [*CONDITIONAL]


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


def small(folder, seed):
    return [*write(folder, **known(), wording=np.zeros(24, int)), *WIDTHS]


finished = studies.finished(TypeAblation)


def test_each_type_more_is_diversity_where_the_prompt_leaves_it_open(finished):
    assert finished.study.exchanged
    draws = finished.found.value.sel(scale=1, design=EACH)
    for score in SCORES[:-1]:
        # With one wording, prompts without the type are one: no score can tell them apart.
        for prompting in PROMPTINGS:
            grows = prompting == PROMPTINGS[0] or score in ("Vendi", "RKE")
            expected = MODES * (draws.j if grows else xr.ones_like(draws.j))
            told = draws.sel(score=score, prompting=prompting)
            np.testing.assert_allclose(told / expected, 1, rtol=1e-4, err_msg=score)
    np.testing.assert_allclose(finished.found.agreement, [[0, 1]] * 2)
    np.testing.assert_allclose(finished.found.stability, 1)
    growth = type_draws.over_one(draws.sel(score="Conditional-Vendi")).isel(j=-1)
    np.testing.assert_allclose(growth.value, [TYPES, 1], rtol=1e-4)
    np.testing.assert_allclose(growth.error, 0, atol=1e-4)
    np.testing.assert_allclose(type_draws.correlations(draws, ["prompting", "j"]), 1, atol=1e-5)


def test_correlations_have_the_sign_of_each_draw():
    noise = np.random.default_rng(0).normal(size=(2, 2, len(SCORES), 5))
    draws, j = 1 + 1e-7 * noise, np.arange(5.0)  # What rounding leaves of a constant.
    draws[:, 0, SCORES.index("Conditional-RKE")] = j
    draws[:, 0, SCORES.index("Cluster-RKE")] = 3 + np.outer([2, -2], j)
    draws[:, 0, SCORES.index("K-means Cluster-RKE")] = [0, 1, 0, 1, 0]
    labels = {"repeat": range(2), "prompting": list(PROMPTINGS), "score": list(SCORES), "j": j}
    found = type_draws.correlations(xr.DataArray(draws, labels, tuple(labels)), ["j"])
    told = found.sel(prompting=PROMPTINGS[0], score=CLUSTERED[2:])
    np.testing.assert_allclose(told, [[1, 0], [-1, 0]], atol=1e-12)
    # Vendi's do not change, and those of the other prompting neither.
    assert np.isnan(found.sel(score=CLUSTERED[:2])).all()
    assert np.isnan(found.sel(prompting=PROMPTINGS[1])).all()


def test_a_draw_exchanges_prompts_within_types_only():
    types = np.array(["a", "b", "c"])[np.random.default_rng(0).integers(3, size=60)]
    least = min(np.unique(types, return_counts=True)[1])
    rows, prompts = type_draws.draw_rows(types, [least] * 3, exchanged=True, seed=[1])
    assert len(set(rows.tolist())) == len(set(prompts.tolist())) == 3 * least
    np.testing.assert_array_equal(types[rows], types[prompts])
    assert (rows != prompts).any() and len(np.unique(types[rows][:least])) == 1
    np.testing.assert_array_equal(
        *type_draws.draw_rows(types, [least] * 3, exchanged=False, seed=[1])
    )
    draws = [type_draws.draw_rows(types, [1] * 3, exchanged=True, seed=[s])[0] for s in range(40)]
    assert len({tuple(types[rows]) for rows in draws}) == 6


def test_designs_hold_n_in_all_or_of_each_type(finished):
    designs = finished.study.designs
    assert list(designs) == [EACH, "6 in all"]  # 2 are fewer than types, and no type has 9.
    assert [of.tolist() for of in designs[EACH]] == [[8, 0, 0], [8, 8, 0], [8, 8, 8]]
    assert [of.tolist() for of in designs["6 in all"]] == [[6, 0, 0], [3, 3, 0], [2, 2, 2]]
    named = finished.found.value.sel(scale=1, prompting=PROMPTINGS[1], score="Conditional-RKE")
    assert (named.sel(design="6 in all", j=1) > 1).all() and (named <= MODES * 1.0001).all()
    assert finished.found.value.sel(score=CLUSTERED[1], design="6 in all").isnull().all()


def test_a_growing_sample_that_is_not_said_is_refused(finished):
    unsaid = changed(TypeAblation, grows=())
    with pytest.raises(ValueError, match=r"TypeAblation scores different .* \(0: 6 to 24\)"):
        sizes.refuse_unsaid(store.read_run(finished.folder, unsaid))


def test_scores_of_a_gram_matrix_are_the_librarys():
    generator = np.random.default_rng(0)
    x, t = generator.normal(size=(2, 40, 3)).astype(np.float32)
    kernels: Any = {"output_kernel": cv.Gaussian(0.8), "prompt_kernel": cv.Gaussian(1.5)}
    grams = [
        type_draws.gram_of(kernel, of) for kernel, of in zip(kernels.values(), (x, t), strict=True)
    ]
    labels = [generator.integers(k, size=40) for k in (3, 7)]
    found = type_draws.scores_of(grams[0], [grams[1]] * 2, labels[0], [None, labels[1]])
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
    generator = np.random.default_rng(0)
    points = np.repeat(generator.normal(size=(12, 2)), 3, axis=0).astype(np.float32)
    starts = type_draws.by_k_means(points, 4, 8, jax.random.key(0))
    parts = [[points[labels == c] for c in range(4)] for labels in starts]
    inertia = [sum(len(p) * p.var(axis=0).sum() for p in of_start) for of_start in parts]
    assert len(starts) == 8 and inertia == pytest.approx(sorted(inertia), rel=1e-5)
    assert inertia[0] < inertia[-1]
    (all_points,) = type_draws.by_k_means(points, 99, 1, jax.random.key(0))
    assert len(np.unique(all_points)) == 12
    close = np.stack([np.repeat([0.0, 240.0, 480.0], 5), 1e-3 * np.arange(15)], 1)
    (every,) = type_draws.by_k_means(close.astype(np.float32), 15, 1, jax.random.key(0))
    assert sorted(every) == list(range(15))


def test_the_second_encoder_takes_its_own_prompts(tmp_path):
    own = small(tmp_path, 0)
    shown = dict(flag[2:].split("=") for flag in own)
    second = flags(second_prompts=shown["typed_prompts"], second_typed_prompts=shown["prompts"])
    more = [*second, *flags(prompts_by="second", repeats=1, scales=1, per_type=5)]
    run = execute(TypeAblation, tmp_path, *own, *more)
    # The encoders are exchanged: now it is the other prompts that leave the type open.
    unspecified, specified = run.found.value.sel(score="Conditional-Vendi", design=EACH).values[
        0, 0, -1
    ]
    assert specified == pytest.approx(3 * unspecified, rel=1e-4)
    assert (run.folder.name, run.study.per_type) == ("type_ablation-second", 5)


def test_a_model_is_taken_alone(tmp_path):
    """Of two models on the same prompts, the second has one mode of every type."""
    both = {role: np.concatenate([array] * 2) for role, array in known().items()}
    both["outputs"][24:] = np.repeat(both["outputs"][24 :: MODES * PER_MODE], 8, axis=0)
    own = [*write(tmp_path, **both, models=np.repeat(["model one", "model/two"], 24)), *WIDTHS]
    run = execute(TypeAblation, tmp_path, *own, "--model=model/two")
    found = run.found.value.sel(scale=1, score="RKE", design=EACH)
    np.testing.assert_allclose(found / found.j, 1, rtol=1e-4)
    assert (run.study.n, run.folder.name) == (24, "type_ablation-model_two")
    assert run.study.description.endswith("; the 24 of model/two")
    with pytest.raises(ValueError, match="unknown 'three'; known: model one, model/two"):
        execute(TypeAblation, tmp_path, *own, "--model=three")
