"""Small data that the tests of several studies write, and the flags that read them."""

import math

import numpy as np
from scipy.spatial.distance import cdist

_N, _MODES = 150, 10


def write(folder, **arrays):
    """Writes arrays by role, words a line each; gives the flags that read them.

    Outputs are in x.npy, prompts in t.npy, each other role in a file of its name.
    """
    flags = []
    for role, values in arrays.items():
        values = np.asarray(values)
        path = folder / ({"outputs": "x", "prompts": "t"}.get(role, role) + ".npy")
        if values.dtype.kind == "U":
            path = path.with_suffix(".txt")
            path.write_text("\n".join(values.tolist()) + "\n")
        else:
            np.save(path, values.astype(np.float32) if values.dtype == float else values)
        flags.append(f"--{role}={path}")
    return flags


def flags(**values):
    """Flags with their values."""
    return [f"--{name}={value}" for name, value in values.items()]


def widths(outputs, prompts=None):
    """The flags of bandwidths that are given."""
    return flags(output_bandwidth=outputs, prompt_bandwidth=prompts or outputs)


def write_pairs(folder, seed=0):
    """Writes a mixture of ten modes whose prompts name the mode; gives the flags that read it."""
    generator = np.random.default_rng(seed)
    mode = generator.integers(0, _MODES, _N)
    outputs = generator.normal(size=(_MODES, 6))[mode] + 0.3 * generator.normal(size=(_N, 6))
    prompts = generator.normal(size=(_MODES, 4))[mode]
    types, models = [f"type {m % 5}" for m in mode], [f"model {m % 2}" for m in mode]
    return write(folder, outputs=outputs, prompts=prompts, types=types, models=models)[:2]


def small_pairs(*flags):
    """These flags, on pairs that are written into the folder."""
    return lambda folder: [*write_pairs(folder), *flags]


def write_answers(folder, numbers):
    """Writes models with a known number of different answers to each prompt; gives the flags.

    Six prompts with four answers of each model, of which 1, 2 or 4 differ (`numbers`). Different
    answers lie 5 apart, so that at a bandwidth of 1 Conditional-* is the model's number; in `cut`
    the numbers are reversed. The labels `classes` are the different answers, the `rewards` of the
    first answer of a class 2, and `words` rise with the number. Rows are in no order.
    """
    generator = np.random.default_rng(0)
    prompts, size = 6, 4
    places = 3.5 * np.linalg.qr(generator.normal(size=(24, 24)))[0].reshape(prompts, size, 24)

    def outputs(count):
        return places[:, np.arange(size) % count].reshape(-1, 24)

    counts = list(numbers.values())
    order = generator.permutation(len(counts) * prompts * size)
    prompt = np.tile(np.repeat(np.arange(prompts), size), len(counts))
    classes = np.concatenate([np.tile(np.arange(size) % count, prompts) for count in counts])
    return write(
        folder,
        outputs=np.concatenate([outputs(count) for count in counts])[order],
        prompts=generator.normal(size=(prompts, 4))[prompt][order],
        truncated=np.concatenate([outputs(count) for count in counts[::-1]])[order],
        models=np.repeat(list(numbers), prompts * size)[order],
        prompt=prompt[order],
        classes=classes[order],
        rewards=np.full(len(order), 2),
        words=np.repeat(10 * np.array(counts), prompts * size)[order],
    )


def write_designers(folder, *, prompts, designs):
    """Writes the outputs of models that have so many different ones of every prompt, each as often.

    Outputs lie a unit or more apart, prompts ten; gives the flags.
    """
    generator = np.random.default_rng(0)
    each = math.lcm(*designs)
    places = generator.permutation(prompts * each).reshape(prompts, each)
    outputs = np.concatenate([np.repeat(places[:, :k], each // k, axis=1).ravel() for k in designs])
    prompt = np.tile(np.repeat(np.arange(prompts), each), len(designs))
    models = np.repeat([f"{k} designs" for k in designs], prompts * each)
    return write_line(folder, outputs, prompt, models)


def write_line(folder, outputs, prompt, models):
    """Writes outputs a unit apart on a line, and prompts ten; gives the flags that read them."""
    lines = {"outputs": 1.0 * outputs[:, None], "prompts": 10.0 * prompt[:, None]}
    return write(folder, **lines, prompt=prompt, models=models)


def write_uneven_models(folder):
    """Writes three models whose outputs of a prompt have 1, 2 and 4 modes; gives their flags.

    Twelve prompts of eight outputs each; the last model has only ten of the prompts. Modes of one
    prompt, and of different prompts, are far apart, so that at a bandwidth of 0.5 Conditional-RKE
    is the number of modes. The flags are of outputs, prompts, models and prompt labels.
    """
    generator = np.random.default_rng(0)
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
    return write(
        folder,
        outputs=outputs + 1e-2 * generator.normal(size=outputs.shape),
        prompts=prompts,
        models=[model for model, _, _ in rows],
        prompt=[prompt for _, prompt, _ in rows],
    )


def mean_squared_kernels(means, spread, width):
    """E k^2 of a draw of each normal law N(m, spread^2 I) and one of each, in closed form."""
    widened = (
        1 + 4 * (spread / width) ** 2
    )  # The Gaussian kernel's square is exp(-|x - y|^2 / w^2).
    means = np.asarray(means, np.float64)
    squares = cdist(means, means, "sqeuclidean") / (width**2 * widened)
    return np.exp(-squares) / widened ** (means.shape[1] / 2)
