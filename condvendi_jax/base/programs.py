"""How programs are compiled, and kept on disk: a process takes those of earlier ones."""

import functools
import os
import platform
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.compilation_cache import compilation_cache

from condvendi_jax.base import checks, files

_KEPT_BYTES = 2**28  # Compiled programs that take more space than this are removed.
# Without it XLA looks for kernels for up to a minute, and finds none that are faster.
_NO_SEARCH = {"xla_gpu_enable_triton_gemm": False}


def compiled(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    """`jax.jit`, which on a GPU does not search for kernels.

    JAX takes such an option outside of transformations only: inside, it has no effect.
    """
    plain, quick = jax.jit(function, **how), jax.jit(function, compiler_options=_NO_SEARCH, **how)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        # Inside `jax.jit` the zeros are traced.
        if jax.default_backend() == "gpu" and checks.is_concrete(args, kwargs, jnp.zeros(())):
            return quick(*args, **kwargs)
        return plain(*args, **kwargs)

    return run


@functools.cache
def keep() -> None:
    """Let JAX keep the compiled programs of this process, and take those of earlier ones.

    Does nothing where JAX has a cache already or is told to have none
    (`JAX_ENABLE_COMPILATION_CACHE=false`), where the folder cannot be written, and on several CPU
    devices, for which JAX's cache gives wrong programs.
    """
    config: Any = jax.config
    told = config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache
    if told or len(jax.devices("cpu")) > 1:
        return
    root = files.user_cache() / "condvendi_jax/programs"
    try:
        # JAX limits the size only with a further package.
        paths = (os.path.join(place, name) for place, _, names in os.walk(root) for name in names)
        if sum(map(os.path.getsize, paths)) > _KEPT_BYTES:
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
