"""Small data that studies are tried on."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

_N, _MODES = 150, 10


def write_pairs(folder: pathlib.Path, seed: int) -> list[str]:
    """Writes a mixture of ten modes whose prompts name the mode; gives the flags that read it."""
    generator = np.random.default_rng(seed)
    mode = generator.integers(0, _MODES, _N)
    outputs = generator.normal(size=(_MODES, 6))[mode] + 0.3 * generator.normal(size=(_N, 6))
    prompts = generator.normal(size=(_MODES, 4))[mode]
    labels = {"types": [f"type {m % 5}" for m in mode], "models": [f"model {m % 2}" for m in mode]}
    np.save(folder / "x.npy", outputs.astype(np.float32))
    np.save(folder / "t.npy", prompts.astype(np.float32))
    for role, words in labels.items():
        (folder / f"{role}.txt").write_text("\n".join(words) + "\n")
    return [f"--outputs={folder / 'x.npy'}", f"--prompts={folder / 't.npy'}"]


def write_neighbourhoods(
    folder: pathlib.Path, seed: int, modes: Mapping[str, int], *, clips: int = 1
) -> list[str]:
    """Writes models of known scores on the same prompts; gives the flags that read it.

    Prompts are 16 in each of five neighbourhoods far from each other. In each neighbourhood a
    model's outputs take its number of far modes equally often, others in every neighbourhood: at
    bandwidths of 1 all Conditional-* are that number, all Information-* are 5. The labels `words`
    rise with the number; `cut` are outputs of the reversed numbers, `prompt` the prompt of a row.

    Args:
      folder: that is written into.
      seed: of the jitter, the directions and the order of the rows.
      modes: of each model, a divisor of 16.
      clips: outputs of each model a prompt.
    """
    generator = np.random.default_rng(seed)
    places, prompts = 5, 16
    place = np.repeat(np.arange(places), prompts)
    near = 0.01 * generator.normal(size=(len(place), 4))
    wordings = 10.0 * np.eye(places)[:, :4][place] + near
    rotation, _ = np.linalg.qr(generator.normal(size=(2 * prompts, 2 * prompts)))

    def outputs(count: int) -> np.ndarray:
        rows = np.zeros((len(place), 2 * prompts))
        rows[np.arange(len(place)), np.arange(len(place)) % count] = 10.0
        rows[np.arange(len(place)), prompts + place] = 10.0
        return rows @ rotation

    def every(parts: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([np.tile(part, (clips, 1)) for part in parts])[order]

    order = generator.permutation(len(modes) * clips * len(place))
    counts = list(modes.values())
    arrays = {
        "x": every([outputs(count) for count in counts]),
        "t": every([wordings] * len(counts)),
        "cut": every([outputs(count) for count in counts[::-1]]),
        "words": every([np.full((len(place), 1), 10 * count) for count in counts])[:, 0],
    }
    for name, rows in arrays.items():
        np.save(folder / f"{name}.npy", rows.astype(np.float32))
    names = np.repeat(list(modes), clips * len(place))[order]
    (folder / "models.txt").write_text("\n".join(names) + "\n")
    roles = {"outputs": "x.npy", "prompts": "t.npy", "models": "models.txt"}
    return [f"--{role}={folder / name}" for role, name in roles.items()]


def small_pairs(*flags: str) -> Callable[[pathlib.Path, int], Sequence[str]]:
    """A study's `small`: these flags, on pairs that are written into the folder."""
    return lambda folder, seed: [*write_pairs(folder, seed), *flags]


