"""A monitor inside a training: a look every so many steps, for TRL and for loops in JAX."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

from condvendi_jax.base import checks
from condvendi_jax.inference import Looks, Monitor

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass
class LookEvery:
    """Looks every so many steps: `if look(step, params): break` in a loop, or a callback of TRL.

    Attributes:
      monitor: of `cv.monitor`.
      sample: a function that gives new outputs for the monitor's prompts, in their order. In a loop
        it takes what is passed after the step, in a trainer the model.
      steps: between looks.
      stop: whether an alarm stops the training.
      log: called with each `Looks`. Where None, its text is logged, as a warning after an alarm.
    """

    monitor: Monitor
    sample: Callable[..., Any]
    _: dataclasses.KW_ONLY
    steps: int
    stop: bool = True
    log: Callable[[Looks], Any] | None = None

    def __post_init__(self) -> None:
        checks.check_count(self.steps, name="steps", minimum=1)

    def __call__(self, step: int, *model: Any) -> bool:
        """Looks if it is time to, and returns whether the training should stop."""
        if step % self.steps:
            return False
        looks = self.monitor.look(self.sample(*model), step=step)
        if self.log is not None:
            self.log(looks)
        else:
            _LOG.log(logging.WARNING if looks.alarm else logging.INFO, "%s", looks)
        return self.stop and looks.alarm is not None

    def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> Any:
        """The event of `transformers.TrainerCallback` after each step."""
        if self(state.global_step, known["model"]):
            control.should_training_stop = True
        return control

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Other events of a trainer, such as `on_log`, do nothing."""
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *args, **known: None
