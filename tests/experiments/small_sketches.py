"""Small Sketch-RNN models in the format in which they are published."""

import base64
import json

import numpy as np
from scipy import special

STEP = 10 / 32767


def content(name, arrays, *, length=12, scale=50.0):
    """A model's file: arrays of whole numbers of 16 bits."""
    says = {"name": name, "mode": 2, "max_seq_len": length, "scale_factor": scale}
    encoded = [base64.b64encode(a.astype("<i2").tobytes()).decode() for a in arrays]
    return json.dumps([says, [list(a.shape) for a in arrays], encoded]).encode()


def random_arrays(seed):
    """The readout of 3 components and its bias, the input's weights, the recurrent ones, a bias."""
    generator = np.random.default_rng(seed)
    shapes = [(6, 21), (21,), (5, 24), (6, 24), (24,)]
    return [generator.integers(-4000, 4000, shape) for shape in shapes]


def fixed_arrays(bias):
    """A network that has the same distribution for every point: the readout's bias."""
    bias = np.round(np.asarray(bias) / STEP)
    shapes = [(2, len(bias)), (5, 8), (2, 8), (8,)]
    readout, *rest = [np.zeros(shape) for shape in shapes]
    return [readout, bias, *rest]


def reference(arrays, points):
    """Parameters of the next point after each of `points` and before them, in float64.

    An implementation by itself, one step and one number at a time; a dictionary a step.
    """
    readout, readout_bias, inputs, recurrent, bias = (a * STEP for a in arrays)
    hidden = cell = np.zeros(len(recurrent))
    found = []
    for point in [np.zeros(5), *points]:
        gates = point @ inputs + hidden @ recurrent + bias
        i, g, f, o = np.split(gates, 4)
        cell = special.expit(f + 1) * cell + special.expit(i) * np.tanh(g)
        hidden = special.expit(o) * np.tanh(cell)
        out = hidden @ readout + readout_bias
        parts = out[3:].reshape(6, -1)
        found.append(
            {
                "pens": out[:3],
                "logits": parts[0],
                "means": parts[1:3].T,
                "deviations": np.exp(parts[3:5].T),
                "correlations": np.tanh(parts[5]),
            }
        )
    return found
