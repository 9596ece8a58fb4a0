"""Writes what test_sharding.py tests to OUT, a .npz file: JAX counts its devices only once.

python tests/library/sharded_runs.py devices OUT  on 8 virtual CPU devices
python tests/library/sharded_runs.py process OUT PORT ID  one of two processes, 2 devices each
"""

import functools
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import precision
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from oracles import draw_pairs

import condvendi_jax as cv
from condvendi_jax.grams import Layout, layout_of, represent, to_host
from condvendi_jax.spectra import computation, krylov

DEVICES, PROCESSES, DEVICES_EACH = 8, 2, 2
N, TILE, BANDWIDTHS = 203, 16, (0.7, 0.5)
DIMENSIONS = {"d_x": 5, "d_t": 4}
COTANGENT = (0.3, -2.0, 0.7)
COMPILED_N, CAPACITY = 2400, 5
# More than the default budget has products, and no multiple of the devices.
SCORED_N, SCORED = 601, ("stored", "matrix-free")

# name: devices, n, tile, the kernel of the outputs, dtype.
CASES = {
    **{f"{count} devices": (count, N, TILE, "gaussian", "float64") for count in (3, 8)},
    "cosine": (3, N, TILE, "cosine", "float32"),
    "blocks of padding": (8, 9, TILE, "gaussian", "float64"),
    "no padding": (8, 64, 3, "gaussian", "float64"),
}


def kernels(of_outputs="gaussian", bandwidths=BANDWIDTHS):
    """The kernels of the outputs and of the prompts, in the precision of the moment."""
    gaussian = tuple(map(cv.Gaussian, bandwidths))
    return (cv.Cosine(), gaussian[1]) if of_outputs == "cosine" else gaussian


def named(pair):
    """By the names of their arguments; `canonical` would start JAX before there are processes."""
    return dict(zip(("output_kernel", "prompt_kernel"), pair, strict=True))


def vectors(n, dtype="float64"):
    return np.random.default_rng(1).normal(size=(n, 3)).astype(dtype)


def lines(count, name="rows"):
    """A mesh of the first devices."""
    return Mesh(np.array(jax.devices()[:count]), (name,))


def sharded(pair, points, layout, tile=TILE):
    return [
        represent(kernel, p, layout=layout)
        if isinstance(kernel, cv.Cosine)
        else cv.grams.TiledGram.from_points(kernel, p, layout=layout, tile_size=tile)
        for kernel, p in zip(pair, points, strict=True)
    ]


def norms_of(gram_x, gram_t):
    """Of outputs, prompts and pairs; of tiles in one pass."""
    grams = gram_x, gram_t, gram_x * gram_t
    shared = cv.grams.SharedTiles.of(grams)
    if shared is None:
        return jnp.stack([gram.squared_frobenius_norm() for gram in grams])
    return shared.squared_frobenius_norms()


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


def measured(gram_x, gram_t, n, dtype="float64"):
    """All results for one pair of Grams, in NumPy."""
    columns = gram_x.place(vectors(n, dtype))
    return to_host(everything(gram_x, gram_t, columns))


def representations():
    out = {}
    for name, (count, n, tile, kernel, dtype) in CASES.items():
        with precision.x64(dtype == "float64"):
            points = draw_pairs(n, dtype=dtype, **DIMENSIONS)
            layout = layout_of(points[0], mesh=lines(count))
            grams = sharded(kernels(kernel), points, layout, tile)
            out |= {f"{name}/{key}": value for key, value in measured(*grams, n, dtype).items()}
    return out


