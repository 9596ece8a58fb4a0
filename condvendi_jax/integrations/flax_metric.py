"""The accumulator: batches that stay on the host until a score of all of them is computed."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

from condvendi_jax.base import checks
from condvendi_jax.data.kernels import Kernel, check_kernel
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import Decomposition
from condvendi_jax.scores.papers import decompose

_ARGUMENTS = ("outputs", "prompts", "mask", "weights")


@dataclasses.dataclass(frozen=True, eq=False)
class _Stream:
    """The batches so far, by the argument of `Pairs` that they are: no pytree to Flax."""

    # Never changed in place: copies of a metric may share it.
    kernels: dict[str, Any]
    options: dict[str, Any]
    batches: tuple[dict[str, np.ndarray], ...] = ()

    def extended(self, batches: tuple[dict[str, np.ndarray], ...]) -> _Stream:
        """The stream with more batches, whose dimensions must be those of the earlier ones."""
        for name, array in batches[0].items() if self.batches else ():
            expected, received = self.batches[0][name].shape[1:], array.shape[1:]
            if received != expected:
                raise ValueError(
                    f"{name}: expected embeddings of dimension {expected[0]}, "
                    f"received {received[0]}."
                )
        return dataclasses.replace(self, batches=self.batches + batches)


class StoredDecomposition(nnx.Metric):
    """The decomposition of a stream of batches under any kernels.

        metric = StoredDecomposition(
            output_kernel=cv.Gaussian(0.8), prompt_kernel=cv.Gaussian(1.0), order=2
        )
        for batch in batches:
            metric.update(outputs=batch.outputs, prompts=batch.prompts)
        print(metric.compute().conditional)

    The batches are kept on the host, O(n d) memory, and `compute` costs what `decompose` of all of
    them does. The result does not depend, beyond rounding, on the sizes and the order of batches
    and merges. `nnx.clone` gives an independent copy, and a metric can be pickled: merge those of
    several processes in one of them.

    Args:
      output_kernel: the kernel of the outputs.
      prompt_kernel: the kernel of the prompts; None for the diversity of outputs alone.
      **options: keyword arguments of `decompose` that `compute` uses by default, such as `order`.

    Raises:
      TypeError: a kernel is not one.
    """

    def __init__(
        self, *, output_kernel: Kernel, prompt_kernel: Kernel | None = None, **options: Any
    ) -> None:
        kernels: dict[str, Any] = {
            "output_kernel": check_kernel(output_kernel, name="output_kernel")
        }
        if prompt_kernel is not None:
            kernels["prompt_kernel"] = check_kernel(prompt_kernel, name="prompt_kernel")
        self._stream = _Stream(kernels, options)

    def reset(self) -> None:
        """Forgets all samples."""
        self._stream = dataclasses.replace(self._stream, batches=())

    @property
    def n(self) -> int:
        """The number of samples so far."""
        return sum(len(batch["outputs"]) for batch in self._stream.batches)

    @checks.outside_transformations
    def update(
        self,
        *,
        outputs: ArrayLike,
        prompts: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        **others: Any,
    ) -> None:
        """Adds a batch. Call it outside `jax.jit`.

        Args:
          outputs: embeddings `[b, d_x]`, any number of them.
          prompts: embeddings `[b, d_t]`; not read by a metric without a prompt kernel.
          mask: booleans `[b]`, False for rows to leave out, such as the padding of a last batch.
          weights: numbers `[b]`, not negative; one each where None. A weight of 2 counts as two
            equal rows.
          **others: arguments of the other metrics of an `nnx.MultiMetric`, which are not read.

        Raises:
          TypeError, ValueError: an array is not of finite real numbers `[b, d]`, lengths or
            dimensions differ, prompts are missing, a mask or weights are not valid, or the name of
            another argument is like one of these, such as `masks`. The metric then stays as it
            was.
        """
        for name in others:
            within = any(argument.rstrip("s") in name.lower() for argument in _ARGUMENTS)
            if within or difflib.get_close_matches(name, _ARGUMENTS, cutoff=0.7):
                raise TypeError(
                    f"update: received {name}, which is no argument; expected "
                    f"{', '.join(_ARGUMENTS)}, or arguments of other metrics, whose names are not "
                    "like these."
                )
        given: dict[str, Any] = {"outputs": outputs}
        if "prompt_kernel" in self._stream.kernels:
            if prompts is None:
                raise ValueError(
                    "prompts: expected embeddings [n, d], as the metric has a prompt kernel."
                )
            given["prompts"] = prompts
        checks.check_indices(given | {"mask": mask, "weights": weights})
        batch = {name: np.array(array) for name, array in checks.as_paired(given).items()}
        rows = len(batch["outputs"])
        weights = np.ones(rows, int) if weights is None else weights
        batch["weights"] = np.array(checks.check_weights(weights, rows, some=False))
        kept = np.ones(rows, bool) if mask is None else np.asarray(mask)
        if kept.shape != (rows,) or kept.dtype != bool:
            raise ValueError(
                f"mask: expected booleans of shape ({rows},), one a row, received {kept.dtype} of "
                f"shape {kept.shape}."
            )
        if not kept.any():
            return
        for name, kernel in zip(given, self._stream.kernels.values(), strict=True):
            # A row that counts replaces each masked row, which may hold anything.
            points = batch[name][np.where(kept, np.arange(rows), kept.argmax())]
            checks.check_finite(points, name=name)
            kernel.check_points(jnp.asarray(points), name=name)
        batch = {name: array[kept] for name, array in batch.items()}
        self._stream = self._stream.extended((batch,))

    def merge(self, other: StoredDecomposition) -> None:
        """Adds all samples of another metric, for example of another process.

        Raises:
          TypeError, ValueError: it does not store its points, or its kernels or dimensions differ.
        """
        if not isinstance(other, StoredDecomposition):
            raise TypeError(f"other: expected a StoredDecomposition, received {other!r}.")
        mine, theirs = self._stream.kernels, other._stream.kernels
        same = jax.tree.structure(mine) == jax.tree.structure(theirs)
        if not same or not all(map(np.array_equal, *map(jax.tree.leaves, (mine, theirs)))):
            raise ValueError(f"other: expected the kernels {mine}, received {theirs}.")
        if other.n:
            self._stream = self._stream.extended(other._stream.batches)

    def pairs(self) -> Pairs:
        """All samples so far, for `decompose`, `evaluate` and the like.

        Raises:
          ValueError: there are no samples yet.
        """
        batches = self._stream.batches
        if not batches:
            raise ValueError(f"{type(self).__name__} has no samples yet: call update first.")
        data = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        if (data["weights"] == 1).all():
            del data["weights"]
        return Pairs(**data, **self._stream.kernels)

    def compute(self, **options: Any) -> Decomposition:
        """The three entropies and the scores of all samples so far.

        Args:
          **options: keyword arguments of `decompose`, beside and above those of the metric.

        Returns:
          A `Decomposition`. Without prompts it is that of one and the same prompt for all samples:
          H(T) = 0, and the conditional score is the score itself.

        Raises:
          TypeError, ValueError: there are no samples yet, or `decompose` refuses the options.
        """
        return decompose(self.pairs(), **{**self._stream.options, **options})
