"""How the networks of this project's picture models are trained: Adam, averages, flags.

One call an update, as convolutions in a loop are slow on CPUs.
"""

import dataclasses
import functools
import math
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from condvendi_jax.base import files
from condvendi_jax.cli.flags import flag
from condvendi_jax.encoders.embedding import default_cache
from experiments.generators import checkpoints
from experiments.generators.pictures import COLLECTIONS
from experiments.lab import records, runner

AVERAGE = 0.999  # What the averaged parameters keep of themselves a step, once warmed up.
_STEPS_A_LINE = 100
_AT_ONCE = 500  # Pictures.


@dataclasses.dataclass(frozen=True)
class Places:
    """Where a training finds its pictures, leaves its parameters and says how far it is."""

    pictures: pathlib.Path | None = None  # Needed only where something is to be trained.
    cache: pathlib.Path = dataclasses.field(default_factory=lambda: default_cache() / "trained")
    shipped: pathlib.Path = checkpoints.SHIPPED  # Looked in before the cache.
    # Takes a line now and then of a training.
    say: Callable[[str], None] = lambda words: print(words, file=sys.stderr)

    def trained(
        self, identity: records.Identity, train: Callable[[], Mapping[Any, Any]]
    ) -> dict[Any, Any]:
        """Parameters that were trained once: those shipped, those of the cache, or new ones.

        A damaged file, or one of another training under this name, is named in a line and not used;
        in the cache it is replaced.

        Raises:
          OSError: there is something to train, and the cache cannot be written to.
        """
        file = checkpoints.file_name(identity)
        for folder in dict.fromkeys((self.shipped, self.cache)):
            try:
                return checkpoints.load(folder / file, identity)
            except FileNotFoundError:
                continue
            except ValueError as error:
                self.say(str(error))
        self.cache.mkdir(parents=True, exist_ok=True)
        files.check_writable(self.cache / file)
        self.say(f"{file}: neither in {self.shipped} nor in {self.cache}; trained now.")
        checkpoints.save(self.cache / file, train(), identity)
        return checkpoints.load(self.cache / file, identity)

    def seen(self, collection: str) -> tuple[np.ndarray, np.ndarray]:
        """What a network may see of a collection: pictures, uint8, and kinds, none held out."""
        found = COLLECTIONS[collection].load(self.pictures)
        return found.pixels[~found.held_out], found.kinds[~found.held_out]


@dataclasses.dataclass(frozen=True)
class _Flags:
    output: str = flag(str(checkpoints.SHIPPED), "Folder of the trained parameters.")
    pictures: str | None = flag(
        None, "Folder of the real pictures (experiments.generators.pictures)."
    )


def run(main: Callable[[str, Places], None]) -> None:
    """The command line of a model: the name of a collection (or ''), and where things are.

    `main` trains what --output does not have.
    """

    def on(words: list[str], given: _Flags) -> None:
        pictures, output = given.pictures, pathlib.Path(given.output)
        places = Places(pathlib.Path(pictures) if pictures else None, output, output)
        main("".join(words), places)

    runner.run_program(on, _Flags, words=1)


class Progress(NamedTuple):
    """Where a training stands."""

    step: jax.Array
    params: Any
    average: Any
    optimiser: Any


class Trainer:
    """One network's training: random batches of fixed arrays, Adam, averaged parameters.

    The loss is one of the network, the arrays and a key. The largest rate is `rate`, and it falls
    as a cosine over `horizon` updates (None: `steps`), of which the last may not be reached.
    """

    def __init__(
        self,
        model: nnx.Module,
        loss: Callable[[Any, Any, jax.Array], jax.Array],
        *,
        steps: int,
        rate: float,
        horizon: int | None = None,
    ):
        self._graph, self._params = nnx.split(model)
        self._loss, self.steps, end = loss, steps, horizon or steps
        rates = optax.warmup_cosine_decay_schedule(0.0, rate, min(500, end // 10), end, rate / 100)
        self._optimiser = optax.chain(
            optax.clip_by_global_norm(1.0), optax.adamw(rates, weight_decay=1e-3)
        )

    def start(self) -> Progress:
        """Before the first update."""
        # Copies, which `advance` takes over.
        own, average = (jax.tree.map(jnp.copy, self._params) for _ in range(2))
        return Progress(jnp.zeros((), jnp.int32), own, average, self._optimiser.init(own))

    @functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
    def advance(self, at: Progress, arrays: Any, key: jax.Array) -> tuple[Progress, jax.Array]:
        """One update further, with its loss; what it draws hangs on the step's number alone."""
        own = jax.random.fold_in(key, at.step)
        loss, slope = jax.value_and_grad(
            lambda params: self._loss(nnx.merge(self._graph, params), arrays, own)
        )(at.params)
        change, optimiser = self._optimiser.update(slope, at.optimiser, at.params)
        params = optax.apply_updates(at.params, change)
        step = at.step.astype(jnp.float32)
        keep = jnp.minimum(AVERAGE, (1 + step) / (10 + step))
        average = jax.tree.map(lambda a, p: keep * a + (1 - keep) * p, at.average, params)
        return Progress(at.step + 1, params, average, optimiser), loss


def fit(
    trainer: Trainer, arrays: Any, key: jax.Array, identity: records.Identity, places: Places
) -> dict[Any, Any]:
    """Returns the averaged parameters of a training, in float16, as they are stored."""
    at = trainer.start()
    while (step := int(at.step)) < trainer.steps:
        losses = []
        for _ in range(min(_STEPS_A_LINE, trainer.steps - step)):
            at, loss = trainer.advance(at, arrays, key)
            losses.append(loss)
        mean = float(jnp.mean(jnp.stack(losses)))
        if not math.isfinite(mean):
            raise FloatingPointError(f"{identity['study']}: the loss is {mean} at step {step:,}.")
        places.say(f"{identity['study']} {int(at.step):,} of {trainer.steps:,}: loss {mean:.4f}")
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float16), nnx.to_pure_dict(at.average))


def in_parts(function: Callable[[np.ndarray], jax.Array], pictures: np.ndarray) -> np.ndarray:
    """A function of pictures `[n, ...]`, of so many at a time as fit in memory."""
    parts = np.array_split(pictures, -(-len(pictures) // _AT_ONCE))
    return np.concatenate([function(part) for part in parts])
