"""A small decoder in the published format, and what it computes by itself."""

import itertools
import json

import numpy as np

from experiments.generators import quickdraw_vae

SHARD = f"{quickdraw_vae.FOLDER}/models/group1-shard1of1"
NAMES = ["cat", "alarm_clock", "key"]
LATENTS, SIDE, CHANNELS = 3, 2, (2, 4, 3)


def arrays(seed=0):
    """Weights by name: the latents and the class, two squares, three convolutions to one."""
    generator = np.random.default_rng(seed)
    units = CHANNELS[0] * SIDE**2
    shapes = {"dense_5/kernel": (LATENTS + len(NAMES) + 1, units), "dense_5/bias": (units,)}
    for layer, (given, made) in enumerate(itertools.pairwise([*CHANNELS, 1]), start=1):
        shapes[f"conv2d_transpose_{layer}/kernel"] = (3, 3, made, given)
        shapes[f"conv2d_transpose_{layer}/bias"] = (made,)
    return {name: generator.normal(size=shape).astype("<f4") for name, shape in shapes.items()}


def files(seed=0):
    """The three files by path."""
    weights = arrays(seed)
    entries = [{"name": name, "shape": array.shape} for name, array in weights.items()]
    manifest = {"paths": ["group1-shard1of1"], "weights": entries}
    return {
        quickdraw_vae.LABELS: json.dumps({"labels": NAMES}).encode(),
        quickdraw_vae.MODEL: json.dumps({"weightsManifest": [manifest]}).encode(),
        SHARD: b"".join(array.tobytes() for array in weights.values()),
    }


def decode(weights, latents, prompts):
    """The decoder in NumPy float64, a pixel at a time."""
    weights = {name: array.astype(np.float64) for name, array in weights.items()}
    drawings = []
    for latent, prompt in zip(latents, prompts, strict=True):
        chosen = np.zeros(len(NAMES) + 1)
        chosen[prompt + 1] = 1
        flat = np.concatenate([latent, chosen]) @ weights["dense_5/kernel"]
        x = np.maximum(flat + weights["dense_5/bias"], 0).reshape(SIDE, SIDE, -1)
        for layer in (1, 2, 3):
            name = f"conv2d_transpose_{layer}"
            x = transposed(x, weights[f"{name}/kernel"]) + weights[f"{name}/bias"]
            if layer < 3:
                x = np.kron(np.maximum(x, 0), np.ones((2, 2, 1)))
        drawings.append(1 / (1 + np.exp(-x[..., 0])))
    return np.stack(drawings)


def transposed(x, kernel):
    """Every pixel spreads its channels over its 3 x 3 neighbours; what leaves the square is cut."""
    wide = np.zeros((len(x) + 2, len(x) + 2, kernel.shape[2]))
    for i, j in np.ndindex(x.shape[:2]):
        wide[i : i + 3, j : j + 3] += kernel @ x[i, j]
    return wide[1:-1, 1:-1]
