"""Sharded Grams against NumPy: test_sharding.py runs this in processes of several devices.

JAX counts its devices only once: 8 virtual CPU devices of one process, or 2 of each of two, which
meet at SHARDED_PORT.
"""

import functools
import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import precision
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from oracles import assert_close, cosine_gram, draw_pairs, eigenvalues, gaussian_grams
from oracles import scores as oracle_scores
from scipy.spatial.distance import cdist

import condvendi_jax as cv
from condvendi_jax.grams import Layout, layout_of, represent, to_host
from condvendi_jax.grams.operators import together
from condvendi_jax.spectra import computation, krylov

DEVICES, PROCESSES, INDEX = 8, 2, int(os.environ.get("SHARDED_INDEX", "0"))
if PORT := os.environ.get("SHARDED_PORT"):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{PORT}", PROCESSES, INDEX)
N, TILE, BANDWIDTHS = 203, 16, (0.7, 0.5)
# More than the default budget has products, and no multiple of the devices.
SCORED_N = 601
draw = functools.partial(draw_pairs, d_x=5, d_t=4)


@pytest.fixture(autouse=True, scope="module")
def small_tiles():
    with precision.x64(True), precision.tiles(TILE):
        yield


def kernels(of_outputs="gaussian", bandwidths=BANDWIDTHS):
    gaussian = tuple(map(cv.Gaussian, bandwidths))
    return (cv.Cosine(), gaussian[1]) if of_outputs == "cosine" else gaussian


def named(pair):
    """By the names of their arguments; `canonical` would start JAX before there are processes."""
    return dict(zip(("output_kernel", "prompt_kernel"), pair, strict=True))


def oracle_grams(points, of_outputs="gaussian"):
    x, t = gaussian_grams(points, BANDWIDTHS)
    return cosine_gram(points[0]) if of_outputs == "cosine" else x, t


def vectors(n, dtype="float64"):
    return np.random.default_rng(1).normal(size=(n, 3)).astype(dtype)


def lines(count):
    """A mesh of the first devices."""
    return Mesh(np.array(jax.devices()[:count]), ("rows",))


def sharded(pair, points, layout):
    return [
        represent(kernel, p, layout=layout)
        if isinstance(kernel, cv.Cosine)
        else cv.grams.TiledGram.from_points(kernel, p, layout=layout)
        for kernel, p in zip(pair, points, strict=True)
    ]


def norms_of(gram_x, gram_t):
    """Of outputs, prompts and pairs; of tiles in one pass."""
    grams = gram_x, gram_t, gram_x * gram_t
    return together(grams).squared_frobenius_norms()


@jax.jit
def everything(gram_x, gram_t, columns):
    joint = gram_x * gram_t
    stored = joint.store()
    return {
        "norms": norms_of(gram_x, gram_t),
        "product": joint.matvec(columns),
        "matrix": stored.matrix,
        "stored product": stored.matvec(columns),
        "stored norm": stored.squared_frobenius_norm(),
        "beside": joint.row_squares_beside(columns, columns),
        "stored beside": stored.row_squares_beside(columns, columns),
    }


