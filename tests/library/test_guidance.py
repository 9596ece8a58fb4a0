"""Guidance: the papers' gradients in every form and at every point where they could fail."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sharded_guidance
from jaxprs import equations, largest_array
from oracles import (
    assert_close,
    conditional_rke_gradient,
    cosine_gram,
    directional_difference,
    draw_pairs,
    gaussian_gram,
    scores,
    truncated_conditional_gradient,
)

import condvendi_jax as cv
from condvendi_jax.guidance import _guidance as guidance

B, WINDOW, T = 4, 7, 3
BANDWIDTHS = (0.8, 0.6)


def _kernels(bandwidths=BANDWIDTHS):
    return dict(zip(("output_kernel", "prompt_kernel"), map(cv.Gaussian, bandwidths), strict=True))


def _alone(make, **fixed):
    """A kind that sees no prompts, by the same call as those that do."""
    return lambda *, prompt_kernel, **options: make(**fixed, **options)


# name: the guide, and which score of the oracle at which order and truncation.
KINDS = {
    "vendi": (_alone(guidance.vendi), "vendi", 1, None),
    "truncated vendi": (_alone(guidance.vendi, truncation=T), "vendi", 1, T),
    "vendi of order 0.5": (_alone(guidance.vendi, order=0.5), "vendi", 0.5, None),
    "rke": (_alone(guidance.rke), "vendi", 2, None),
    "conditional vendi": (guidance.conditional_vendi, "conditional", 1, None),
    "truncated conditional vendi": (
        functools.partial(guidance.conditional_vendi, truncation=T), "conditional", 1, T
    ),
    "conditional rke": (guidance.conditional_rke, "conditional", 2, None),
}  # fmt: skip
# One with eigenvectors, one without.
FEW = (pytest.param("truncated conditional vendi", marks=pytest.mark.slow), "conditional rke")


def _guide(kind, *, bandwidths=BANDWIDTHS, **options):
    return KINDS[kind][0](**_kernels(bandwidths), **{"window": WINDOW, **options})


def _score(kind, latents, prompts):
    """By NumPy."""
    _, name, order, truncation = KINDS[kind]
    grams = [gaussian_gram(p, s) for p, s in zip((latents, prompts), BANDWIDTHS, strict=True)]
    truncation = None if truncation is None else min(truncation, len(latents))
    return scores(*grams, order=order, truncation=truncation)[name]


def _after(guide, past):
    """The state after all pairs of the past, remembered one by one."""
    state = guide.init(np.zeros((B, 3)), np.zeros((B, 2)))
    for latent, prompt in zip(*past, strict=True):
        state = guide.remember(latent[None], prompt[None], state)
    return state


def _split(n, **options):
    """B pairs to guide, and a past of n."""
    latents, prompts = draw_pairs(B + n, **options)
    return (latents[:B], prompts[:B]), (latents[B:], prompts[B:])


def _with_past(batch, past, window=WINDOW):
    first = max(0, len(past[0]) - window)
    return tuple(np.concatenate([new, old[first:]]) for new, old in zip(batch, past, strict=True))


def _assert_differences_agree(kind, batch, past, loosened):
    """With the score of memory and batch, along a random direction of all latents of the batch."""
    (latents, prompts), guide = batch, _guide(kind)
    updates, _ = guide.update(latents, prompts, _after(guide, past))
    direction = np.random.default_rng(1).normal(size=latents.shape)

    def score(latents):
        return _score(kind, *_with_past((latents, prompts), past))

    slope = directional_difference(score, latents, direction, step=1e-3)
    assert_close(np.sum(updates * direction), slope, loosened=loosened)


# Empty, half full, full, and wrapped around, with the seam within the buffer.
PASTS = (0, 3, WINDOW, WINDOW + 5)


@pytest.mark.parametrize("n", PASTS)
@pytest.mark.parametrize("kind", KINDS)
def test_updates_are_finite_differences_of_the_score(kind, n, x64):
    # What a difference of fourth order is right to, and twice as much below order 1.
    _assert_differences_agree(kind, *_split(n), loosened=1e3)


@pytest.mark.parametrize("n", PASTS)
def test_updates_are_the_formulas_of_the_paper(n, x64):
    batch, past = _split(n)
    pairs = _with_past(batch, past)
    printed = {
        "truncated conditional vendi": truncated_conditional_gradient(*pairs, BANDWIDTHS, T)[:B],
        "conditional rke": conditional_rke_gradient(*pairs, BANDWIDTHS)[:B],
    }
    for kind, expected in printed.items():
        guide = _guide(kind, weight=0.7)
        updates, _ = guide.update(*batch, _after(guide, past))
        assert_close(updates, 0.7 * expected)


@pytest.mark.parametrize("kind", FEW)
def test_updates_are_the_gradients_of_the_scores_of_the_library(kind, x64):
    batch, past = _split(WINDOW)
    _, name, order, truncation = KINDS[kind]
    latents, prompts = map(jnp.asarray, batch)

    def score(latents):
        pairs = zip((latents, prompts), past, strict=True)
        found = cv.decompose(
            *map(jnp.concatenate, pairs), **_kernels(), order=order, truncation=truncation
        )
        return getattr(found, name)

    guide = _guide(kind)
    assert_close(guide.update(*batch, _after(guide, past))[0], jax.grad(score)(latents))


@pytest.mark.parametrize("kind", FEW)
def test_one_latent_and_the_memory_are_a_batch_of_one(kind, x64):
    batch, past = _split(3)
    alone, together = _guide(kind, among="memory"), _guide(kind)
    updates, _ = alone.update(*batch, _after(alone, past))
    state = _after(together, past)
    for row in range(B):
        one, _ = together.update(batch[0][[row]], batch[1][[row]], state)
        assert_close(updates[row], one[0])


@pytest.mark.parametrize("kind", FEW)
def test_an_empty_window_is_no_window(kind):
    batch, _ = _split(0, dtype=np.float32)
    updates = [
        guide.update(*batch, guide.init(*batch))[0]
        for guide in (_guide(kind), _guide(kind, window=0))
    ]
    assert_close(*updates)
    assert np.abs(updates[0]).max() > 1e-3


@pytest.mark.parametrize("sizes", [(1, 2, 3), (5, 5, 5, 5), (3, 9), (20,)])
def test_of_all_that_was_remembered_the_last_are_kept(sizes, x64):
    """In batches of any size; those larger than the window too."""
    pairs = draw_pairs(sum(sizes) + B)
    guide = _guide("conditional rke")
    state = guide.init(pairs[0][:B], pairs[1][:B])
    for end, size in zip(np.cumsum(sizes), sizes, strict=True):
        state = guide.remember(*(array[end - size : end] for array in pairs), state)
    past = tuple(array[: sum(sizes)] for array in pairs)
    batch = tuple(array[-B:] for array in pairs)
    updates, _ = guide.update(*batch, state)
    assert_close(updates, conditional_rke_gradient(*_with_past(batch, past), BANDWIDTHS)[:B])
    assert int(state.filled.sum()) == min(sum(sizes), WINDOW)


def test_the_sums_of_the_memory_do_not_drift():
    """In float32, after the buffer went round a hundred times."""
    guide = _guide("conditional rke")
    pairs = draw_pairs(100 * WINDOW, dtype=np.float32)
    state = guide.init(*pairs)
    batches = tuple(array.reshape(-1, WINDOW, array.shape[1]) for array in pairs)
    state, _ = jax.lax.scan(lambda s, p: (guide.remember(*p, s), None), state, batches)
    last = [np.float64(array[-WINDOW:]) for array in pairs]
    grams = [gaussian_gram(points, s) for points, s in zip(last, BANDWIDTHS, strict=True)]
    of_joint, of_prompts = (WINDOW + 2 * np.sum(later) for later in state.squares)
    assert_close(of_joint, np.sum(np.square(grams[0] * grams[1])))
    assert_close(of_prompts, np.sum(np.square(grams[1])))


# Degenerate points.


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "0.5" not in kind])
def test_duplicated_pairs_have_the_gradient_of_the_score(kind, x64):
    """Of a pair in the batch and of one in the memory: A is singular, eq. 24 prints log 0."""
    (latents, prompts), past = _split(3)
    latents[1], prompts[1] = latents[0], prompts[0]
    past[0][0], past[1][0] = latents[2], prompts[2]
    # The vanished eigenvalues leave as h^2 log h, which central differences do not see.
    _assert_differences_agree(kind, (latents, prompts), past, loosened=1e4)


@pytest.mark.parametrize("kind", FEW)
def test_latents_that_coincide_stay_together(kind):
    """A critical point: the gradient is zero, not NaN and not noise."""
    latents = np.repeat([[0.3, -1.2, 2.0]], B, axis=0).astype(np.float32)
    prompts = np.repeat([[1.0, 0.5]], B, axis=0).astype(np.float32)
    guide = _guide(kind, normalise=True)
    state = guide.remember(latents, prompts, guide.init(latents, prompts))
    updates, state = guide.update(latents, prompts, state)
    np.testing.assert_array_equal(updates, 0)
    assert int(state.skipped) == 0


TRIANGLE = np.array([[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]])


@pytest.fixture
def tied(x64):
    """The update that ascends H^(t), t = 2, at three equidistant latents."""
    guide = guidance.vendi(
        output_kernel=cv.Gaussian(1.0), truncation=2, window=0, objective="entropy"
    )
    return np.asarray(guide.update(TRIANGLE, None, guide.init(TRIANGLE))[0])


def test_a_tie_at_the_truncation_is_shared(tied):
    """The two smaller eigenvalues tie, one is kept, and no latent is special: all go outwards."""
    length = np.linalg.norm(tied[0])
    assert length > 1e-2
    assert_close(tied, length * TRIANGLE)


def test_an_update_at_a_tie_is_a_subgradient(tied):
    """H^(t) bends upwards there: no direction gains less than the update says (docs/theory.md)."""

    def entropy(latents):
        gram = gaussian_gram(latents, 1.0)
        return np.log(scores(gram, gram, truncation=2)["vendi"])

    gaps = []
    for direction in np.random.default_rng(0).normal(size=(20, *TRIANGLE.shape)):
        gained = (entropy(TRIANGLE + 1e-5 * direction) - entropy(TRIANGLE)) / 1e-5
        gaps.append(gained - np.sum(tied * direction))
    assert min(gaps) > -1e-4
    assert max(gaps) > 1e-2  # A kink indeed.


@pytest.mark.parametrize("truncation", [3, 100])
def test_truncation_above_the_rank(truncation, x64):
    """The cosine kernel in two dimensions has rank two; the zeros have no part in the gradient."""
    rng = np.random.default_rng(3)
    latents = rng.normal(size=(B, 2))
    guide = guidance.vendi(output_kernel=cv.Cosine(), truncation=truncation, window=WINDOW)
    updates, _ = guide.update(latents, None, guide.init(latents))
    direction = rng.normal(size=latents.shape)

    def score(latents):
        gram = cosine_gram(latents)
        return scores(gram, gram, truncation=min(truncation, B))["vendi"]

    slope = directional_difference(score, latents, direction, step=1e-3)
    assert_close(np.sum(updates * direction), slope, loosened=1e3)


@pytest.mark.parametrize("n", [2, WINDOW])
@pytest.mark.parametrize("kind", FEW)
def test_far_from_the_origin(kind, n):
    """In float32, all values on a grid that both places have; empty slots are near no origin."""
    batch, past = _split(n, dtype=np.float32)
    guide = _guide(kind)
    updates = []
    for offset in (0, 2**12):
        places = [
            [np.round(array * 2**8) / 2**8 + np.float32(offset) for array in pair]
            for pair in (batch, past)
        ]
        updates.append(guide.update(*places[0], _after(guide, places[1]))[0])
    assert_close(*updates, loosened=10)


# Forms of input and output.


def test_latents_of_any_rank_and_dtype():
    batch, past = _split(3, d_x=6, dtype=np.float32)
    guide = _guide("conditional rke")
    state = guide.init(*batch)
    state = guide.remember(*past, state)
    flat, _ = guide.update(*batch, state)
    shaped = batch[0].reshape(B, 1, 2, 3)
    updates, _ = guide.update(shaped, batch[1], state)
    assert updates.shape == shaped.shape
    assert_close(updates.reshape(B, 6), flat)
    small, _ = guide.update(jnp.asarray(shaped, jnp.bfloat16), batch[1], state)
    assert small.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float32(small), updates, atol=0.05)
    whole, _ = guide.update(np.arange(24).reshape(B, 6), batch[1], state)
    assert whole.dtype == jnp.float32


def test_float64_is_computed_in_float64(x64):
    batch, _ = _split(0)
    guide = _guide("rke")
    state = guide.init(*(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in batch))
    assert state.latents.dtype == jnp.float64
    assert guide.update(*batch, state)[0].dtype == jnp.float64


def test_kinds_without_prompts_need_none():
    batch, past = _split(3, dtype=np.float32)
    guide = _guide("rke")
    with_prompts, without = guide.init(*batch), guide.init(batch[0])
    assert with_prompts.prompts is None
    with_prompts = guide.remember(*past, with_prompts)
    without = guide.remember(past[0], None, without)
    np.testing.assert_array_equal(
        guide.update(*batch, with_prompts)[0], guide.update(batch[0], None, without)[0]
    )


# Options.


def test_steps_at_which_it_acts():
    batch, _ = _split(0, dtype=np.float32)
    guide = _guide("conditional rke", every=3, start=2, stop=9)
    state = guide.init(*batch)
    acted = []
    for step in range(12):
        updates, state = guide.update(*batch, state)
        assert int(state.step) == step + 1
        acted += [step] if np.any(updates) else []
    assert acted == [2, 5, 8]
    state = guide.remember(*batch, state)
    assert int(state.step) == 0


def test_steps_at_which_it_does_not_act_cost_nothing():
    """The eigenvectors are inside a branch."""
    batch, _ = _split(0, dtype=np.float32)
    guide = _guide("truncated conditional vendi", every=5)
    program = jax.make_jaxpr(guide.update)(*batch, guide.init(*batch))
    branch = next(e for e in equations(program) if e.primitive.name == "cond")
    kinds = [[e.primitive.name for e in equations(part)] for part in branch.params["branches"]]
    assert sorted("eigh" in kind for kind in kinds) == [False, True]
    everywhere = [e.primitive.name for e in equations(program)].count("eigh")
    assert everywhere == sum(kind.count("eigh") for kind in kinds)


def test_the_weight_is_a_number_or_a_schedule():
    batch, _ = _split(0, dtype=np.float32)
    unit, decaying = (
        _guide("conditional rke", weight=weight)
        for weight in (1.0, lambda step: jnp.exp2(-step.astype(jnp.float32)))
    )
    expected, _ = unit.update(*batch, unit.init(*batch))
    state = decaying.init(*batch)
    for step in range(3):
        updates, state = decaying.update(*batch, state)
        assert_close(updates, 0.5**step * expected)
    # It may be traced: a sweep is one program.
    swept = jax.vmap(
        lambda weight: _guide("conditional rke", weight=weight).update(*batch, state)[0]
    )(jnp.array([0.0, 2.0]))
    assert_close(swept, np.stack([0 * expected, 2 * expected]))


def test_normalised_and_clipped_updates():
    batch = _split(0, dtype=np.float32)[0]
    batch[0][0] += 50.0  # Alone: its gradient is zero, and stays zero.
    plain, unit, clipped = (
        _guide("rke", bandwidths=(2.0, 1.0), weight=0.5, **options)
        for options in ({}, {"normalise": True}, {"max_norm": 0.1})
    )
    gradient, length, short = (
        guide.update(*batch, guide.init(*batch))[0] for guide in (plain, unit, clipped)
    )
    norms = np.linalg.norm(gradient, axis=1, keepdims=True)
    assert norms[0] == 0
    assert norms.max() > 0.1 > norms[1:].min()
    assert_close(length, 0.5 * gradient / np.where(norms > 0, norms, 1))
    assert_close(short, gradient * np.minimum(1, 0.1 / np.maximum(norms, 1e-9)))


def test_tiny_gradients_have_a_direction():
    """Their squares are below the range of float32."""
    latents = np.array([[0.0, 0.0], [5.3, 5.3]], np.float32)
    guide = guidance.rke(output_kernel=cv.Gaussian(1.0), window=0, normalise=True)
    updates, _ = guide.update(latents, None, guide.init(latents))
    assert_close(updates, np.array([[-1.0, -1.0], [1.0, 1.0]]) / 2**0.5)


@pytest.mark.parametrize("kind", FEW)
def test_the_objective_is_the_score_or_its_logarithm(kind, x64):
    batch, past = _split(3)
    of_score, of_entropy = (
        guide.update(*batch, _after(guide, past))[0]
        for guide in (_guide(kind), _guide(kind, objective="entropy"))
    )
    assert_close(of_score, _score(kind, *_with_past(batch, past)) * of_entropy)


@pytest.mark.parametrize("kind", FEW)
def test_kernels_and_truncations_are_what_was_passed(kind):
    batch, past = _split(3, dtype=np.float32)
    guides = [_guide(kind), _guide(kind, bandwidths=(0.8, 2.0)), _guide(kind, bandwidths=(2, 0.6))]
    if "truncated" in kind:
        guides += [guidance.conditional_vendi(**_kernels(), truncation=4, window=WINDOW)]
    updates = [np.ravel(guide.update(*batch, _after(guide, past))[0]) for guide in guides]
    for index, first in enumerate(updates):
        for second in updates[:index]:
            assert np.abs(first - second).max() > 1e-3


# Transformations.


@pytest.mark.slow
def test_compiled_scanned_and_mapped(x64):
    """A sampler's loop over batches and steps, for several seeds at once, is as step by step."""
    guide = _guide("conditional rke", weight=0.1, every=2)
    pairs = draw_pairs(2 * 3 * B)
    chains = tuple(array.reshape(2, 3, B, -1) for array in pairs)

    def sampled(latents, prompts, state):
        def step(carry, _):
            updates, state = guide.update(carry[0], prompts, carry[1])
            return (0.9 * carry[0] + updates, state), None

        (latents, state), _ = jax.lax.scan(step, (latents, state), None, length=4)
        return guide.remember(latents, prompts, state), latents

    def chain(latents, prompts):
        first = guide.init(latents[0], prompts[0])
        return jax.lax.scan(lambda s, p: sampled(*p, s), first, (latents, prompts))[1]

    found = jax.jit(jax.vmap(chain))(*chains)
    for latents, prompts, expected in zip(*chains, found, strict=True):
        state = guide.init(latents[0], prompts[0])
        for row in range(3):
            z = jnp.asarray(latents[row])
            for _ in range(4):
                updates, state = guide.update(z, prompts[row], state)
                z = 0.9 * z + updates
            state = guide.remember(z, prompts[row], state)
            assert_close(z, expected[row])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("vendi", {}),
        ("truncated conditional vendi", {"among": "memory"}),
        ("rke", {"max_norm": 0.1}),
        ("conditional rke", {"normalise": True}),
    ],
)
def test_differentiable_through(kind, options, x64):
    """In the latents, with a window that is half full: ties among zeros do no harm."""
    batch, past = _split(3)
    latents, prompts = map(jnp.asarray, batch)
    guide = _guide(kind, **options)
    state = _after(guide, past)
    rng = np.random.default_rng(1)
    direction, cotangent = rng.normal(size=(2, *latents.shape))

    @jax.jit
    def total(latents):
        return jnp.sum(guide.update(latents, prompts, state)[0] * cotangent)

    slope = directional_difference(total, latents, direction, step=1e-4)
    assert_close(jnp.sum(jax.grad(total)(latents) * direction), slope, loosened=1e4)


