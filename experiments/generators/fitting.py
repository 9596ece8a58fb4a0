"""Networks that are trained here: Adam, averages, files of parameters, the command line.

A file is safetensors, a tree under the paths of its leaves: 'generator/layers/0/kernel'. Its
metadata hold the identity of the training (`experiments.lab.records.identify`: name, version,
settings, arrays, seed), where it was trained, and a checksum of all of it and of every tensor.
"""

import dataclasses
import functools
import json
import math
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import safetensors
import safetensors.numpy
from flax import nnx, traverse_util

from condvendi_jax.base import files
from condvendi_jax.cli import command
from condvendi_jax.cli.flags import flag
from condvendi_jax.encoders.embedding import default_cache
from experiments.generators.pictures import COLLECTIONS
from experiments.lab import records, runner

SHIPPED = pathlib.Path(__file__).parent / "trained"
AVERAGE = 0.999  # What the averaged parameters keep of themselves a step, once warmed up.
_STEPS_A_LINE = 100
_AT_ONCE = 500  # Pictures.
M = TypeVar("M", bound=nnx.Module)


@dataclasses.dataclass(frozen=True)
class Places:
    """Where a training finds its pictures, leaves its parameters and says how far it is."""

    pictures: pathlib.Path | None = None  # Needed only where something is to be trained.
    cache: pathlib.Path = dataclasses.field(default_factory=lambda: default_cache() / "trained")
    shipped: pathlib.Path = SHIPPED  # Looked in before the cache.
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
        file = file_name(identity)
        for folder in dict.fromkeys((self.shipped, self.cache)):
            try:
                return load(folder / file, identity)
            except FileNotFoundError:
                continue
            except ValueError as error:
                self.say(str(error))
        self.cache.mkdir(parents=True, exist_ok=True)
        files.check_writable(self.cache / file)
        self.say(f"{file}: neither in {self.shipped} nor in {self.cache}; trained now.")
        save(self.cache / file, train(), identity)
        return load(self.cache / file, identity)

    def seen(self, collection: str) -> tuple[np.ndarray, np.ndarray]:
        """What a network may see of a collection: pictures, uint8, and kinds, none held out."""
        found = COLLECTIONS[collection].load(self.pictures)
        return found.pixels[~found.held_out], found.kinds[~found.held_out]


@dataclasses.dataclass(frozen=True)
class _Flags:
    output: str = flag(str(SHIPPED), "Folder of the trained parameters.")
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


def fit(
    model: Any,
    loss: Callable[[Any, Any, jax.Array], jax.Array],
    arrays: Any,
    key: jax.Array,
    identity: records.Identity,
    places: Places,
    *,
    steps: int,
    rate: float,
    horizon: int | None = None,
) -> dict[Any, Any]:
    """The averaged parameters of an nnx model trained by Adam, in float16, as they are stored.

    The loss is one of the model, the arrays and a key. The largest rate is `rate`, and it falls
    as a cosine over `horizon` updates (None: `steps`), of which the last may not be reached.
    """
    end = horizon or steps
    rates = optax.warmup_cosine_decay_schedule(0.0, rate, min(500, end // 10), end, rate / 100)
    adam = optax.adamw(rates, weight_decay=1e-3)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), adam)

    # One call an update, as convolutions in a loop are slow on CPUs.
    @functools.partial(jax.jit, donate_argnums=0)
    def advance(at: tuple[Any, ...], arrays: Any, step: jax.Array) -> tuple[Any, jax.Array]:
        """One update further, with its loss; what it draws hangs on the step's number alone."""
        own, average, moments = at
        value, slope = jax.value_and_grad(loss)(own, arrays, jax.random.fold_in(key, step))
        change, moments = optimiser.update(slope, moments, own)
        own = optax.apply_updates(own, change)
        count = step.astype(jnp.float32)
        keep = jnp.minimum(AVERAGE, (1 + count) / (10 + count))
        average = jax.tree.map(lambda a, p: keep * a + (1 - keep) * p, average, own)
        return (own, average, moments), value

    # Copies, which `advance` takes over.
    at = *(jax.tree.map(jnp.copy, model) for _ in range(2)), optimiser.init(model)
    for first in range(0, steps, _STEPS_A_LINE):
        last, losses = min(first + _STEPS_A_LINE, steps), []
        for step in range(first, last):
            at, value = advance(at, arrays, jnp.asarray(step))
            losses.append(value)
        mean = float(jnp.mean(jnp.stack(losses)))
        if not math.isfinite(mean):
            raise FloatingPointError(f"{identity['study']}: the loss is {mean} at step {first:,}.")
        places.say(f"{identity['study']} {last:,} of {steps:,}: loss {mean:.4f}")
    averaged = nnx.to_pure_dict(nnx.state(at[1]))
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float16), averaged)


