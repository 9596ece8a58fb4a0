"""Every main program lowers for CUDA and TPU, on a CPU, to nothing that would stop or spoil it."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import precision
import pytest
from canonical import named, slow

import condvendi_jax as cv
from condvendi_jax.entropies import eigenvalues
from condvendi_jax.grams import TiledGram, fold
from condvendi_jax.grams.operators import DenseGram, together
from condvendi_jax.scores import baselines
from condvendi_jax.spectra import krylov

N = 100_000
STORED = 25_000
D_X, D_T, BLOCK = 768, 512, 32
KERNELS, COSINES = named([cv.Gaussian(1.0), cv.Gaussian(2.0)]), named([cv.Cosine()] * 2)


def _array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _points(n=N):
    return _array(n, D_X), _array(n, D_T)


def _tiled(points, sigma=1.0):
    return TiledGram.from_points(cv.Gaussian(sigma), points)


def _joint(outputs, prompts):
    return _tiled(outputs) * _tiled(prompts)


def _conditional_rke(outputs, prompts, sigma=1.0):
    x, t = _tiled(outputs, sigma), _tiled(prompts)
    return cv.Entropy(2)(x * t) - cv.Entropy(2)(t)


def _by_joint(name):
    return lambda outputs, prompts, *others: getattr(_joint(outputs, prompts), name)(*others)


def _krylov(gram, start):
    return krylov.krylov_spaces(together([gram]), (start,), sweeps=8)


def _lanczos(outputs, prompts, basis, probes, last):
    state = krylov.start_lanczos(basis, probes, capacity=32)
    first = jnp.zeros((), int)
    joint = together([_joint(outputs, prompts)])
    return krylov.lanczos(joint, (basis,), ((state,),), first, last)


def _together(outputs, prompts, vectors):
    single = _tiled(outputs), _tiled(prompts)
    return together([*single, single[0] * single[1]]).matvecs((vectors,) * 3)


_VECTORS = _array(N, BLOCK)
_BASIS = _array(N, 8 * BLOCK)

TILED = {
    "order 2": (_conditional_rke, *_points()),
    "order 2, gradient": (jax.value_and_grad(_conditional_rke, (0, 1, 2)), *_points(), _array()),
    "order 2, bandwidths": (jax.vmap(_conditional_rke, (None, None, 0)), *_points(), _array(16)),
    "products of three": (_together, *_points(), _VECTORS),
    "rest": (_by_joint("row_squares_beside"), *_points(), _BASIS, _BASIS),
    "krylov": (lambda x, t, start: _krylov(_joint(x, t), start), *_points(), _VECTORS),
    "lanczos": (_lanczos, *_points(), _BASIS, _VECTORS, jax.ShapeDtypeStruct((), jnp.int32)),
}


def _guided(kind, window):
    guide = getattr(cv.guidance, kind)(**KERNELS, prompt_size=D_T, window=window)
    latents, prompts = _points(16)
    state = jax.eval_shape(lambda: guide.init(latents))
    return lambda z, t, s: guide.update(None, s, z, prompts=t), latents, prompts, state


def _decomposed(outputs, prompts, **kernels):
    return cv.decompose(outputs, prompts, **(KERNELS | kernels)).conditional


_MATRIX = _array(STORED, STORED)
_SOME = _array(STORED, BLOCK), _array(STORED, 8 * BLOCK)


STORING = {
    "store": (_by_joint("store"), *_points(STORED)),
    "stored krylov": (_krylov, DenseGram(_MATRIX), _SOME[0]),
    "stored rest": (DenseGram.row_squares_beside, DenseGram(_MATRIX), _SOME[1], _SOME[1]),
    "spectrum": (eigenvalues.spectrum, _MATRIX),
    "decompose, gradient": (jax.grad(_decomposed, (0, 1)), *_points(4000)),
    "decompose, features": (functools.partial(_decomposed, **COSINES), *_points(4000)),
    "guidance": _guided("conditional_rke", window=1000),
    "guidance, spectra": _guided("conditional_vendi", window=300),
    "mid": (lambda x, t: baselines._pointwise(x, t, baselines._fit(x, t, 0.1)), *_points(4000)),
}


@pytest.fixture(autouse=True, scope="module")
def tiles_of_accelerators():
    with precision.tiles(fold.ACCELERATOR_TILE):
        yield


# What the platforms bring themselves. Anything else would be a routine of the CPU, a call back to
# the host, or a detour such as reducing to tridiagonal form, whose bisection is for the CPU.
LIBRARIES = {
    "cuda": {"cusolver_syevd_ffi", "cusolver_geqrf_ffi", "cusolver_orgqr_ffi"},
    "tpu": {"Eigh", "Qr", "ProductOfElementaryHouseholderReflectors"},
}
_CALL = re.compile(r"custom_call @\"?([\w.$]+)")
_ARRAY = re.compile(r"tensor<((?:\d+x)+)(\w+)>")


def _lowered(platform, function, *arguments):
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=(platform,)).as_text()


def _largest(text):
    """The elements of the largest array in a program."""
    return max(math.prod(map(int, dims[:-1].split("x"))) for dims, _ in _ARRAY.findall(text))


FEW = ("order 2", "order 2, gradient", "lanczos", "spectrum", "decompose, gradient", "guidance")


@pytest.mark.parametrize("name", [n if n in FEW else slow(n) for n in TILED | STORING])
def test_a_program_lowers_to_what_the_platform_has_at_full_precision(name):
    """TensorFloat-32 and bfloat16, the accelerators' defaults, move the kernel by 1e-3."""
    function, *arguments = (TILED | STORING)[name]
    traced = jax.jit(function).trace(*arguments)
    for platform in LIBRARIES:
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert {*_CALL.findall(text)} <= LIBRARIES[platform]
        assert "f64" not in text
        products = re.findall(r"stablehlo.dot_general.*", text)
        assert not [line for line in products if "precision = [HIGHEST, HIGHEST]" not in line]
        if name in TILED:
            # The history of 32 probes is the largest, a thousand columns of n.
            assert _largest(text) <= N * N / 50


def test_a_tile_is_summed_without_a_matrix_product():
    """A library's product would have every product of kernels written to memory first."""
    text = _lowered("cuda", *TILED["order 2"])
    products = re.findall(r"stablehlo.dot_general.*-> tensor<(\w+)xf32>", text)
    # Inner products of two factors, on the diagonal tiles and beside them.
    assert len(products) == 6  # Two tiles, of one kernel for the prompts and two for the pairs.
    assert len(set(products)) == 1


def test_the_reading_finds_what_it_looks_for():
    """Of programs that have a routine of the CPU, a call to the host, an n x n array, float64."""
    matrix = _array(300, 300)
    assert {*_CALL.findall(_lowered("cpu", jnp.linalg.eigh, matrix))} - LIBRARIES["cuda"]

    def on_the_host(x):
        return jax.pure_callback(lambda x: x, matrix, x)

    with pytest.raises(ValueError, match="different from the lowering platform"):
        _lowered("tpu" if jax.default_backend() == "gpu" else "cuda", on_the_host, matrix)
    assert _largest(_lowered("cuda", lambda *p: _joint(*p).dense().matrix, *_points(300))) >= 300**2
    with precision.x64(True):
        wide = jax.ShapeDtypeStruct((3,), jnp.float64)
        assert "f64" in _lowered("cuda", jnp.sum, wide)