@pytest.mark.slow
def test_derivatives_at_ties_are_those_of_the_matrix(x64):
    """Divided differences at equal eigenvalues, against a difference of the gradient."""
    matrix = np.diag([0.3, 0.3, 0.2, 0.2]) + 0.0
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(4, 4))
    direction = direction + direction.T - 2 * np.trace(direction) / 4 * np.eye(4)
    for entropy in (cv.Entropy(), cv.Entropy(truncation=2), cv.Entropy(order=3.0)):
        slope = jax.jit(functools.partial(guidance._entropy_and_slope, entropy))
        _, (_, moved) = jax.jvp(slope, (jnp.asarray(matrix),), (jnp.asarray(direction),))
        difference = directional_difference(
            lambda m, slope=slope: slope(m)[1], matrix, direction, step=1e-4
        )
        assert_close(moved, difference, loosened=1e4)


def test_order_two_makes_no_array_of_pairs_of_the_window():
    window, b, d = 1000, 3, 4
    arrays = jnp.zeros((b, d)), jnp.zeros((b, 2))
    guide = _guide("conditional rke", window=window)
    state = guide.init(*arrays)
    for function in (guide.update, guide.remember):
        assert largest_array(function, *arrays, state) <= (window + b) * (d + 1)
    through = jax.grad(lambda z: jnp.sum(guide.update(z, arrays[1], state)[0]))
    assert largest_array(through, arrays[0]) <= (window + b) * (d + 1)


