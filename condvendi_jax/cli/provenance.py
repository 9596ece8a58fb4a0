"""Where a number comes from: what every written result records beside itself."""

import datetime
import platform
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

import condvendi_jax


def collect() -> dict[str, Any]:
    """Versions, kinds of device and operating system, precision and time, as plain data."""
    device, dtype = jax.devices()[0], jnp.zeros(()).dtype
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "versions": {p.__name__: p.__version__ for p in (condvendi_jax, jax, jaxlib, np)},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": f"{len(jax.devices())} x {device.platform} ({device.device_kind})",
        **{"dtype": dtype.name, "x64": dtype == jnp.float64, "date": now},
    }
