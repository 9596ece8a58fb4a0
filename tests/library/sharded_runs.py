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
from condvendi_jax.grams import Layout, fold, layout_of, represent, to_host
from condvendi_jax.grams.operators import together
from condvendi_jax.spectra import computation, krylov

DEVICES, PROCESSES, DEVICES_EACH = 8, 2, 2
N, TILE, BANDWIDTHS = 203, 16, (0.7, 0.5)
DIMENSIONS = {"d_x": 5, "d_t": 4}
COTANGENT = (0.3, -2.0, 0.7)
COMPILED_N, CAPACITY = 2400, 5
# More than the default budget has products, and no multiple of the devices.
SCORED_N, SCORED = 601, ("stored", "matrix-free")

# name: devices, n, the kernel of the outputs, dtype.
CASES = {
    **{f"{count} devices": (count, N, "gaussian", "float64") for count in (3, 8)},
    "cosine": (3, N, "cosine", "float32"),
    "blocks of padding": (8, 9, "gaussian", "float64"),
    "no padding": (8, 64, "gaussian", "float64"),
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


def measured(gram_x, gram_t, n, dtype="float64"):
    """All results for one pair of Grams, in NumPy."""
    columns = gram_x.place(vectors(n, dtype))
    return to_host(everything(gram_x, gram_t, columns))


def representations():
    out = {}
    for name, (count, n, kernel, dtype) in CASES.items():
        with precision.x64(dtype == "float64"):
            points = draw_pairs(n, dtype=dtype, **DIMENSIONS)
            layout = layout_of(points[0], mesh=lines(count))
            grams = sharded(kernels(kernel), points, layout)
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
    gram_x, gram_t = sharded(kernels(), points, Layout(two, ("hosts", "devices"), N))
    out["two axes"] = (gram_x * gram_t).matvec(gram_x.place(vectors(N)))
    gram, _ = sharded(kernels(), points, Layout(lines(4), "rows", N))
    for name, held in {"": gram, "stored ": gram.store()}.items():
        out[f"{name}eigenvalues"] = held.eigenvalues()
        out[f"{name}vector of n"] = held.matvec(jnp.asarray(vectors(N))[:, 0])
    cosine, _ = sharded(kernels("cosine"), points, Layout(lines(4), "rows", N))
    out["cosine eigenvalues"] = cosine.eigenvalues()
    out["cosine product"] = cosine.matvec(jnp.asarray(vectors(N)))
    out["mixed product"] = (gram.store() * cosine).matrix
    return to_host(out)


def gradients():
    points = tuple(map(jnp.asarray, draw_pairs(N, **DIMENSIONS)))

    def weighted(outputs, prompts, bandwidths, layout):
        pair = kernels(bandwidths=bandwidths)
        gram_x, gram_t = sharded(pair, (outputs, prompts), layout)
        return jnp.array(COTANGENT) @ norms_of(gram_x, gram_t)

    out = {}
    for count in (3, 4):
        layout = Layout(lines(count), "rows", N)
        gradient = jax.jit(jax.grad(weighted, argnums=(0, 1, 2)), static_argnums=3)
        found = gradient(*points, BANDWIDTHS, layout)
        for name, value in zip(("outputs", "prompts", "bandwidths"), found, strict=True):
            out[f"{count}/{name}"] = np.stack(value) if name == "bandwidths" else value
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
    """Standard errors, and what is known of one prompt, on one device and of rows on a mesh."""
    by_name = named(kernels("cosine"))
    points, out = draw_pairs(N, **DIMENSIONS), {}
    for name, mesh in {"one device": None, "mesh": lines(4)}.items():
        parts = []
        for ids in (None, np.arange(N) // 2):  # Rows, and two answers to each prompt.
            same = cv.Pairs(*points, **by_name, mesh=mesh, prompt_ids=ids)
            parts.append(cv.decompose(same, order=2, unbiased=True).scores)
            found = cv.evaluate(same, orders=[2])
            parts.append(found.order(2).population.standard_errors)
            one = found.one_prompt
            parts += [[one.at_most, one.total, one.curve.near.value]] if one.curve else []
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
    gram_x, gram_t = sharded(kernels(), points, layout)
    columns = layout.place(vectors(COMPILED_N))
    stored = gram_x.store()

    def gradient(gram, other):
        return jax.grad(lambda g: norms_of(g, other)[2], allow_int=True)(gram)

    programs = {
        "norms": (norms_of, gram_x, gram_t),
        "gradient": (gradient, gram_x, gram_t),
        "product": (lambda a, v: a.matvec(v), gram_x * gram_t, columns),
        "stored product": (lambda a, v: a.matvec(v), stored, columns),
        "store": (lambda a: a.store(), gram_x),
    }
    space = functools.partial(krylov.krylov_spaces, sweeps=3)
    begin = functools.partial(krylov.start_lanczos, capacity=CAPACITY)
    bounds = jnp.asarray(0), jnp.asarray(CAPACITY)
    for name, gram in {"matrix-free": gram_x, "stored": stored}.items():
        gram = together([gram])
        basis = space(gram, (columns,))[0].basis
        state = begin(basis, columns)
        programs[f"{name} space"] = space, gram, (columns,)
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
    fold.CPU_TILE = fold._CPU_SHARED_TILE = TILE
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    {"devices": devices, "process": process}[sys.argv[1]](*sys.argv[2:])