def write_captions(folder: pathlib.Path, seed: int) -> list[str]:
    """Writes 12 photographs, each there twice, with the same two captions; gives the flags.

    Photographs and captions are so far apart that Conditional-* is the number of captions and
    Information-* that of different photographs: 2 of the cats, 2 of the dogs.
    """
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    captions = 15 * rotation.reshape(6, 2, 12).repeat(2, axis=0)
    photographs = np.tile(15 * np.eye(6), 2).repeat(4, axis=0)
    np.save(folder / "x.npy", captions.reshape(24, 12).astype(np.float32))
    np.save(folder / "t.npy", photographs.astype(np.float32))
    np.save(folder / "prompt.npy", np.arange(24) // 2)
    np.save(folder / "pictures.npy", np.repeat(["cat", "dog", "other"], 8))
    files = {"outputs": "x", "prompts": "t", "prompt": "prompt", "pictures": "pictures"}
    return [f"--{role}={folder / name}.npy" for role, name in files.items()]


def write_judged_sets(folder: pathlib.Path, seed: int) -> list[str]:
    """Writes sets of six responses with one to six modes, the people's scores being the modes.

    Two tasks of 24 contexts each, two sets a context; outputs lie far apart but within a mode.
    Gives the flags that read them.
    """
    generator = np.random.default_rng(seed)
    contexts, size = 48, 6
    context = np.repeat(np.arange(contexts), 2)
    modes = 1 + generator.permutation(np.arange(2 * contexts) % size)
    spots = 5 * generator.normal(size=(2 * contexts, size, 4))
    picked = np.arange(size) % modes[:, None]
    outputs = spots[np.arange(2 * contexts)[:, None], picked].reshape(-1, 4)
    prompts = 5 * generator.normal(size=(contexts, 4))[np.repeat(context, size)]
    for name, rows in {"x": outputs, "t": prompts}.items():
        np.save(folder / f"{name}.npy", rows.astype(np.float32))
    of_sets = {"sets": np.arange(2 * contexts), "people": modes.astype(float)}
    for role, values in of_sets.items():
        np.save(folder / f"{role}.npy", np.repeat(values, size))
    words = [f"task {c % 2}" for c in np.repeat(context, size)]
    (folder / "task.txt").write_text("\n".join(words) + "\n")
    roles = {"outputs": "x.npy", "prompts": "t.npy", "task": "task.txt"}
    roles |= {role: f"{role}.npy" for role in of_sets}
    return [f"--{role}={folder / file}" for role, file in roles.items()]


def write_designs(folder: pathlib.Path, seed: int, *, prompts: int, designs: int) -> list[str]:
    """Writes far prompts, each with as many unlike outputs by as many models; gives the flags."""
    generator = np.random.default_rng(seed)
    prompt = np.repeat(np.arange(prompts), designs)
    outputs = generator.permutation(prompts * designs)
    models = [f"model {m}" for m in np.tile(np.arange(designs), prompts)]
    return _write(folder, outputs, 10 * prompt, models, prompt)


def write_designers(
    folder: pathlib.Path, seed: int, *, prompts: int, designs: Sequence[int]
) -> list[str]:
    """Writes the outputs of models that have so many different ones of every prompt, each as often.

    Outputs lie a unit or more apart, prompts ten; gives the flags.
    """
    generator = np.random.default_rng(seed)
    each = math.lcm(*designs)
    places = generator.permutation(prompts * each).reshape(prompts, each)
    outputs = np.concatenate([np.repeat(places[:, :k], each // k, axis=1).ravel() for k in designs])
    prompt = np.tile(np.repeat(np.arange(prompts), each), len(designs))
    models = np.repeat([f"{k} designs" for k in designs], prompts * each).tolist()
    return _write(folder, outputs, 10 * prompt, models, prompt)


def _write(
    folder: pathlib.Path,
    outputs: np.ndarray,
    prompts: np.ndarray,
    models: Sequence[str],
    prompt: np.ndarray,
) -> list[str]:
    """Writes pairs on a line with their labels; gives the flags that read them."""
    np.save(folder / "x.npy", outputs[:, None].astype(np.float32))
    np.save(folder / "t.npy", prompts[:, None].astype(np.float32))
    np.save(folder / "prompt.npy", prompt)
    (folder / "models.txt").write_text("\n".join(models) + "\n")
    names = {"outputs": "x.npy", "prompts": "t.npy", "prompt": "prompt.npy", "models": "models.txt"}
    return [f"--{role}={folder / name}" for role, name in names.items()]


def write_uneven_models(folder: pathlib.Path, seed: int) -> list[str]:
    """Writes three models whose outputs of a prompt have 1, 2 and 4 modes; gives their flags.

    Twelve prompts of eight outputs each; the last model has only ten of the prompts. Modes of one
    prompt, and of different prompts, are far apart, so that at a bandwidth of 0.5 Conditional-RKE
    is the number of modes. The flags are of outputs, prompts, models and prompt labels.
    """
    generator = np.random.default_rng(seed)
    modes = {"one": 1, "two": 2, "four": 4}
    rows = [
        (model, prompt, sample % count)
        for model, count in modes.items()
        for prompt in range(12 if count < 4 else 10)
        for sample in range(8)
    ]
    place = generator.normal(size=(12, 4, 24)) * 2
    outputs = np.array([place[prompt, mode] for _, prompt, mode in rows])
    prompts = (generator.normal(size=(12, 16)) * 2)[[prompt for _, prompt, _ in rows]]
    np.save(folder / "x.npy", (outputs + 1e-2 * generator.normal(size=outputs.shape)).astype("f4"))
    np.save(folder / "t.npy", prompts.astype("f4"))
    (folder / "models.txt").write_text("\n".join(model for model, _, _ in rows) + "\n")
    np.save(folder / "prompt.npy", np.array([prompt for _, prompt, _ in rows]))
    files = {"outputs": "x.npy", "prompts": "t.npy", "models": "models.txt", "prompt": "prompt.npy"}
    return [f"--{role}={folder / name}" for role, name in files.items()]


def write_temperatures(folder: pathlib.Path, seed: int) -> list[str]:
    """Writes stories at three temperatures, with 1, 2 and 4 plots of each prompt; gives the flags.

    Outputs lie a unit or more apart, prompts ten. The stories that ended are those of one plot;
    those cut short have 4, 2 and 1 beginnings. A story has 10 tokens for each plot there is, and a
    perplexity of 2, 4 and 8.
    """
    designs, prompts = (1, 2, 4), 12
    flags = write_designers(folder, seed, prompts=prompts, designs=designs)
    each = math.lcm(*designs)
    plots = np.repeat(designs, prompts * each)
    plot = np.tile(np.arange(each), len(designs) * prompts) * plots // each
    outputs = np.load(folder / "x.npy")
    of_files = {
        "truncated": np.concatenate(np.split(outputs, len(designs))[::-1]),
        "finished": plot == 0,
        "tokens": 10 * plots,
        "log_likelihood": -10 * plots * np.log(2 * plots),
    }
    for role, values in of_files.items():
        np.save(folder / f"{role}.npy", values)
    names = np.repeat(["0.5", "1", "2"], prompts * each).tolist()
    (folder / "models.txt").write_text("\n".join(names) + "\n")
    return [*flags, *(f"--{role}={folder / role}.npy" for role in of_files)]