def assert_right(gram_x, gram_t, x, t, count):
    """All results for one pair of Grams, of their dtype, and that the padding is zero."""
    n, joint, dtype = len(x), x * t, gram_x.dtype
    columns, rows = vectors(n, dtype), -(-n // count) * count
    values = to_host(everything(gram_x, gram_t, gram_x.place(columns)))
    assert {value.dtype for value in values.values()} == {dtype}
    assert_close(values["norms"], [np.mean(k**2) for k in (x, t, joint)])
    assert_close(values["stored norm"], np.mean(joint**2))
    columns = vectors(n)
    beside = np.sum((joint / n - columns @ columns.T) ** 2, axis=1)
    for name, expected in (("product", joint @ columns / n), ("beside", beside)):
        for found in (values[name], values[f"stored {name}"]):
            assert found.shape == (rows, *expected.shape[1:])
            assert_close(found[:n], expected)
            assert not found[n:].any()
    assert values["matrix"].shape == (rows, rows)
    assert_close(values["matrix"], np.pad(joint, (0, rows - n)))
    assert not values["matrix"][n:].any()
    assert not values["matrix"][:, n:].any()
    return values["matrix"][:n, :n]


@pytest.mark.parametrize(
    ("count", "n", "kernel", "dtype"),
    [
        (3, N, "gaussian", "float64"),
        (8, N, "gaussian", "float64"),
        (3, N, "cosine", "float32"),
        pytest.param(8, 9, "gaussian", "float64", id="blocks of padding"),
        pytest.param(8, 64, "gaussian", "float64", id="no padding"),
    ],
)
def test_sharded_grams_are_those_of_numpy(count, n, kernel, dtype):
    with precision.x64(dtype == "float64"):
        points = draw(n, dtype=dtype)
        grams = sharded(kernels(kernel), points, layout_of(points[0], mesh=lines(count)))
        matrix = assert_right(*grams, *oracle_grams(points, kernel), count)
        assert (np.diag(matrix) == 1).all()


def test_every_way_to_say_where_points_are_gives_what_numpy_does():
    """Meshes with explicit axes or two, features, vectors of n."""
    points, columns = draw(N), vectors(N)
    (x, t), cosine = oracle_grams(points), cosine_gram(points[0])
    explicit = jax.make_mesh((DEVICES,), ("rows",), axis_types=(jax.sharding.AxisType.Explicit,))
    gram, _ = sharded(kernels(), points, layout_of(points[0], mesh=explicit))
    assert_close(gram.squared_frobenius_norm(), np.mean(x**2))
    two = Mesh(np.array(jax.devices()).reshape(2, 4), ("hosts", "devices"))
    gram, prompts = sharded(kernels(), points, Layout(two, ("hosts", "devices"), N))
    assert_close((gram * prompts).matvec(gram.place(columns))[:N], (x * t) @ columns / N)
    gram, _ = sharded(kernels(), points, Layout(lines(4), "rows", N))
    for held in (gram, gram.store()):
        assert_close(held.eigenvalues(), eigenvalues(x))
        assert_close(held.matvec(jnp.asarray(columns)[:, 0]), x @ columns[:, 0] / N)
    features, _ = sharded(kernels("cosine"), points, Layout(lines(4), "rows", N))
    assert_close(features.eigenvalues(), eigenvalues(cosine))
    assert_close(features.matvec(jnp.asarray(columns)), cosine @ columns / N)
    assert_close((gram.store() * features).matrix[:N, :N], x * cosine)


def norm_gradient(weights, points, bandwidth):
    """d sum_ij K_ij^2 w_ij / n^2 in the points and in the bandwidth, for K_ij^2 w_ij given."""
    n = len(points)
    pull = weights.sum(axis=1)[:, None] * points - weights @ points
    squares = cdist(points, points, "sqeuclidean")
    in_bandwidth = 2 * np.sum(weights * squares) / bandwidth**3 / n**2
    return -4 * pull / bandwidth**2 / n**2, in_bandwidth


def test_gradients_are_those_of_the_formulas():
    """In points and bandwidths, where the last hop is whole (3 devices) and divided (4)."""
    pairs, (of_x, of_t, of_joint) = draw(N), (0.3, -2.0, 0.7)

    def weighted(outputs, prompts, bandwidths, layout):
        grams = sharded(kernels(bandwidths=bandwidths), (outputs, prompts), layout)
        return jnp.array([of_x, of_t, of_joint]) @ norms_of(*grams)

    x, t = oracle_grams(pairs)
    squares = (of_x * x**2 + of_joint * (x * t) ** 2, of_t * t**2 + of_joint * (x * t) ** 2)
    expected = list(map(norm_gradient, squares, pairs, BANDWIDTHS))
    points = tuple(map(jnp.asarray, pairs))
    gradient = jax.jit(jax.grad(weighted, argnums=(0, 1, 2)), static_argnums=3)
    for count in (3, 4):
        *of_points, of_bandwidths = gradient(*points, BANDWIDTHS, Layout(lines(count), "rows", N))
        for k, (in_points, in_bandwidth) in enumerate(expected):
            np.testing.assert_allclose(of_points[k], in_points, rtol=1e-9, atol=1e-14)
            np.testing.assert_allclose(of_bandwidths[k], in_bandwidth, rtol=1e-9)
    # In one argument alone, and not compiled.
    alone = jax.grad(weighted, argnums=1)(*points, BANDWIDTHS, Layout(lines(2), "rows", N))
    np.testing.assert_allclose(alone, expected[1][0], rtol=1e-9, atol=1e-14)


_ARRAY = re.compile(r"\b[a-z]+\d*\[([\d,]+)\]")
_GATHER = re.compile(r"= (.*?) (?:all-gather|all-to-all)(?:-start)?\(")
_HOP = re.compile(r"= (.*?) collective-permute(?:-start)?\(")


def largest(*texts):
    """The elements of the largest array that compiled texts name."""
    sizes = [m.split(",") for text in texts for m in _ARRAY.findall(text)]
    return max((int(np.prod([int(d) for d in size])) for size in sizes), default=0)


def inspected(function, *arguments):
    """The elements of the largest array, gather and hop in the text that XLA compiled."""
    text = jax.jit(function).lower(*arguments).compile().as_text()
    return largest(text), largest(*_GATHER.findall(text)), largest(*_HOP.findall(text))


def test_compiled_rings_gather_nothing_and_stored_grams_vectors_only():
    n, capacity = 2400, 5
    layout = Layout(lines(DEVICES), "rows", n)
    gram_x, gram_t = sharded(kernels(), draw(n), layout)
    columns, stored, matrix_block = layout.place(vectors(n)), gram_x.store(), n**2 // DEVICES
    rows = n // DEVICES + TILE  # A block of rows, padded to whole tiles, of at most 5 columns.

    def gradient(gram, other):
        return jax.grad(lambda g: norms_of(g, other)[2], allow_int=True)(gram)

    def product(gram, columns):
        return gram.matvec(columns)

    in_rings = (norms_of, gram_x, gram_t), (gradient, gram_x, gram_t)
    for program in (*in_rings, (product, gram_x * gram_t, columns)):
        array, gathered, passed = inspected(*program)
        assert array < matrix_block / 50
        assert gathered == 0
        assert 0 < passed <= 5 * rows

    def of_recurrences(gram):
        space = functools.partial(krylov.krylov_spaces, sweeps=3)
        basis, bounds = space(gram, (columns,))[0].basis, (jnp.asarray(0), jnp.asarray(capacity))
        state = krylov.start_lanczos(basis, columns, capacity=capacity)
        yield inspected(space, gram, (columns,))
        yield inspected(krylov.lanczos, gram, (basis,), ((state,),), *bounds)

    for array, gathered, _ in of_recurrences(together([gram_x])):
        # The vectors of the recurrences are the largest that there is, and they are sharded.
        assert array <= max(4096, capacity * 3 * rows)
        assert gathered == 0
    # The control: a reader of compiled text that finds no block here would find none anywhere.
    of_stored = inspected(product, stored, columns), *of_recurrences(together([stored]))
    assert {seen[:2] for seen in of_stored} == {(matrix_block, n * 3)}
    array, gathered, _ = inspected(lambda a: a.store(), gram_x)
    assert array == matrix_block
    assert gathered <= 5 * n  # The points.


def scores(pairs, ways=("stored", "matrix-free"), **options):
    """n, and all three scores by `decompose`, of order 2 and estimated."""
    options |= named(kernels())
    exact = cv.decompose(*pairs, **options, order=2)
    by_way = [computation.named(name, key=jax.random.key(2), rtol=0.02) for name in ways]
    found = [cv.decompose(*pairs, **options, method=method) for method in by_way]
    assert [r.method for r in found] == list(ways)
    values = [[r.vendi, r.conditional, r.information] for r in (exact, *found)]
    return exact.n, np.array(values, np.float64)


def assert_scores(found, points):
    """Those of NumPy, at order 2 and estimated."""
    grams = oracle_grams(points)
    two, one = (list(oracle_scores(*grams, order=order).values()) for order in (2, 1))
    np.testing.assert_allclose(found[0], two, rtol=1e-10)
    np.testing.assert_allclose(found[1:], [one] * (len(found) - 1), rtol=0.02)


def test_the_scores_on_a_mesh_are_those_of_one_device():
    points = draw(SCORED_N)
    (n, on_mesh), (_, on_one) = scores(points, mesh=lines(4)), scores(points)
    assert n == SCORED_N
    np.testing.assert_allclose(on_mesh, on_one, rtol=1e-8)
    assert_scores(on_one, points)


@pytest.mark.parametrize("ids", [None, np.arange(N) // 2], ids=["rows", "two answers a prompt"])
def test_the_errors_on_a_mesh_are_those_of_one_device(ids):
    """And what is known of one prompt."""

    def errors(mesh):
        pairs = cv.Pairs(*draw(N), **named(kernels("cosine")), mesh=mesh, prompt_ids=ids)
        found = cv.evaluate(pairs, orders=[2])
        unbiased = cv.decompose(pairs, order=2, unbiased=True).scores
        one = found.one_prompt
        known = [one.at_most, one.total, one.curve.near.value] if one.curve else []
        return np.array([*unbiased, *found.order(2).population.standard_errors, *known])

    on_one, on_mesh = errors(None), errors(lines(4))
    assert on_one.size == 9 or ids is not None
    assert (on_mesh > 0).all()
    np.testing.assert_allclose(on_mesh, on_one, rtol=1e-8)


def test_weighted_rows_on_a_mesh_score_as_on_one_device():
    """Some rows of weight zero: scores, errors, influences and derivatives in the weights."""
    points, options = draw(SCORED_N), named(kernels())
    weights = 1.0 * np.random.default_rng(3).integers(0, 4, SCORED_N)

    def results(mesh, method):
        method, options["mesh"] = method(jax.random.key(2), rtol=0.02), mesh
        pairs = cv.Pairs(*points, **options, weights=weights)
        with pytest.warns(UserWarning, match="no standard errors"):
            found = cv.evaluate(pairs, orders=[1, 2], method=method)  # Errors of order 1 are NaN.
        yield [o.decomposition.scores for o in found.orders]
        yield [o.standard_errors for o in found.orders]
        yield np.stack(cv.contributions(pairs, order=2, method=method).influences)

        def score(w):
            return cv.conditional_rke(cv.Pairs(*points, **options, weights=w))

        yield jax.grad(score)(jnp.asarray(weights))

    both = results(lines(4), cv.MatrixFree), results(None, cv.Stored)
    for on_mesh, on_one in zip(*map(list, both), strict=True):
        assert np.nanmax(np.abs(on_one)) > 1e-4
        np.testing.assert_allclose(to_host(on_mesh), on_one, rtol=1e-7, atol=1e-12)


def test_each_of_two_processes_may_bring_its_own_rows():
    """All is computed before anything is asserted: the processes wait for each other."""
    mesh, points, several = lines(jax.device_count()), draw(N), draw(SCORED_N)
    rows = NamedSharding(mesh, PartitionSpec("rows"))

    def own(points, n):
        mine = slice(INDEX * n // 2, (INDEX + 1) * n // 2)
        return [jax.make_array_from_process_local_data(rows, p[mine]) for p in points]

    parts = own(points, 200)
    grams = sharded(kernels(), parts, layout_of(parts[0]))
    # The same call, whatever the arrays are: of this host, whose rows the devices do not divide, or
    # of all of them together.
    on_host, together_n = scores(several, mesh=mesh), scores(own(several, 600), ("matrix-free",))
    assert_right(*grams, *oracle_grams([p[:200] for p in points]), mesh.size)
    assert (on_host[0], together_n[0]) == (SCORED_N, 600)
    np.testing.assert_allclose(on_host[1], scores(several)[1], rtol=1e-8)
    assert_scores(on_host[1], several)
    assert_scores(together_n[1], [p[:600] for p in several])