@pytest.mark.slow
def test_memory_on_several_devices():
    """The window spread over four of them, the batch on all: as on one."""
    sharded_guidance.check()


# Bad input.


@pytest.mark.parametrize("kind", FEW)
def test_a_latent_that_is_not_finite_is_skipped_and_counted(kind):
    """Inside jit nothing raises; the others are guided as if it were not there."""
    batch, past = _split(WINDOW, dtype=np.float32)
    guide = _guide(kind)
    state = _after(guide, past)
    expected, _ = guide.update(batch[0][1:], batch[1][1:], state)
    compiled = jax.jit(guide.update)
    broken = batch[0].copy()
    broken[0, 1] = np.nan
    updates, state = compiled(broken, batch[1], state)
    np.testing.assert_array_equal(updates[0], 0)
    assert_close(updates[1:], expected)
    assert int(state.skipped) == 1
    updates, state = compiled(batch[0] * np.nan, batch[1], state)
    np.testing.assert_array_equal(updates, 0)
    assert int(state.skipped) == 1 + B


def test_a_latent_that_is_not_finite_is_not_remembered():
    batch, past = _split(WINDOW, dtype=np.float32)
    guide = _guide("conditional rke")
    broken = batch[0].copy()
    broken[0, 1] = np.nan
    state = jax.jit(guide.remember)(broken, batch[1], _after(guide, past))
    assert int(state.skipped) == 1
    assert int(state.filled.sum()) == WINDOW - 1
    # It took the slot of the oldest; the rest is as after the rest.
    rest = [np.concatenate([old[B:], new[1:]]) for old, new in zip(past, batch, strict=True)]
    again = _after(guide, rest)
    assert_close(guide.update(*batch, state)[0], guide.update(*batch, again)[0], loosened=10)


