"""A mixture of mixtures: what the benchmark and the rehearsal of many devices run on."""

import math

import numpy as np

KINDS, MODES = 10, 10
_CHUNK = 65_536


def describe(dimensions: tuple[int, int]) -> str:
    """One line for a caption."""
    return f"mixture of {KINDS} kinds of {MODES} modes, d = {dimensions[0]} and {dimensions[1]}"


def draw(n: int, dimensions: tuple[int, int], seed: int) -> list[np.ndarray]:
    """Outputs and prompts, float32 `[n, d]`: 10 kinds of prompts of 10 modes each.

    A prompt is its kind, its mode and noise; its output the same kind, a mode of its own and noise.
    The squared distances of two outputs are about 0.3 within a mode, 1 within a kind and 2 between
    kinds. Of a seed, the first rows are the same for every n.
    """
    pairs = [np.empty((n, d), np.float32) for d in dimensions]
    for role, points in enumerate(pairs):
        d = points.shape[1]
        centres = np.random.default_rng((seed, role))
        kinds = centres.standard_normal((KINDS, d), np.float32)
        modes = 0.6 * centres.standard_normal((KINDS * MODES, d), np.float32)
        for chunk, start in enumerate(range(0, n, _CHUNK)):
            # The same stream for both roles: an output and its prompt are of the same kind.
            shared = np.random.default_rng((seed, 2, chunk))
            own = np.random.default_rng((seed, 3 + role, chunk))
            rows = min(_CHUNK, n - start)
            kind = shared.integers(KINDS, size=_CHUNK)[:rows]
            mode = kind * MODES + own.integers(MODES, size=_CHUNK)[:rows]
            noise = own.standard_normal((rows, d), np.float32)
            points[start : start + rows] = kinds[kind] + modes[mode] + 0.4 * noise
            points[start : start + rows] /= np.float32(math.sqrt(d))
    return pairs