def meshes():
    """Other ways to say where the points are."""
    out = {}
    points = draw_pairs(N, **DIMENSIONS)
    types_of_axes = (jax.sharding.AxisType.Explicit,)
    explicit = jax.make_mesh((DEVICES,), ("rows",), axis_types=types_of_axes)
    layout = layout_of(points[0], mesh=explicit)
    out["explicit mesh"] = sharded(kernels(), points, layout)[0].squared_frobenius_norm()
    two = Mesh(np.array(jax.devices()).reshape(2, 4), ("hosts", "devices"))
    for name, axis in {"two axes": ("hosts", "devices"), "one of two axes": "devices"}.items():
        gram_x, gram_t = sharded(kernels(), points, Layout(two, axis, N))
        out[name] = (gram_x * gram_t).matvec(gram_x.place(vectors(N)))
    # Rows that lie on devices already, under either type of mesh, say themselves where.
    for name, mesh in {"auto": lines(DEVICES), "explicit": explicit}.items():
        rows = jax.device_put(points[0][:200], NamedSharding(mesh, PartitionSpec("rows")))
        gram = cv.grams.TiledGram.from_points(kernels()[0], rows, tile_size=TILE)
        out[f"{name} rows"] = gram.squared_frobenius_norm()
    gram, _ = sharded(kernels(), points, Layout(lines(4), "rows", N))
    for name, held in {"": gram, "stored ": gram.store()}.items():
        out[f"{name}eigenvalues"] = held.eigenvalues()
        out[f"{name}vector of n"] = held.matvec(jnp.asarray(vectors(N))[:, 0])
    cosine, _ = sharded(kernels("cosine"), points, Layout(lines(4), "rows", N))
    out["cosine eigenvalues"] = cosine.eigenvalues()
    out["cosine product"] = cosine.matvec(jnp.asarray(vectors(N)))
    out["mixed product"] = (gram.store() * cosine).matrix
    out["mixed norm"] = (gram.store() * cosine).squared_frobenius_norm()
    return to_host(out)


def gradients():
    points = tuple(map(jnp.asarray, draw_pairs(N, **DIMENSIONS)))

    def weighted(outputs, prompts, bandwidths, layout):
        pair = kernels(bandwidths=bandwidths)
        gram_x, gram_t = sharded(pair, (outputs, prompts), layout)
        return jnp.array(COTANGENT) @ norms_of(gram_x, gram_t)

    def slope(points, bandwidths, layout):
        gram_x, gram_t = sharded(kernels(bandwidths=bandwidths), points, layout)
        left, right = (layout.place(v) for v in (vectors(N), vectors(N)[::-1]))
        return (gram_x * gram_t).bilinear_slope(left, right)

    out = {}
    for count in (3, 4):
        layout = Layout(lines(count), "rows", N)
        gradient = jax.jit(jax.grad(weighted, argnums=(0, 1, 2)), static_argnums=3)
        found = gradient(*points, BANDWIDTHS, layout)
        for name, value in zip(("outputs", "prompts", "bandwidths"), found, strict=True):
            out[f"{count}/{name}"] = np.stack(value) if name == "bandwidths" else value
        slopes = jax.jit(jax.grad(slope, argnums=(0, 1)), static_argnums=2)
        slopes = slopes(points, BANDWIDTHS, layout)
        for name, value in zip(("slope in points", "slope in bandwidths"), slopes, strict=True):
            out[f"{count}/{name}"] = np.concatenate([np.ravel(part) for part in value])
    # In one argument alone, and not compiled.
    layout = Layout(lines(2), "rows", N)
    out["prompts alone"] = jax.grad(weighted, argnums=1)(*points, BANDWIDTHS, layout)
    return to_host(out)


def scores(pairs, ways=SCORED, **options):
    """All three scores by `decompose`, of order 2 and estimated."""
    options |= named(kernels())
    exact = cv.decompose(*pairs, **options, order=2)
    by_way = [computation.named(name, key=jax.random.key(2), rtol=0.02) for name in ways]
    found = [cv.decompose(*pairs, **options, method=method) for method in by_way]
    values = [[r.vendi, r.conditional, r.information] for r in (exact, *found)]
    assert [r.method for r in found] == list(ways)
    return {"scores": np.array(values, np.float64), "n": np.array(exact.n)}


