"""Where a number comes from: what every written result records beside itself."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import sys
from typing import Any

import jax
import jax.numpy as jnp

_PACKAGES = ("condvendi_jax", "jax", "jaxlib", "numpy")


def collect() -> dict[str, Any]:
    """Versions, kinds of device and operating system, precision and time, as plain data."""
    device = jax.devices()[0]
    return {
        "versions": {name: version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": f"{len(jax.devices())} x {device.platform} ({device.device_kind})",
        "dtype": jnp.zeros(()).dtype.name,
        "x64": jnp.zeros(()).dtype == jnp.float64,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def version(package: str) -> str | None:
    """The version of a package by its import name, as installed or else as its module says."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # It is a folder on the path.
        return getattr(sys.modules.get(package), "__version__", None)
