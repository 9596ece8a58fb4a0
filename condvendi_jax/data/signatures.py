"""Functions of pairs that also take arrays and kernels, with signatures that say so."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from jax.sharding import Mesh
from jax.typing import ArrayLike

from condvendi_jax.base import checks
from condvendi_jax.data.kernel_choice import KernelChoice
from condvendi_jax.data.kernels import Kernel, check_kernel
from condvendi_jax.data.pairs import Labels, Pairs

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_ResultOf = TypeVar("_ResultOf", covariant=True)


class OfPairs(Protocol[_Parameters, _ResultOf]):
    """A function of `Pairs`, or of the arrays and kernels that make them."""

    __name__: str

    @overload
    def __call__(
        self, pairs: Pairs, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs
    ) -> _ResultOf: ...

    @overload
    def __call__(
        self,
        outputs: ArrayLike | Labels,
        prompts: ArrayLike | Labels | None = None,
        *args: Any,
        output_kernel: KernelChoice = None,
        prompt_kernel: KernelChoice = None,
        kernel: Kernel | None = None,
        prompt_ids: Labels | None = None,
        weights: ArrayLike | None = None,
        mesh: Mesh | None = None,
        **kwargs: Any,
    ) -> _ResultOf: ...


def takes_pairs(
    function: Callable[Concatenate[Pairs, _Parameters], _Result],
) -> OfPairs[_Parameters, _Result]:
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
        checks.check_keywords(kwargs, signature, of=function.__name__)
        making = {name: kwargs.pop(name, None) for name in _MAKING}
        making = {name: value for name, value in making.items() if value is not None}
        if args and isinstance(args[0], Pairs):
            if making:
                raise TypeError(
                    f"{function.__name__}: received Pairs and {', '.join(making)}; "
                    "expected Pairs alone, which have arrays and kernels."
                )
            return function(*args, **kwargs)
        kernel = making.pop("kernel", None)
        if kernel is not None:
            if "output_kernel" in making:
                raise TypeError("kernel: received beside output_kernel, which it is short for.")
            making["output_kernel"] = check_kernel(kernel, name="kernel")
        return function(Pairs(*args[:2], **making), *args[2:], **kwargs)

    vars(taking)["__signature__"] = signature
    return cast(OfPairs[_Parameters, _Result], taking)


_MAKING = ("outputs", "prompts", "output_kernel", "prompt_kernel", "kernel")
_MAKING += ("prompt_ids", "weights", "mesh")


def _signature_of_arrays(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function of `Pairs` for the arguments of `Pairs` in their place."""
    makers, signature = inspect.signature(Pairs).parameters, inspect.signature(function)
    making = {name: makers[name] for name in _MAKING if name in makers}
    making["outputs"] = making["outputs"].replace(annotation="ArrayLike | Pairs")
    making["kernel"] = making["output_kernel"].replace(name="kernel")
    further = list(signature.parameters.values())[1:]
    if any(of.kind == of.POSITIONAL_OR_KEYWORD and of.default is of.empty for of in further):
        making["prompts"] = making["prompts"].replace(default=inspect.Parameter.empty)
    merged = sorted([*making.values(), *further], key=operator.attrgetter("kind"))
    return signature.replace(parameters=merged)