def errors():
    """The standard errors of `evaluate`, of rows on one device and of the same rows on a mesh."""
    by_name = named(kernels("cosine"))
    points, out = draw_pairs(N, **DIMENSIONS), {}
    for name, mesh in {"one device": None, "mesh": lines(4)}.items():
        pairs = cv.Pairs(*points, **by_name, mesh=mesh)
        found = cv.evaluate(pairs, orders=[1, 2], groups=5)
        parts = [order.standard_errors for order in found.orders]
        for ids in (None, np.arange(N) // 2):  # Rows, and two answers to each prompt.
            same = cv.Pairs(*points, **by_name, mesh=mesh, prompt_ids=ids)
            parts.append(cv.decompose(same, order=2, unbiased=True).scores)
            parts.append(cv.evaluate(same, orders=[2]).order(2).population.standard_errors)
        out[name] = np.array(parts, np.float64)
    return out


def weighted():
    """Scores of weighted rows, some of weight zero, with errors; and derivatives in the weights."""
    by_name = named(kernels())
    points, out = draw_pairs(SCORED_N, **DIMENSIONS), {}
    weights = np.random.default_rng(3).integers(0, 4, SCORED_N)
    ways = {"one device": (None, cv.Stored), "mesh": (lines(4), cv.MatrixFree)}
    for name, (mesh, method) in ways.items():
        method = method(jax.random.key(2), rtol=0.02)
        pairs = cv.Pairs(*points, **by_name, weights=1.0 * weights, mesh=mesh)
        found = cv.evaluate(pairs, orders=[1, 2], method=method)
        out[f"{name}/scores"] = np.array([o.decomposition.scores for o in found.orders])
        out[f"{name}/errors"] = np.array([o.standard_errors for o in found.orders])
        rows = cv.contributions(pairs, order=2, method=method).influences
        out[f"{name}/rows"] = np.stack(rows)

        def conditional(w, mesh=mesh):
            given = cv.Pairs(*points, **by_name, weights=w, mesh=mesh)
            return cv.conditional_rke(given)

        out[f"{name}/slope"] = jax.grad(conditional)(jnp.asarray(1.0 * weights))
    return to_host(out)


def guided():
    """Updates of guides whose window is on one device, and of those whose window is on four."""
    mesh, window, b = lines(4), 16, 4
    rows, everywhere = (NamedSharding(mesh, PartitionSpec(*axis)) for axis in (("rows",), ()))
    pairs = draw_pairs(3 * b, **DIMENSIONS)
    past, batch, other = (tuple(a[i : i + b] for a in pairs) for i in (0, b, 2 * b))
    options = named(kernels(bandwidths=(3.0, 2.0)))
    options |= {"prompt_size": batch[1].shape[1], "window": window}
    guides = {
        "order 2": cv.guidance.conditional_rke(**options),
        "spectra": cv.guidance.conditional_vendi(**options, truncation=3),
    }
    out = {}
    for name, guide in guides.items():

        @jax.jit
        def run(past, batch, state, guide=guide):
            state = cv.guidance.remember(state, *past)
            return guide.update(None, state, batch[0], prompts=batch[1])

        alone = guide.init(batch[0])
        spread = jax.tree.map(
            lambda leaf: jax.device_put(leaf, rows if leaf.shape[:1] == (window,) else everywhere),
            alone,
        )
        assert not spread.rows[0].sharding.is_fully_replicated
        updates = [run(other, batch, run(past, other, state)[1])[0] for state in (alone, spread)]
        out[name] = np.stack(list(map(to_host, updates)))
    return out


_ARRAY = re.compile(r"\b[a-z]+\d*\[([\d,]+)\]")
_GATHER = re.compile(r"= (.*?) (all-gather|all-to-all)(?:-start)?\(")
_HOP = re.compile(r"= (.*?) collective-permute(?:-start)?\(")


def _elements(text):
    return [int(np.prod([int(d) for d in m.split(",")])) for m in _ARRAY.findall(text)] or [0]


def inspected(text):
    """The elements of the largest array, gather and hop in the text that XLA compiled."""
    gathered = [size for found in _GATHER.findall(text) for size in _elements(found[0])]
    passed = [size for found in _HOP.findall(text) for size in _elements(found)]
    return np.array([max(_elements(text)), max(gathered, default=0), max(passed, default=0)])


def compiled():
    points = draw_pairs(COMPILED_N, **DIMENSIONS)
    layout = Layout(lines(DEVICES), "rows", COMPILED_N)
    gram_x, gram_t = sharded(kernels(), points, layout, 64)
    columns = layout.place(vectors(COMPILED_N))
    stored = gram_x.store()

    def gradient(gram, other):
        return jax.grad(lambda g: norms_of(g, other)[2], allow_int=True)(gram)

    def prepared(outputs):
        kernel = cv.Gaussian(BANDWIDTHS[0])
        return cv.grams.TiledGram.from_points(kernel, outputs, layout=layout)

    programs = {
        "prepared points": (prepared, layout.shard(points[0])),
        "norms": (norms_of, gram_x, gram_t),
        "gradient": (gradient, gram_x, gram_t),
        "product": (lambda a, v: a.matvec(v), gram_x * gram_t, columns),
        "stored product": (lambda a, v: a.matvec(v), stored, columns),
        "stored norm": (lambda a: a.squared_frobenius_norm(), stored),
        "store": (lambda a: a.store(), gram_x),
    }
    space = functools.partial(krylov.krylov_spaces, sweeps=3)
    begin = functools.partial(krylov.start_lanczos, capacity=CAPACITY)
    bounds = jnp.asarray(0), jnp.asarray(CAPACITY)
    for name, gram in {"matrix-free": gram_x, "stored": stored}.items():
        basis = space(gram, (columns,))[0].basis
        state = begin(basis, columns)
        programs[f"{name} space"] = space, gram, (columns,)
        programs[f"{name} start"] = begin, basis, columns
        programs[f"{name} lanczos"] = krylov.lanczos, gram, (basis,), ((state,),), *bounds
    return {
        name: inspected(jax.jit(function).lower(*arguments).compile().as_text())
        for name, (function, *arguments) in programs.items()
    }


def devices(path):
    jax.config.update("jax_enable_x64", True)
    pairs = draw_pairs(SCORED_N, **DIMENSIONS)
    runs = {
        "cases": representations,
        "meshes": meshes,
        "gradients": gradients,
        "mesh": lambda: scores(pairs, mesh=lines(4)),
        "one device": lambda: scores(pairs),
        "errors": errors,
        "weighted": weighted,
        "guided": guided,
        "compiled": compiled,
    }
    parts = {}
    for name, run in runs.items():
        parts[name] = run()
        jax.clear_caches()  # Programs for eight devices are large.
    np.savez(path, **{f"{part}/{k}": v for part, found in parts.items() for k, v in found.items()})


def process(path, port, index):
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", PROCESSES, int(index))
    layout_mesh = lines(PROCESSES * DEVICES_EACH)
    points = draw_pairs(N, **DIMENSIONS)
    # Arrays of which every host has its own part.
    n = N // 4 * 4
    half = slice(int(index) * n // 2, (int(index) + 1) * n // 2)
    rows = NamedSharding(layout_mesh, PartitionSpec("rows"))
    parts = [jax.make_array_from_process_local_data(rows, p[half]) for p in points]
    grams = sharded(kernels(), parts, layout_of(parts[0]))
    out = {f"parts/{key}": value for key, value in measured(*grams, n).items()}
    # The same call, whatever the arrays are: of this host, whose rows the devices do not divide, or
    # of all of them together.
    points = draw_pairs(SCORED_N, **DIMENSIONS)
    out |= {f"host/{k}": v for k, v in scores(points, mesh=layout_mesh).items()}
    own = slice(int(index) * 300, int(index) * 300 + 300)
    parts = [jax.make_array_from_process_local_data(rows, p[own]) for p in points]
    out |= {f"global/{k}": v for k, v in scores(parts, ("matrix-free",)).items()}
    np.savez(path, **out)


if __name__ == "__main__":
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    {"devices": devices, "process": process}[sys.argv[1]](*sys.argv[2:])