Z, P = np.zeros((B, 3), np.float32), np.zeros((B, 2), np.float32)
NAN = np.full((B, 3), np.nan, np.float32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((NAN, P), "latents: expected finite numbers"),
        ((Z, NAN[:, :2]), "prompts: expected finite numbers"),
        ((Z[0], P), r"latents: expected an array \[b, ...\] .* received shape \(3,\)"),
        ((Z[:0], P[:0]), "latents: expected an array .* at least one row"),
        ((Z, P[:2]), "must pair up row by row: received 4 latents and 2 prompts"),
        ((Z, None), "prompts: expected an array .* received None"),
        ((Z[:, :2], P), r"latents: expected rows of 3 numbers .* received shape \(4, 2\)"),
        ((Z, P[:, :1]), r"prompts: expected rows of 2 numbers .* received shape \(4, 1\)"),
    ],
)
def test_bad_batches_are_refused(arguments, message):
    guide = _guide("conditional rke")
    state = guide.init(Z, P)
    for function in (guide.update, guide.remember):
        with pytest.raises(ValueError, match=message):
            function(*arguments, state)


def test_bad_beginnings_are_refused():
    with pytest.raises(ValueError, match="pair up"):
        _guide("rke", window=5).init(Z, P) and _guide("conditional rke").init(Z, P[:1])
    with pytest.raises(ValueError, match=r"latents: .* received shape \(\)"):
        _guide("rke").init(3.0)
    with pytest.raises(ValueError, match="prompts: expected rows of no numbers"):
        state = _guide("rke").init(Z)
        _guide("conditional rke").update(Z, P, state)
    with pytest.raises(ValueError, match="state: of a guide of another order"):
        state = _guide("conditional vendi").init(Z, P)
        _guide("conditional rke").update(Z, P, state)
    with pytest.raises(ValueError, match="zero row"):
        guide = guidance.rke(output_kernel=cv.Cosine())
        guide.update(Z, None, guide.init(Z))
    with pytest.raises(ValueError, match="GiB"):
        _guide("conditional vendi", window=10**7).init(Z, P)
    with pytest.raises(TypeError, match="complex"):
        guide = _guide("rke")
        guide.update(Z + 0j, None, guide.init(Z))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": np.nan}, "weight: expected a finite number, received nan"),
        ({"weight": "much"}, "weight: expected a number"),
        ({"weight": [1.0, 2.0]}, "weight: expected a number"),
        ({"window": -1}, "window: expected an integer of at least 0, received -1"),
        ({"window": 2.5}, "window: expected an integer"),
        ({"window": 0, "among": "memory"}, "window: expected at least 1"),
        ({"among": "all"}, "among: expected one of batch, memory, received 'all'"),
        ({"objective": "rke"}, "objective: expected one of score, entropy, received 'rke'"),
        ({"every": 0}, "every: expected an integer of at least 1, received 0"),
        ({"start": -1}, "start: expected an integer of at least 0"),
        ({"start": 3, "stop": 3}, "stop: expected an integer of at least 4, received 3"),
        ({"max_norm": 0}, "max_norm: expected a number above 0"),
        ({"max_norm": np.inf}, "max_norm: expected a finite number"),
        ({"normalise": 1}, "normalise: expected True or False"),
        ({"output_kernel": 1.0}, "output_kernel: expected a kernel"),
        ({"prompt_kernel": "cosine"}, "prompt_kernel: expected a kernel"),
        ({"truncation": 0}, "truncation: expected None or an integer of at least 1"),
        ({"order": 0}, "order: expected a number above 0"),
        ({"cadence": 3}, "cadence"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        guidance.conditional_vendi(**{**_kernels(), **options})


def test_an_infinite_weight_of_a_schedule_is_skipped():
    guide = _guide("rke", weight=lambda step: jnp.inf)
    batch, _ = _split(0, dtype=np.float32)
    updates, state = guide.update(*batch, guide.init(*batch))
    np.testing.assert_array_equal(updates, 0)
    assert int(state.skipped) == B
