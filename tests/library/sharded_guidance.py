"""Guidance whose memory is spread over devices: JAX counts its devices only once a process.

python tests/library/sharded_guidance.py  on 4 virtual CPU devices; prints the largest difference
"""

import os
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
    environment = on_devices(DEVICES) | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, __file__], env=environment, check=True, timeout=HANG_S)


def main():
    """Every kind, with rows of the window on all devices, against one device."""
    kernels = {"output_kernel": cv.Gaussian(0.8), "prompt_kernel": cv.Gaussian(0.6)}
    assert jax.device_count() == DEVICES
    mesh = Mesh(np.array(jax.devices()), ("rows",))
    rows, everywhere = (NamedSharding(mesh, PartitionSpec(*axis)) for axis in (("rows",), ()))
    pairs = draw_pairs(3 * B, dtype=np.float32)
    past, batch, other = (tuple(a[i : i + B] for a in pairs) for i in (0, B, 2 * B))
    named = {**kernels, "prompt_size": batch[1].shape[1], "window": WINDOW}
    for guide in (
        cv.guidance.conditional_rke(**named),
        cv.guidance.conditional_vendi(**named, truncation=3),
    ):

        @jax.jit
        def run(past, batch, state, guide=guide):
            state = cv.guidance.remember(state, *past)
            return guide.update(None, state, batch[0], prompts=batch[1])

        alone = guide.init(batch[0])
        spread = jax.tree.map(
            lambda leaf: jax.device_put(leaf, rows if leaf.shape[:1] == (WINDOW,) else everywhere),
            alone,
        )
        assert not spread.rows[0].sharding.is_fully_replicated
        updates = [run(other, batch, run(past, other, state)[1])[0] for state in (alone, spread)]
        assert_close(np.asarray(updates[1]), np.asarray(updates[0]), loosened=10)


if __name__ == "__main__":
    main()
