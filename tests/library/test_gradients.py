"""Gradients of scores and guidance by them: formulas, differences, and where they could fail."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from canonical import N, kernels, slow
from oracles import (
    assert_close,
    conditional_rke_gradient,
    cosine_gram,
    directional_difference,
    draw_pairs,
    gaussian_gram,
    gaussian_grams,
    scores,
    truncated_conditional_gradient,
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


def _guide(kind, **options):
    options = {**kernels(BANDWIDTHS), "window": WINDOW, "prompt_size": 2, **options}
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


def _with_past(batch, past):
    both = zip(batch, past, strict=True)
    return tuple(np.concatenate([new, old[-WINDOW:]]) for new, old in both)


def _assert_differences_agree(kind, batch, past, loosened):
    """With the score of memory and batch, along a random direction of all latents of the batch."""
    (latents, prompts), guide = batch, _guide(kind)
    updates = _updates(guide, _after(guide, past), latents, prompts)
    direction = np.random.default_rng(1).normal(size=latents.shape)

    def score(latents):
        return _score(kind, *_with_past((latents, prompts), past))

    slope = directional_difference(score, latents, direction, step=1e-3)
    assert_close(np.sum(updates * direction), slope, loosened=loosened)


# The memory empty, half full, full, and wrapped around, with the seam within the buffer.
@pytest.mark.parametrize("n", [slow(0), 3, slow(WINDOW), WINDOW + 5])
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
    turned = _updates(guide, guide.init(TRIANGLE), TRIANGLE[[2, 0, 1]])
    np.testing.assert_allclose(turned, tied[[2, 0, 1]], atol=1e-12)  # No row is preferred.

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


def test_latents_of_any_rank_and_dtype_replace_the_incoming_updates():
    batch, past = _split(3, d_x=6, dtype=np.float32)
    guide = _guide("conditional rke")
    state = guidance.remember(guide.init(batch[0]), *past)
    flat = _updates(guide, state, *batch)
    replaced, _ = guide.update(flat + 1, state, batch[0], prompts=batch[1], value=3.0)
    np.testing.assert_array_equal(replaced, flat)
    shaped = batch[0].reshape(B, 1, 2, 3)
    updates = _updates(guide, state, shaped, batch[1])
    assert_close(updates, flat.reshape(shaped.shape))
    # Not float16, which XLA cannot convert on older processors.
    small = _updates(guide, state, jnp.asarray(shaped, jnp.bfloat16), batch[1])
    assert small.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float32(small), updates, atol=0.05)
    assert _updates(guide, state, np.arange(24).reshape(B, 6), batch[1]).dtype == jnp.float32


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


def largest_array(function, *arguments):
    """The most elements of an array in the program, whose text names the types of all."""
    shapes = re.findall(r"\w\d*\[([\d,]+)\]", str(jax.make_jaxpr(function)(*arguments)))
    return max(np.prod([*map(int, shape.split(","))]) for shape in shapes)


def test_order_two_makes_no_array_of_pairs_of_the_window():
    window, b, d = 1000, 3, 4
    arrays = jnp.zeros((b, d)), jnp.zeros((b, 2))
    guide = _guide("conditional rke", window=window)
    state = guide.init(arrays[0])
    for function in (functools.partial(_step, guide), guidance.remember):
        assert largest_array(function, state, *arrays) <= (window + b) * (d + 1)
    through = jax.grad(lambda z: jnp.sum(_updates(guide, state, z, arrays[1])))
    assert largest_array(through, arrays[0]) <= (window + b) * (d + 1)


def _broken(latents):
    """The latents, of which the first is not finite."""
    broken = latents.copy()
    broken[0, 1] = np.nan
    return broken


@pytest.mark.parametrize("kind", FEW)
def test_a_latent_that_is_not_finite_is_skipped_and_counted(kind):
    """Inside jit nothing raises; the others are guided as if it were not there."""
    batch, past = _split(WINDOW, dtype=np.float32)
    guide = optax.chain(_guide(kind), optax.scale(0.5))
    state = _after(guide, past)
    expected = _updates(guide, state, batch[0][1:], batch[1][1:])
    compiled = jax.jit(functools.partial(_step, guide))
    updates, state = compiled(state, _broken(batch[0]), batch[1])
    np.testing.assert_array_equal(updates[0], 0)
    assert_close(updates[1:], expected)
    assert int(state[0].skipped) == 1
    updates, state = compiled(state, batch[0] * np.nan, batch[1])
    np.testing.assert_array_equal(updates, 0)
    assert int(state[0].skipped) == 1 + B


@pytest.mark.parametrize(("broken", "kept"), [("one", B - 1), ("all", 0)])
def test_a_latent_that_is_not_finite_is_not_remembered(broken, kept):
    """It takes the slot of the oldest, and leaves the sums of the others as they are."""
    batch, past = _split(WINDOW, dtype=np.float32)
    guide = _guide("conditional rke")
    latents = _broken(batch[0]) if broken == "one" else np.nan * batch[0]
    state = jax.jit(guidance.remember)(_after(guide, past), latents, batch[1])
    assert int(state.skipped) == B - kept
    assert int(state.filled.sum()) == WINDOW - B + kept
    both = zip(past, batch, strict=True)
    rest = [np.concatenate([old[B:], new[B - kept :]]) for old, new in both]
    expected = _updates(guide, _after(guide, rest), *batch)
    assert_close(_updates(guide, state, *batch), expected, loosened=10)


Z, P = np.zeros((B, 3), np.float32), np.zeros((B, 2), np.float32)
NAN = np.full((B, 3), np.nan, np.float32)
COSINE = guidance.rke(output_kernel=cv.Cosine())


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _guide("rke").init(3.0), r"latents: .* received shape \(\)"),
        (lambda: _updates(_guide("conditional rke"), _guide("rke").init(Z), Z, P), "of this guide"),
        (
            lambda: _updates(_guide("conditional rke"), _guide("conditional vendi").init(Z), Z, P),
            "state: expected that of this guide",
        ),
        (lambda: guidance.remember(optax.scale(1.0).init(Z), Z, P), "state: expected the state of"),
        (lambda: _updates(COSINE, COSINE.init(Z), Z), "zero row"),
        (lambda: _guide("conditional vendi", window=10**7).init(Z), "GiB"),
        (lambda: _updates(_guide("rke"), _guide("rke").init(Z), Z + 0j), "complex"),
        (
            lambda: _guide("rke", window=-1),
            "window: expected an integer of at least 0, received -1",
        ),
        (lambda: _guide("conditional rke", prompt_kernel="cosine"), "prompt_kernel: expected a k"),
        (lambda: _guide("conditional rke", prompt_size=0), "prompt_size: expected an integer of"),
        (lambda: _guide("vendi", truncation=0), "truncation: expected None or an integer of at l"),
    ],
)
def test_bad_options_and_states_are_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


# Gradients of the scores themselves.


def tied():
    """Two pairs of equal clusters: the leading eigenvalues tie, the sum over them is smooth."""
    outputs = np.repeat(np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 9.0]]), 4, axis=0)
    return outputs + np.tile([[0.3, 0], [0, 0.3], [-0.3, 0], [0, -0.3]], (3, 1)), np.zeros((12, 1))


@pytest.mark.parametrize(
    ("pairs", "truncation"), [(draw_pairs(N), 4), (draw_pairs(N), N), (tied(), 3)]
)
def test_truncated_gradient_is_that_of_the_paper(pairs, truncation, x64):
    """CV eq. 24-27, for every row in turn."""
    score = functools.partial(cv.conditional_vendi, **kernels(), truncation=truncation)
    expected = truncated_conditional_gradient(*pairs, BANDWIDTHS, truncation)
    assert_close(jax.grad(score)(*pairs), expected)


@pytest.mark.parametrize("gram", [cv.gram, cv.grams.TiledGram.from_points])
def test_conditional_rke_gradient_is_that_of_the_paper(gram, x64):
    """The formula below CV eq. 27, stored and streamed."""
    outputs, prompts = draw_pairs(N)

    def score(outputs):
        gaussians = map(cv.Gaussian, BANDWIDTHS)
        x, t = map(gram, gaussians, (outputs, jnp.asarray(prompts)))
        return jnp.exp(cv.Entropy(2)(x * t) - cv.Entropy(2)(t))

    assert_close(jax.grad(score)(outputs), conditional_rke_gradient(outputs, prompts, BANDWIDTHS))


SCORES = {f"order {order}": {"order": order} for order in (0.5, 1, 2, np.inf)}
SCORES["truncated order 2"] = {"order": 2, "truncation": 4}


@pytest.mark.parametrize("name", [slow(n) if n[-1] in "5f" else n for n in SCORES])
def test_gradients_are_finite_differences(name, x64):
    """Along one direction of all arguments; of a sum that no term can drop out of."""

    @jax.jit
    def total(arguments):
        outputs, prompts, *bandwidths = arguments
        result = cv.decompose(outputs, prompts, **kernels(bandwidths), **SCORES[name])
        return result.vendi + result.conditional + 2 * result.information

    point = (*map(jnp.asarray, draw_pairs(N)), jnp.asarray(0.8), jnp.asarray(0.6))
    rng = np.random.default_rng(0)
    direction = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), point)
    slope = directional_difference(
        lambda s: total(jax.tree.map(lambda p, d: p + s * d, point, direction)), 0.0, 1.0, step=1e-3
    )
    products = jax.tree.map(lambda g, d: np.sum(g * d), jax.grad(total)(point), direction)
    # A fourth-order difference of step 1e-3 is itself right to about 1e-9.
    assert_close(sum(products), float(slope), loosened=1e3)


DEGENERATE = {
    "duplicates": lambda rng: np.repeat(rng.normal(size=(N // 3, 3)), 3, axis=0),
    "identical rows": lambda rng: np.repeat(rng.normal(size=(1, 3)), N, axis=0),
    "equidistant, all eigenvalues tied": lambda rng: np.eye(N),
    "rank one": lambda rng: np.outer(rng.uniform(1, 2, size=N), [1.0, 2.0, 3.0]),
}


@pytest.mark.parametrize("data", DEGENERATE)
@pytest.mark.parametrize("kernel", [slow(cv.Cosine), lambda: cv.Gaussian(0.5)])
@pytest.mark.filterwarnings("ignore:.*the Gram is numerically")
def test_gradients_are_finite_on_degenerate_data(data, kernel):
    """Zero eigenvalues, ties and distances of zero, in float32."""
    points = jnp.asarray(DEGENERATE[data](np.random.default_rng(0)), jnp.float32)
    entropies = [*map(cv.Entropy, (0.5, 1, 2, np.inf)), cv.Entropy(truncation=3)]

    @jax.jit
    def slopes(points):
        return [jax.grad(lambda p, e=e: e(cv.gram(kernel(), p)))(points) for e in entropies]

    for slope in slopes(points):
        assert np.isfinite(slope).all()


@pytest.mark.parametrize(
    ("order", "truncation"), [(1, None), (2, None), (2, 7), slow(1, 5), slow(0.5, None)]
)
def test_derivatives_in_forward_mode_are_those_in_reverse_mode(order, truncation, x64):
    outputs, prompts = map(jnp.asarray, draw_pairs(N))
    direction = jnp.asarray(np.random.default_rng(1).normal(size=outputs.shape))

    def score(points):
        options = {"order": order, "truncation": truncation}
        return cv.decompose(points, prompts, **kernels(), **options).conditional

    value, slope = jax.jvp(score, (outputs,), (direction,))
    beside, gradient = jax.value_and_grad(score)(outputs)
    assert_close(np.stack([value, beside]), [score(outputs)] * 2)
    assert_close(slope, np.sum(gradient * direction))
