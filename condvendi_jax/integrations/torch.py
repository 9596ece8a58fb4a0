"""For PyTorch: a metric of torchmetrics."""

import importlib
from typing import Any

import numpy as np

from condvendi_jax.base import checks, extras
from condvendi_jax.data.kernels import Gaussian
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.scores.papers import decompose

with extras.needed("torch", package="torchmetrics", purpose="ConditionalDiversity"):
    _METRIC: Any = importlib.import_module("torchmetrics").Metric


class ConditionalDiversity(_METRIC):
    """A metric of torchmetrics: the scores of all batches of all processes.

    It keeps all rows. Each process needs an `update`, whose rows may all be masked.

    Args:
      output_kernel, prompt_kernel: kernels, or bandwidths; None for labels, and without prompts.
      order: in (0, inf]; of order 2, scores are unbiased, and each prompt counts once.
      **options: of `torchmetrics.Metric`.
    """

    is_differentiable = full_state_update = False

    def __init__(
        self, *, output_kernel: Any, prompt_kernel: Any = None, order: float = 2, **options: Any
    ) -> None:
        super().__init__(**options)
        self._order = checks.check_order(order)
        kernels, widths = (output_kernel, prompt_kernel), (int, float, np.floating)
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
        pairs = Pairs(join(self.outputs), prompts, output_kernel=x, prompt_kernel=t).prompts_once()
        scores = decompose(pairs, order=self._order, unbiased=self._order == 2).scores._asdict()
        scalar = importlib.import_module("torch").tensor
        return {name: scalar(float(score), device=self.device) for name, score in scores.items()}
