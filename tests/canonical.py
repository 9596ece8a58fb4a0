"""The data that tests about structure share: two sizes, one dtype, one bandwidth each.

A program is compiled for a size: tests of another size than these compile all of theirs again.
"""

import numpy as np
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


def slow(*values):
    """Parameters of a case that belongs to the slow tier."""
    return pytest.param(*values, marks=pytest.mark.slow)


def named(pair):
    """Kernels of outputs and prompts, or of outputs alone, by the names of their arguments."""
    return dict(zip(("output_kernel", "prompt_kernel"), pair, strict=False))


def kernels(widths=(0.8, 0.6)):
    """Gaussian kernels in the precision of the test."""
    return named(map(cv.Gaussian, widths))


def errors_at(*pairs, order=1, **options):
    """The standard errors of one order, as `evaluate` gives them."""
    return cv.evaluate(*pairs, orders=[order], **options).orders[0].standard_errors