def in_parts(function: Callable[[np.ndarray], jax.Array], pictures: np.ndarray) -> np.ndarray:
    """A function of pictures `[n, ...]`, of so many at a time as fit in memory."""
    parts = np.array_split(pictures, -(-len(pictures) // _AT_ONCE))
    return np.concatenate([function(part) for part in parts])


def restore(make: Callable[..., M], sizes: Any, tree: Mapping[Any, Any]) -> M:
    """The nnx model of these sizes with the values of nested dictionaries, in its own dtypes.

    ValueError where their names or shapes are not those of the model.
    """
    model = nnx.eval_shape(lambda: make(sizes, rngs=nnx.Rngs(0)))
    wanted = nnx.to_pure_dict(nnx.state(model))
    flat: Any = [traverse_util.flatten_dict(dict(of)) for of in (wanted, tree)]
    own, given = ({(path, leaf.shape) for path, leaf in of.items()} for of in flat)
    if odd := own ^ given:
        names = {"/".join(map(str, path)) for path, _ in odd}
        raise ValueError(f"parameters of another model: {', '.join(sorted(names))}.")
    # jnp.asarray would compile a program for every shape.
    values = jax.tree.map(lambda leaf, value: np.asarray(value, leaf.dtype), wanted, tree)
    nnx.update(model, jax.device_put(values))
    return model


def save(path: pathlib.Path, tree: Mapping[Any, Any], identity: records.Identity) -> None:
    """Writes parameters and whose they are; the file appears whole or not at all."""
    leaves = traverse_util.flatten_dict(dict(tree))
    arrays = {"/".join(map(str, path)): np.array(leaf, order="C") for path, leaf in leaves.items()}
    record = {"identity": dict(identity), "provenance": command.provenance()}
    metadata = {name: json.dumps(entry) for name, entry in record.items()}
    metadata["sha256"] = _checksum(record, arrays)
    with files.atomic_writer(path) as stream:
        stream.write(safetensors.numpy.save(arrays, metadata))


def load(path: pathlib.Path, identity: records.Identity) -> dict[Any, Any]:
    """Reads what `save` wrote.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: the file is damaged, is no file of `save`, or holds what another training made;
        in one line, with its path.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as archive:
            metadata = archive.metadata() or {}
            arrays = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118 - no dict
        record = {name: json.loads(metadata[name]) for name in ("identity", "provenance")}
        if metadata["sha256"] != _checksum(record, arrays):
            raise ValueError("its content is not what its checksum says")
    except FileNotFoundError:
        raise
    except KeyError as error:
        raise ValueError(f"{path}: not a file of this project ({error} is missing).") from error
    except (OSError, ValueError, TypeError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: damaged ({str(error).splitlines()[0]}).") from error
    if words := records.differences(record["identity"], identity):
        raise ValueError(f"{path}: of another training ({'; '.join(words)}).")
    # Parts of digits become whole numbers.
    return nnx.restore_int_paths(traverse_util.unflatten_dict(arrays, sep="/"))


def _checksum(record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    tensors = {name: records.hash_array(array) for name, array in arrays.items()}
    return records.digest({**record, "tensors": tensors})


def file_name(identity: records.Identity) -> str:
    """Of a model's file: its name, and a digest of all that it depends on."""
    return f"{identity['study']}-{records.digest(identity)[:16]}.safetensors"
