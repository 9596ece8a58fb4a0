"""Guidance: the papers' gradients in every form and at every point where they could fail."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from canonical import kernels, slow
from oracles import (
    assert_close,
    conditional_rke_gradient,
    cosine_gram,
    directional_difference,
    draw_pairs,
    gaussian_gram,
    gaussian_grams,
    scores,
)

import condvendi_jax as cv
from condvendi_jax import guidance

B, WINDOW, T = 4, 7, 3
BANDWIDTHS = (0.8, 0.6)

# name: the guide, and which score of the oracle at which order and truncation.
KINDS = {
    "vendi": (guidance.vendi, "vendi", 1, None),
    "truncated vendi": (functools.partial(guidance.vendi, truncation=T), "vendi", 1, T),
    "vendi of order 0.5": (functools.partial(guidance.vendi, order=0.5), "vendi", 0.5, None),
    "rke": (guidance.rke, "vendi", 2, None),
    "conditional vendi": (guidance.conditional_vendi, "conditional", 1, None),
    "truncated conditional vendi": (
        functools.partial(guidance.conditional_vendi, truncation=T), "conditional", 1, T
    ),
    "conditional rke": (guidance.conditional_rke, "conditional", 2, None),
}  # fmt: skip
# One with eigenvectors, one without.
FEW = (slow("truncated conditional vendi"), "conditional rke")


def _guide(kind, *, bandwidths=BANDWIDTHS, **options):
    options = {**kernels(bandwidths), "window": WINDOW, "prompt_size": 2, **options}
    if "conditional" not in kind:
        del options["prompt_kernel"], options["prompt_size"]
    return KINDS[kind][0](**options)


def _step(guide, state, latents, prompts=None):
    return guide.update(jnp.zeros_like(latents), state, latents, prompts=prompts)


def _updates(guide, state, latents, prompts=None):
    return _step(guide, state, latents, prompts)[0]


def _score(kind, latents, prompts):
    """By NumPy."""
    _, name, order, truncation = KINDS[kind]
    grams = gaussian_grams((latents, prompts), BANDWIDTHS)
    truncation = None if truncation is None else min(truncation, len(latents))
    return scores(*grams, order=order, truncation=truncation)[name]


def _after(guide, past):
    """The state after all pairs of the past, remembered one by one."""
    state = guide.init(np.zeros((B, 3)))
    for latent, prompt in zip(*past, strict=True):
        state = guidance.remember(state, latent[None], prompt[None])
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
    updates = _updates(guide, _after(guide, past), latents, prompts)
    direction = np.random.default_rng(1).normal(size=latents.shape)

    def score(latents):
        return _score(kind, *_with_past((latents, prompts), past))

    slope = directional_difference(score, latents, direction, step=1e-3)
    assert_close(np.sum(updates * direction), slope, loosened=loosened)


# Empty, half full, full, and wrapped around, with the seam within the buffer.
PASTS = (slow(0), 3, slow(WINDOW), WINDOW + 5)


@pytest.mark.parametrize("n", PASTS)
@pytest.mark.parametrize("kind", KINDS)
def test_updates_are_finite_differences_of_the_score(kind, n, x64):
    # What a difference of fourth order is right to, and twice as much below order 1.
    _assert_differences_agree(kind, *_split(n), loosened=1e3)


@pytest.mark.parametrize("sizes", [(1, 2, 3), (5, 5, 5, 5), (3, 9), (20,)])
def test_of_all_that_was_remembered_the_last_are_kept(sizes, x64):
    """In batches of any size; those larger than the window too."""
    pairs = draw_pairs(sum(sizes) + B)
    guide = _guide("conditional rke")
    state = guide.init(pairs[0][:B])
    for end, size in zip(np.cumsum(sizes), sizes, strict=True):
        state = guidance.remember(state, *(array[end - size : end] for array in pairs))
    past = tuple(array[: sum(sizes)] for array in pairs)
    batch = tuple(array[-B:] for array in pairs)
    expected = conditional_rke_gradient(*_with_past(batch, past), BANDWIDTHS)[:B]
    assert_close(_updates(guide, state, *batch), expected)
    assert int(state.filled.sum()) == min(sum(sizes), WINDOW)


def test_the_sums_of_the_memory_do_not_drift():
    """In float32, after the buffer went round a hundred times."""
    pairs = draw_pairs(100 * WINDOW, dtype=np.float32)
    state = _guide("conditional rke").init(pairs[0])
    batches = tuple(array.reshape(-1, WINDOW, array.shape[1]) for array in pairs)
    state, _ = jax.lax.scan(lambda s, p: (guidance.remember(s, *p), None), state, batches)
    last = [np.float64(array[-WINDOW:]) for array in pairs]
    grams = gaussian_grams(last, BANDWIDTHS)
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
    guide = _guide(kind)
    state = guidance.remember(guide.init(latents), latents, prompts)
    updates, state = _step(guide, state, latents, prompts)
    np.testing.assert_array_equal(updates, 0)
    assert int(state.skipped) == 0


TRIANGLE = np.array([[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]])


def test_a_tie_at_the_truncation_has_a_subgradient(x64):
    """At equidistant latents: no direction gains less than the update says (docs/theory.md)."""
    guide = guidance.vendi(output_kernel=cv.Gaussian(1.0), truncation=2, window=0)
    tied = np.asarray(_updates(guide, guide.init(TRIANGLE), TRIANGLE))
    assert np.linalg.norm(tied) > 1e-2

    def score(latents):
        gram = gaussian_gram(latents, 1.0)
        return scores(gram, gram, truncation=2)["vendi"]

    gaps = []
    for direction in np.random.default_rng(0).normal(size=(20, *TRIANGLE.shape)):
        gained = (score(TRIANGLE + 1e-5 * direction) - score(TRIANGLE)) / 1e-5
        gaps.append(gained - np.sum(tied * direction))
    assert min(gaps) > -1e-4
    assert max(gaps) > 1e-2  # A kink indeed.


@pytest.mark.parametrize("truncation", [3, 100])
def test_truncation_above_the_rank(truncation, x64):
    """The cosine kernel in two dimensions has rank two; the zeros have no part in the gradient."""
    latents, direction = np.random.default_rng(3).normal(size=(2, B, 2))
    guide = guidance.vendi(output_kernel=cv.Cosine(), truncation=truncation, window=WINDOW)

    def score(latents):
        gram = cosine_gram(latents)
        return scores(gram, gram, truncation=min(truncation, B))["vendi"]

    slope = directional_difference(score, latents, direction, step=1e-3)
    updates = _updates(guide, guide.init(latents), latents)
    assert_close(np.sum(updates * direction), slope, loosened=1e3)


@pytest.mark.parametrize("n", [2, WINDOW])
@pytest.mark.parametrize("kind", FEW)
def test_far_from_the_origin(kind, n):
    """In float32, all values on a grid that both places have; empty slots are near no origin."""
    guide, updates = _guide(kind), []
    for offset in (0, 2**12):
        batch, past = (
            [np.round(array * 2**8) / 2**8 + np.float32(offset) for array in pair]
            for pair in _split(n, dtype=np.float32)
        )
        updates.append(_updates(guide, _after(guide, past), *batch))
    assert_close(*updates, loosened=10)


# Forms of input and output.


def test_latents_of_any_rank_and_dtype():
    batch, past = _split(3, d_x=6, dtype=np.float32)
    guide = _guide("conditional rke")
    state = guidance.remember(guide.init(batch[0]), *past)
    flat = _updates(guide, state, *batch)
    shaped = batch[0].reshape(B, 1, 2, 3)
    updates = _updates(guide, state, shaped, batch[1])
    assert_close(updates, flat.reshape(shaped.shape))
    # Not float16, which XLA cannot convert on older processors.
    small = _updates(guide, state, jnp.asarray(shaped, jnp.bfloat16), batch[1])
    assert small.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float32(small), updates, atol=0.05)
    assert _updates(guide, state, np.arange(24).reshape(B, 6), batch[1]).dtype == jnp.float32


# Composition with optax.


def test_the_incoming_updates_are_replaced():
    batch, _ = _split(0, dtype=np.float32)
    guide = _guide("conditional rke")
    state = guide.init(batch[0])
    given, _ = guide.update(np.ones_like(batch[0]), state, batch[0], prompts=batch[1], value=3.0)
    np.testing.assert_array_equal(given, _updates(guide, state, *batch))


@pytest.mark.slow
def test_conditions_and_schedules_count_steps_until_a_restart():
    batch, past = _split(3, dtype=np.float32)
    score = _guide("conditional rke")
    guide = optax.chain(
        optax.conditionally_mask(score, lambda step: (step >= 2) & (step < 9) & (step % 3 == 2)),
        optax.scale_by_schedule(lambda step: jnp.exp2(-step.astype(jnp.float32))),
        optax.trace(0.0),
    )
    expected = _updates(score, _after(score, past), *batch)
    state = _after(guide, past)
    for _ in range(2):
        for step in range(12):
            updates, state = _step(guide, state, *batch)
            assert_close(updates, 0.5**step * expected if step in (2, 5, 8) else 0 * expected)
        state = guidance.restart(guide, state, batch[0])
    assert int(optax.tree_utils.tree_get(state, "filled").sum()) == 3
    assert int(optax.tree_utils.tree_get(state, "count")) == 0


def _sizes(program):
    """The numbers of elements of all arrays that a jaxpr, or one inside its parameters, makes."""
    for equation in getattr(program, "jaxpr", program).eqns:
        yield from (variable.aval.size for variable in equation.outvars)
        parameters = [*equation.params.values()]
        for leaf in jax.tree.leaves(parameters, is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            if hasattr(leaf, "eqns") or hasattr(leaf, "jaxpr"):
                yield from _sizes(leaf)


def largest_array(function, *arguments):
    return max(_sizes(jax.make_jaxpr(function)(*arguments)))


def test_order_two_makes_no_array_of_pairs_of_the_window():
    window, b, d = 1000, 3, 4
    arrays = jnp.zeros((b, d)), jnp.zeros((b, 2))
    guide = _guide("conditional rke", window=window)
    state = guide.init(arrays[0])
    for function in (functools.partial(_step, guide), guidance.remember):
        assert largest_array(function, state, *arrays) <= (window + b) * (d + 1)
    through = jax.grad(lambda z: jnp.sum(_updates(guide, state, z, arrays[1])))
    assert largest_array(through, arrays[0]) <= (window + b) * (d + 1)


# Bad input.


@pytest.mark.parametrize("kind", FEW)
def test_a_latent_that_is_not_finite_is_skipped_and_counted(kind):
    """Inside jit nothing raises; the others are guided as if it were not there."""
    batch, past = _split(WINDOW, dtype=np.float32)
    guide = optax.chain(_guide(kind), optax.scale(0.5))
    state = _after(guide, past)
    expected = _updates(guide, state, batch[0][1:], batch[1][1:])
    compiled = jax.jit(functools.partial(_step, guide))
    broken = batch[0].copy()
    broken[0, 1] = np.nan
    updates, state = compiled(state, broken, batch[1])
    np.testing.assert_array_equal(updates[0], 0)
    assert_close(updates[1:], expected)
    assert int(state[0].skipped) == 1
    updates, state = compiled(state, batch[0] * np.nan, batch[1])
    np.testing.assert_array_equal(updates, 0)
    assert int(state[0].skipped) == 1 + B


def test_a_latent_that_is_not_finite_is_not_remembered():
    batch, past = _split(WINDOW, dtype=np.float32)
    guide, remember = _guide("conditional rke"), jax.jit(guidance.remember)
    broken = batch[0].copy()
    broken[0, 1] = np.nan
    state = remember(_after(guide, past), broken, batch[1])
    assert int(state.skipped) == 1
    assert int(state.filled.sum()) == WINDOW - 1
    # It took the slot of the oldest; the rest is as after the rest.
    rest = [np.concatenate([old[B:], new[1:]]) for old, new in zip(past, batch, strict=True)]
    expected = _updates(guide, _after(guide, rest), *batch)
    assert_close(_updates(guide, state, *batch), expected, loosened=10)
    # A batch without any finite row leaves the sums of the others as they are.
    state = remember(_after(guide, past), np.nan * batch[0], batch[1])
    rest = [array[B:] for array in past]
    expected = _updates(guide, _after(guide, rest), *batch)
    assert_close(_updates(guide, state, *batch), expected, loosened=10)


Z, P = np.zeros((B, 3), np.float32), np.zeros((B, 2), np.float32)
NAN = np.full((B, 3), np.nan, np.float32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((NAN, P), "latents: expected finite numbers"),
        ((Z, NAN[:, :2]), "prompts: expected finite numbers"),
        ((Z[0], P), r"latents: expected an array \[b, ...\] .* received shape \(3,\)"),
        ((Z[:0], P[:0]), "latents: expected an array .* at least one row"),
        ((None, P), "latents: expected an array .* received None"),
        ((Z, P[:2]), "must pair up row by row: received 4 latents and 2 prompts"),
        ((Z, None), "prompts: expected an array .* received None"),
        ((Z[:, :2], P), r"latents: expected rows of 3 numbers .* received shape \(4, 2\)"),
        ((Z, P[:, :1]), r"prompts: expected rows of 2 numbers .* received shape \(4, 1\)"),
    ],
)
def test_bad_batches_are_refused(arguments, message):
    guide = _guide("conditional rke")
    state = guide.init(Z)
    with pytest.raises(ValueError, match=message):
        guidance.remember(state, *arguments)
    with pytest.raises(ValueError, match=message):
        guide.update(Z, state, arguments[0], prompts=arguments[1])


def test_bad_beginnings_are_refused():
    with pytest.raises(ValueError, match=r"latents: .* received shape \(\)"):
        _guide("rke").init(3.0)
    for kind in ("rke", "conditional vendi"):
        with pytest.raises(ValueError, match="state: expected that of this guide"):
            _updates(_guide("conditional rke"), _guide(kind).init(Z), Z, P)
    with pytest.raises(ValueError, match="state: expected the state of a guide"):
        guidance.remember(optax.scale(1.0).init(Z), Z, P)
    with pytest.raises(ValueError, match="zero row"):
        guide = guidance.rke(output_kernel=cv.Cosine())
        _updates(guide, guide.init(Z), Z)
    with pytest.raises(ValueError, match="GiB"):
        _guide("conditional vendi", window=10**7).init(Z)
    with pytest.raises(TypeError, match="complex"):
        _updates(_guide("rke"), _guide("rke").init(Z), Z + 0j)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": -1}, "window: expected an integer of at least 0, received -1"),
        ({"prompt_kernel": "cosine"}, "prompt_kernel: expected a kernel"),
        ({"prompt_size": 0}, "prompt_size: expected an integer of at least 1"),
        ({"truncation": 0}, "truncation: expected None or an integer of at least 1"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        guidance.conditional_vendi(**{**kernels(), "prompt_size": 2, **options})
