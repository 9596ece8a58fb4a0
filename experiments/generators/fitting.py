"""How the networks of this project's picture models are trained: Adam, averages, resuming, flags.

One call an update on random batches of arrays that stay in memory; what a training draws hangs on
its key and on the number of the update, so that one which was interrupted goes on as it would have.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import flags
from flax import nnx

from condvendi_jax.cli import command
from condvendi_jax.encoders.embedding import default_cache
from experiments import records
from experiments.generators import checkpoints

AVERAGE = 0.999  # What the averaged parameters keep of themselves a step, once warmed up.
_STEPS_A_LINE = 100


@dataclasses.dataclass(frozen=True)
class Places:
    """Where a training finds its pictures, leaves its parameters and says how far it is.

    Attributes:
      pictures: folder of the real ones, which are needed only where something is to be trained.
      cache: folder in which a training is kept; `trained` in the user's cache folder by default.
      shipped: folder that is looked in first.
      say: takes a line now and then of a training.
    """

    pictures: pathlib.Path | None = None
    cache: pathlib.Path = dataclasses.field(default_factory=lambda: default_cache() / "trained")
    shipped: pathlib.Path = checkpoints.SHIPPED
    say: Callable[[str], None] = lambda words: None

    def trained(
        self, identity: records.Identity, train: Callable[[], Mapping[Any, Any]]
    ) -> dict[Any, Any]:
        """Parameters that are shipped, those of the cache, or new ones (`checkpoints.trained`)."""
        return checkpoints.trained(identity, train, cache=self.cache, shipped=self.shipped)


def run(main: Callable[[str, Places], None]) -> None:
    """The command line of a model: the name of a collection, and where things are.

    Args:
      main: takes the name, empty where there is none, and trains what --output does not have.
    """
    flags.DEFINE_string("output", str(checkpoints.SHIPPED), "Folder of the trained parameters.")
    flags.DEFINE_string(
        "pictures", None, "Folder of the real pictures (experiments.data.pictures)."
    )
    for name in ("output", "pictures"):  # For --help, which lists those of the program's module.
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])

    def on(argv: list[str]) -> None:
        command.no_words(argv[2:])
        given, output = flags.FLAGS.pictures, pathlib.Path(flags.FLAGS.output)
        pictures = pathlib.Path(given) if given else None
        places = Places(pictures, output, output, lambda words: print(words, file=sys.stderr))
        main(argv[1] if len(argv) > 1 else "", places)

    command.run(on)


class Progress(NamedTuple):
    """Where a training stands."""

    step: jax.Array
    params: Any
    average: Any
    optimiser: Any


class Trainer:
    """One network's training: random batches of fixed arrays, Adam, averaged parameters."""

    def __init__(
        self,
        graph: Any,
        loss: Callable[[Any, Any, jax.Array], jax.Array],
        *,
        steps: int,
        rate: float,
        horizon: int | None = None,
    ):
        """Takes a loss of a network, the training arrays and a key.

        The rate falls as a cosine over `horizon` updates, which are `steps` where it is None.
        """
        self._graph, self._loss, self.steps = graph, loss, steps
        end = steps if horizon is None else horizon
        rates = optax.warmup_cosine_decay_schedule(0.0, rate, min(500, end // 10), end, rate / 100)
        self._optimiser = optax.chain(
            optax.clip_by_global_norm(1.0), optax.adamw(rates, weight_decay=1e-3)
        )

    def start(self, params: Any) -> Progress:
        """Before the first update."""
        own, average = (jax.tree.map(jnp.copy, params) for _ in range(2))  # They are given away.
        return Progress(jnp.zeros((), jnp.int32), own, average, self._optimiser.init(params))

    @functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
    def advance(self, at: Progress, arrays: Any, key: jax.Array) -> tuple[Progress, jax.Array]:
        """One update further, with its loss; what it draws hangs on the step's number alone.

        One call an update: convolutions in a loop are not the fast ones on CPUs.
        """

        def of(params: Any) -> jax.Array:
            own = jax.random.fold_in(key, at.step)
            return self._loss(nnx.merge(self._graph, params), arrays, own)

        loss, slope = jax.value_and_grad(of)(at.params)
        change, optimiser = self._optimiser.update(slope, at.optimiser, at.params)
        params = optax.apply_updates(at.params, change)
        step = at.step.astype(jnp.float32)
        keep = jnp.minimum(AVERAGE, (1 + step) / (10 + step))
        average = jax.tree.map(lambda a, p: keep * a + (1 - keep) * p, at.average, params)
        return Progress(at.step + 1, params, average, optimiser), loss


def fit(
    trainer: Trainer,
    params: Any,
    arrays: Any,
    key: jax.Array,
    *,
    identity: records.Identity,
    places: Places,
    every: float = 120.0,
) -> Any:
    """Trains, from where the cache says that this training stands.

    Args:
      trainer: with its number of updates.
      params: of the network before the first.
      arrays: of the training.
      key: of all batches and noise.
      identity: of the training.
      places: whose cache it is written down in as it goes on.
      every: seconds between two writings.

    Returns:
      The averaged parameters.
    """
    at = trainer.start(params)
    leaves, tree = jax.tree.flatten(at)
    path = places.cache / checkpoints.file_name(identity).replace(".safetensors", ".unfinished")
    try:
        saved = checkpoints.load(path, identity)
        at = jax.tree.unflatten(tree, [jnp.asarray(saved[i]) for i in range(len(leaves))])
    except FileNotFoundError:
        pass
    except ValueError as error:
        places.say(f"{error} It starts anew.")
    places.cache.mkdir(parents=True, exist_ok=True)
    written = time.monotonic()
    while (step := int(at.step)) < trainer.steps:
        losses = []
        for _ in range(min(_STEPS_A_LINE, trainer.steps - step)):
            at, loss = trainer.advance(at, arrays, key)
            losses.append(loss)
        mean = float(jnp.mean(jnp.stack(losses)))
        if not math.isfinite(mean):
            raise FloatingPointError(f"{identity['study']}: the loss is {mean} at step {step:,}.")
        places.say(f"{identity['study']} {int(at.step):,} of {trainer.steps:,}: loss {mean:.4f}")
        if time.monotonic() - written > every:
            found = {i: np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(at))}
            checkpoints.save(path, found, identity)
            written = time.monotonic()
    path.unlink(missing_ok=True)
    return at.average


def halves(state: nnx.State) -> dict[Any, Any]:
    """Parameters as they are stored, in float16."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float16), nnx.to_pure_dict(state))
