"""The data and results that tests about structure share: two sizes, one dtype, one bandwidth each.

A program is compiled for a size: tests of another size than these compile all of theirs again.
"""

import functools

import numpy as np
import precision
import pytest
from oracles import draw_pairs

import condvendi_jax as cv

N, N_LARGE = 48, 400
SCORES = ("vendi", "conditional", "information")
# Powers of two: made outside of x64, they lose nothing.
WIDTHS = (1.0, 0.5)
KERNELS = {"output_kernel": cv.Gaussian(WIDTHS[0]), "prompt_kernel": cv.Gaussian(WIDTHS[1])}
OUTPUTS, PROMPTS = draw_pairs(N, dtype=np.float32)
# Eight prompts with six answers each.
FEW_PROMPTS = np.repeat(PROMPTS[:8], 6, axis=0)
# Of the same prompts: two models alike, and one that says more.
MODELS = {
    name: FEW_PROMPTS[:, :1] + spread * OUTPUTS[np.random.default_rng(seed).permutation(N)]
    for name, spread, seed in (("one", 0.5, 1), ("two", 0.5, 2), ("three", 1.5, 3))
}
MODELS = {name: np.float32(outputs) for name, outputs in MODELS.items()}


def slow(*values):
    """Parameters of a case that belongs to the slow tier."""
    return pytest.param(*values, marks=pytest.mark.slow)


def kernels(widths=(0.8, 0.6)):
    """Gaussian kernels in the precision of the test."""
    return dict(zip(KERNELS, map(cv.Gaussian, widths), strict=True))


@functools.cache
def evaluation():
    """`evaluate` of the outputs and prompts, at orders 1 and 2."""
    with precision.x64(False):
        return cv.evaluate(OUTPUTS, PROMPTS, **KERNELS, orders=[1, 2])


@functools.cache
def comparison():
    """`compare` of the models, at orders 1 and 2."""
    with precision.x64(False):
        return cv.compare(MODELS, FEW_PROMPTS, **KERNELS, orders=[1, 2])
