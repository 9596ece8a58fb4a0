"""Compiled programs on disk: a process takes those of earlier ones."""

import functools
import os
import platform
import shutil
import warnings
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from condvendi_jax.base import files

_KEPT_BYTES = 2**28  # Compiled programs that take more space than this are removed.


@functools.cache
def keep() -> None:
    """Let JAX keep the compiled programs of this process, and take those of earlier ones.

    Does nothing where JAX has a cache already or is told to have none
    (`JAX_ENABLE_COMPILATION_CACHE=false`), where the folder cannot be written, and on several CPU
    devices, for which JAX's cache gives wrong programs.
    """
    config: Any = jax.config
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return
    if len(jax.devices("cpu")) > 1:
        return
    root = files.user_cache() / "condvendi_jax/programs"
    try:
        # JAX limits the size only with a further package.
        if sum(path.stat().st_size for path in root.rglob("*-cache")) > _KEPT_BYTES:
            shutil.rmtree(root, ignore_errors=True)
        # JAX compiles for one processor without saying so in the names of files.
        folder = root / platform.node()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.check_writable(folder / "program")
    except OSError:
        return
    # Files may vanish, or be incomplete, where other calls run at once. JAX then compiles.
    words = "Error (reading|writing) persistent compilation cache entry"
    warnings.filterwarnings("ignore", message=words)
    config.update("jax_compilation_cache_dir", os.fspath(folder))
    config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    config.update("jax_persistent_cache_enable_xla_caches", "none")
    config.update("jax_traceback_in_locations_limit", 0)  # Programs are lowered sooner without.
    compilation_cache.reset_cache()  # JAX looks for a cache once, and may have found none.
