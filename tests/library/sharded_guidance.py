"""Guidance whose memory is spread over devices: JAX counts its devices only once a process.

python tests/library/sharded_guidance.py  on 4 virtual CPU devices; prints the largest difference
"""

import subprocess
import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from oracles import assert_close, draw_pairs
from processes import HANG_S, on_devices

import condvendi_jax as cv

DEVICES, WINDOW, B = 4, 16, 4


def check():
    """Measures in a process of its own."""
    subprocess.run([sys.executable, __file__], env=on_devices(DEVICES), check=True, timeout=HANG_S)


def main():
    """Every kind, with rows of the window on all devices, against one device."""
    kernels = {"output_kernel": cv.Gaussian(0.8), "prompt_kernel": cv.Gaussian(0.6)}
    assert jax.device_count() == DEVICES
    mesh = Mesh(np.array(jax.devices()), ("rows",))
    rows, everywhere = (NamedSharding(mesh, PartitionSpec(*axis)) for axis in (("rows",), ()))
    pairs = draw_pairs(3 * B, dtype=np.float32)
    past, batch, other = (tuple(a[i : i + B] for a in pairs) for i in (0, B, 2 * B))
    for guide in (
        cv.guidance.conditional_rke(**kernels, window=WINDOW),
        cv.guidance.conditional_vendi(**kernels, window=WINDOW, truncation=3),
    ):
        alone = guide.init(*batch)
        spread = jax.tree.map(
            lambda leaf: jax.device_put(leaf, rows if leaf.ndim else everywhere), alone
        )
        assert not spread.latents.sharding.is_fully_replicated
        updates = []
        for state in (alone, spread):
            run = jax.jit(lambda p, q, s, g=guide: g.update(*q, g.remember(*p, s)))
            state = run(past, other, state)[1]
            found, after = run(other, batch, state)
            updates.append(np.asarray(found))
            del after
        assert_close(updates[1], updates[0], loosened=10)


if __name__ == "__main__":
    main()
