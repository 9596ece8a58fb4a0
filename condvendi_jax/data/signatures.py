"""Functions of pairs that also take arrays and kernels, with signatures that say so."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, TypeVar

from condvendi_jax.base import checks
from condvendi_jax.data.kernels import check_kernel
from condvendi_jax.data.pairs import Pairs

_Result = TypeVar("_Result")


def takes_pairs(function: Callable[Concatenate[Pairs, ...], _Result]) -> Callable[..., _Result]:
    """Lets a function of `Pairs` take arrays in their place.

    `f(outputs, prompts, output_kernel=..., prompt_kernel=..., order=2)` is then short for
    `f(Pairs(outputs, prompts, output_kernel=..., prompt_kernel=...), order=2)`. `kernel` is another
    name of `output_kernel`. The signature that Python shows is the one for arrays.
    """
    signature = _signature_of_arrays(function)

    @functools.wraps(function)
    def taking(*args: Any, **kwargs: Any) -> Any:
        if not args and "pairs" in kwargs:
            args = (kwargs.pop("pairs"),)
        checks.check_keywords(kwargs, signature, name=function.__name__)
        making = {name: kwargs.pop(name, None) for name in _MAKING}
        making = {name: value for name, value in making.items() if value is not None}
        if not args or not isinstance(args[0], Pairs):
            if "kernel" in making:
                if "output_kernel" in making:
                    raise TypeError("kernel: received beside output_kernel, which it is short for.")
                making["output_kernel"] = check_kernel(making.pop("kernel"), name="kernel")
            args = (Pairs(*args[:2], **making), *args[2:])
        elif making:
            raise TypeError(
                f"{function.__name__}: received Pairs and {', '.join(making)}; "
                "expected Pairs alone, which have arrays and kernels."
            )
        return function(*args, **kwargs)

    vars(taking)["__signature__"] = signature
    return taking


_MAKING = ("outputs", "prompts", "output_kernel", "prompt_kernel", "kernel")
_MAKING += ("prompt_ids", "weights", "mesh")


def _signature_of_arrays(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function of `Pairs` for the arguments of `Pairs` in their place."""
    makers, signature = inspect.signature(Pairs).parameters, inspect.signature(function)
    making = {name: makers[name] for name in _MAKING if name in makers}
    making["kernel"] = makers["output_kernel"].replace(name="kernel")
    further = [*signature.parameters.values()][1:]
    if further[0].kind == inspect.Parameter.POSITIONAL_OR_KEYWORD:  # And without a default.
        making["prompts"] = making["prompts"].replace(default=inspect.Parameter.empty)
    return signature.replace(
        parameters=sorted([*making.values(), *further], key=lambda parameter: parameter.kind)
    )
