"""For PyTorch: a metric of torchmetrics, and the call of the authors' script."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from condvendi_jax.base import checks, extras
from condvendi_jax.data.kernels import Cosine, Gaussian
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.scores.papers import decompose

__all__ = ["ConditionalDiversity", "ConditionalEvaluation"]

_HERE = importlib.util.find_spec("torchmetrics") is not None
_METRIC: Any = importlib.import_module("torchmetrics").Metric if _HERE else object


class ConditionalDiversity(_METRIC):
    """A metric of torchmetrics: the scores of all batches of all processes.

    It keeps all rows. Each process needs an `update`, whose rows may all be masked.

    Args:
      output_kernel, prompt_kernel: kernels, or the bandwidths of `Gaussian` ones; None for prompts
        that are labels, and without prompts.
      order: the Renyi order, in (0, inf]; scores of order 2 are unbiased, as in `evaluate`.
      **options: of `torchmetrics.Metric`.
    """

    is_differentiable = full_state_update = False

    def __init__(
        self, *, output_kernel: Any, prompt_kernel: Any = None, order: float = 2, **options: Any
    ) -> None:
        extras.check("torch", package="torchmetrics", purpose="ConditionalDiversity")
        super().__init__(**options)
        self._order = checks.check_order(order)
        kernels = (output_kernel, prompt_kernel)
        widths = (int, float, np.floating)
        self._kernels = [Gaussian(float(k)) if isinstance(k, widths) else k for k in kernels]
        self.add_state("outputs", default=[], dist_reduce_fx="cat")
        self.add_state("prompts", default=[], dist_reduce_fx="cat")

    def update(self, outputs: Any, prompts: Any = None, mask: Any = None) -> None:
        """Adds outputs `[b, d_x]` and prompts `[b, d_t]`, or integers `[b]`, without gradients.

        The mask `[b]` is False or 0 for rows to leave out, such as padding.
        """
        tensor = importlib.import_module("torch").as_tensor
        outputs, rows = tensor(outputs).detach(), len(outputs)
        if len(self.outputs) and (prompts is None) == bool(len(self.prompts)):
            raise ValueError("prompts: expected them in every batch, or in none.")
        for name, values in {"prompts": prompts, "mask": mask}.items():
            if values is not None and len(values) != rows:
                raise ValueError(f"{name}: expected {rows} rows, received {len(values)}.")
        kept = slice(None) if mask is None else tensor(mask).reshape(rows).bool()
        self.outputs.append(outputs[kept])
        if prompts is not None:
            self.prompts.append(tensor(prompts).detach()[kept])

    def compute(self) -> dict[str, Any]:
        """The scores `vendi`, `conditional` and `information`, scalars on the metric's device."""
        join = importlib.import_module("torchmetrics.utilities.data").dim_zero_cat
        prompts = join(self.prompts) if len(self.prompts) else None
        x, t = self._kernels
        pairs = Pairs(join(self.outputs), prompts, output_kernel=x, prompt_kernel=t)
        scores = decompose(pairs, order=self._order, unbiased=self._order == 2).scores._asdict()
        scalar = importlib.import_module("torch").tensor
        return {name: scalar(float(of), device=self.device) for name, of in scores.items()}


class ConditionalEvaluation:
    """The call of the authors' script; `sigma` is a bandwidth, or those of outputs and prompts."""

    def __init__(self, sigma: Any) -> None:
        extras.check("torch", package="torch", purpose="ConditionalEvaluation")
        gaussian = list(map(Gaussian, map(float, np.broadcast_to(sigma, 2))))
        self._kernels = {"gaussian": gaussian, "cosine": [Cosine(), Cosine()]}

    def conditional_entropy(
        self, X: Any, Y: Any, order: Any, *, kernel="gaussian", top_k: Any = None, **others: Any
    ) -> tuple[Any, ...]:
        """H(X|Y), I(X;Y), H(X, Y), H(X) and H(Y) in nats, as scalars of torch.

        Of outputs X and prompts Y, `[n, d]`; the order is in (0, inf] or "inf". All entropies keep
        `top_k` eigenvalues (CV eq. 13). Other arguments of the script are refused.
        """
        if others or kernel not in self._kernels:
            raise TypeError(
                f"conditional_entropy: received {', '.join(others) or kernel!r}; expected top_k "
                "and kernel='gaussian' or 'cosine'. For large n: cv.decompose(X, Y, ..., "
                "method=cv.Auto(key)) or method=cv.MatrixFree(key)."
            )
        x, y = self._kernels[kernel]
        pairs = Pairs(X, Y, output_kernel=x, prompt_kernel=y)
        found = decompose(pairs, order=np.inf if order == "inf" else order, truncation=top_k)
        (_, *scores), (of_x, of_y, joint) = found.log_scores, found.entropies
        scalar = importlib.import_module("torch").tensor
        return tuple(scalar(float(of)) for of in (*scores, joint, of_x, of_y))
