"""Where a number comes from: what every written result records beside itself."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
from typing import Any

import jax
import jax.numpy as jnp

_PACKAGES = ("condvendi_jax", "jax", "jaxlib", "numpy")


def collect() -> dict[str, Any]:
    """Versions, device, precision and time, as plain data.

    Returns:
      A dictionary of strings and numbers. It names the kind of device and operating system, not
      the machine.
    """
    device = jax.devices()[0]
    return {
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": f"{len(jax.devices())} x {device.platform} ({device.device_kind})",
        "dtype": jnp.zeros(()).dtype.name,
        "x64": jnp.zeros(()).dtype == jnp.float64,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
