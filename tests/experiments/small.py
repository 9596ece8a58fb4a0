"""Small data for every study, and the flags of a run of seconds on them."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.conditional_vendi.theorems import REPORT
from experiments.generators.populations import GaussianMixture

_N, _MODES = 150, 10


def write(folder: pathlib.Path, **arrays: Any) -> list[str]:
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


def flags(**values: Any) -> list[str]:
    """Flags with their values."""
    return [f"--{name}={value}" for name, value in values.items()]


def widths(outputs: float, prompts: float | None = None) -> list[str]:
    """The flags of bandwidths that are given."""
    return flags(output_bandwidth=outputs, prompt_bandwidth=prompts or outputs)


def write_pairs(folder: pathlib.Path, seed: int) -> list[str]:
    """Writes a mixture of ten modes whose prompts name the mode; gives the flags that read it."""
    generator = np.random.default_rng(seed)
    mode = generator.integers(0, _MODES, _N)
    outputs = generator.normal(size=(_MODES, 6))[mode] + 0.3 * generator.normal(size=(_N, 6))
    prompts = generator.normal(size=(_MODES, 4))[mode]
    types, models = [f"type {m % 5}" for m in mode], [f"model {m % 2}" for m in mode]
    return write(folder, outputs=outputs, prompts=prompts, types=types, models=models)[:2]


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
    write(
        folder,
        cut=every([outputs(count) for count in counts[::-1]]),
        words=every([np.full((len(place), 1), 10.0 * count) for count in counts])[:, 0],
    )
    return write(
        folder,
        outputs=every([outputs(count) for count in counts]),
        prompts=every([wordings] * len(counts)),
        models=np.repeat(list(modes), clips * len(place))[order],
    )


def small_pairs(*flags: str) -> Callable[[pathlib.Path, int], list[str]]:
    """These flags, on pairs that are written into the folder."""
    return lambda folder, seed: [*write_pairs(folder, seed), *flags]


def write_answers(folder: pathlib.Path, seed: int, numbers: Mapping[str, int]) -> list[str]:
    """Writes models with a known number of different answers to each prompt; gives the flags.

    Six prompts with four answers of each model. Different answers lie 5 apart, so that at a
    bandwidth of 1 Conditional-* is the model's number; in `cut` the numbers are reversed. The
    labels `classes` are the different answers, the `rewards` of the first answer of a class 2, and
    `words` rise with the number. Rows are in no order.

    Args:
      folder: that is written into.
      seed: of the order of the rows and the places of the answers.
      numbers: of each model, its number of different answers: 1, 2 or 4.
    """
    generator = np.random.default_rng(seed)
    prompts, size = 6, 4
    places = 3.5 * np.linalg.qr(generator.normal(size=(24, 24)))[0].reshape(prompts, size, 24)

    def outputs(count: int) -> np.ndarray:
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


def write_captions(folder: pathlib.Path, seed: int) -> list[str]:
    """Writes 12 photographs, each there twice, with the same two captions; gives the flags.

    Photographs and captions are so far apart that Conditional-* is the number of captions and
    Information-* that of different photographs: 2 of the cats, 2 of the dogs.
    """
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    captions = 15 * rotation.reshape(6, 2, 12).repeat(2, axis=0)
    photographs = np.tile(15 * np.eye(6), 2).repeat(4, axis=0)
    return write(
        folder,
        outputs=captions.reshape(24, 12),
        prompts=photographs,
        prompt=np.arange(24) // 2,
        pictures=np.repeat(["cat", "dog", "other"], 8),
    )


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
    return write(
        folder,
        outputs=outputs,
        prompts=prompts,
        task=[f"task {c % 2}" for c in np.repeat(context, size)],
        sets=np.repeat(np.arange(2 * contexts), size),
        people=np.repeat(modes.astype(np.float64), size),
    )


def write_designs(folder: pathlib.Path, seed: int, *, prompts: int, designs: int) -> list[str]:
    """Writes far prompts, each with as many unlike outputs by as many models; gives the flags."""
    generator = np.random.default_rng(seed)
    prompt = np.repeat(np.arange(prompts), designs)
    outputs = generator.permutation(prompts * designs)
    models = [f"model {m}" for m in np.tile(np.arange(designs), prompts)]
    return _write_line(folder, outputs, prompt, models)


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
    models = np.repeat([f"{k} designs" for k in designs], prompts * each)
    return _write_line(folder, outputs, prompt, models)


def _write_line(folder: pathlib.Path, outputs: Any, prompt: Any, models: Any) -> list[str]:
    """Writes outputs a unit apart on a line, and prompts ten; gives the flags that read them."""
    lines = {"outputs": 1.0 * outputs[:, None], "prompts": 10.0 * prompt[:, None]}
    return write(folder, **lines, prompt=prompt, models=models)


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
    return write(
        folder,
        outputs=outputs + 1e-2 * generator.normal(size=outputs.shape),
        prompts=prompts,
        models=[model for model, _, _ in rows],
        prompt=[prompt for _, prompt, _ in rows],
    )


def write_temperatures(folder: pathlib.Path, seed: int) -> list[str]:
    """Writes stories at three temperatures, with 1, 2 and 4 plots of each prompt; gives the flags.

    Outputs lie a unit or more apart, prompts ten. The stories that ended are those of one plot;
    those cut short have 4, 2 and 1 beginnings. A story has 10 tokens for each plot there is, and a
    perplexity of 2, 4 and 8.
    """
    designs, prompts = (1, 2, 4), 12
    designers = write_designers(folder, seed, prompts=prompts, designs=designs)
    each = math.lcm(*designs)
    plots = np.repeat(designs, prompts * each)
    plot = np.tile(np.arange(each), len(designs) * prompts) * plots // each
    outputs = np.load(folder / "x.npy")
    write(folder, models=np.repeat(["0.5", "1", "2"], prompts * each))
    return designers + write(
        folder,
        truncated=np.concatenate(np.split(outputs, len(designs))[::-1]),
        finished=plot == 0,
        tokens=10 * plots,
        log_likelihood=-10 * plots * np.log(2 * plots),
    )


def bandwidth(folder: pathlib.Path, seed: int) -> list[str]:
    """Models of one, two and four designs a prompt."""
    files = write_designers(folder, seed, prompts=12, designs=(1, 2, 4))
    files = [flag for flag in files if not flag.startswith("--prompt=")]
    return files + flags(rule="median", per_octave=1, reach="0.25,4")


def coverage(folder: pathlib.Path, seed: int) -> list[str]:
    """Four far types of one distribution each, of which samples have one or all."""
    generator = np.random.default_rng(seed)
    types = generator.integers(0, 4, 240)
    outputs = generator.normal(size=(240, 3)) + 100 * types[:, None]
    files = write(folder, outputs=outputs, types=types)
    return files + flags(output_bandwidth=10, kept="1,4", repeats=2)


def designs(folder: pathlib.Path, seed: int) -> list[str]:
    """Twelve prompts of four outputs that have nothing in common, under a narrow bandwidth."""
    files = write_designs(folder, seed, prompts=12, designs=4)
    return [*files, *widths(0.24, 2.4), *flags(draws=2, scales="0.9,1")]


def collapse(folder: pathlib.Path, seed: int) -> list[str]:
    """A generator that never learned, with samples that are all in one place in the end."""
    sizes = flags(start=20, steps=60, every=20, repeats=1, batches=20, baseline=6, samples=5)
    return [*sizes, *flags(doubling=2, seed=seed)]


def gmm_gan(folder: pathlib.Path, seed: int) -> list[str]:
    """A shipped GAN of the ring, another kind for another seed."""
    names = flags(mixtures="ring", kinds=("vanilla", "lsgan")[seed])
    return names + flags(samples=400, references=200, repeats=1)


def generator_scores(folder: pathlib.Path, seed: int) -> list[str]:
    """The shipped GANs of the ring, few samples."""
    return flags(sources="ring", samples=60, repeats=2, seed=seed)


def bandwidth_rules(folder: pathlib.Path, seed: int) -> list[str]:
    return flags(sets="captioning,plane,human", rows=80, seed=seed)


def gmm_toy(folder: pathlib.Path, seed: int) -> list[str]:
    return flags(n=24, repeats=2, prompt_modes="1,2,4", output_modes="2,4,6")


def guidance_cost(folder: pathlib.Path, seed: int) -> list[str]:
    """Two small windows; the seed changes the noise that fills them."""
    return flags(model="fashion", windows="8,32", spectra=8, batch=4, repeats=3, seed=seed)


def guided_diffusion(folder: pathlib.Path, seed: int) -> list[str]:
    """The exact diffusion of the mixture whose prompts share components."""
    words = flags(model="mixture", methods="Conditional-RKE", strengths=0.2, seed=seed)
    sizes = flags(seeds=2, samples=40, batch=20, steps=8, every=2, references=100)
    return [*words, *sizes, *flags(rule="median", scales=1)]


def guided_mixture(folder: pathlib.Path, seed: int) -> list[str]:
    """Prompts with components of their own, far apart."""
    words = flags(mixtures="apart", kinds="rke,conditional_rke", scales=1, weights="1,30")
    sizes = flags(until=0.5, seeds=2, batches=4, window=16, steps=8, seed=seed)
    return [*words, *sizes, *widths(3, 0.5)]


def human(folder: pathlib.Path, seed: int) -> list[str]:
    counts = flags(folds=2, resamples=20, contexts="1,2", draws=8)
    return [*write_judged_sets(folder, seed), *counts, *widths(0.5)]


def answers(folder: pathlib.Path, seed: int) -> list[str]:
    files = write_answers(folder, seed, {"few": 1, "some": 2, "many": 4})
    return [*files, *flags(bandwidth=1, scales="1,2", resamples=20)]


def post_training(folder: pathlib.Path, seed: int) -> list[str]:
    """Three stages with 4, 2 and 1 different answers to each of eight prompts; the flags.

    The first prompt has four in every stage. The prompts are of two sets of four; to the first
    three of each there are matched answers also, of which 4, 1 and 2 are different. Different
    answers lie 5 apart, so that at a bandwidth of 1 Conditional-* is their number; one is the
    prompt itself.
    `distinct` is the number of whole answers to the prompts of a stage, and largest for the first.
    """
    generator = np.random.default_rng(seed)
    prompts, size = 8, 4
    places = 3.5 * np.linalg.qr(generator.normal(size=(32, 32)))[0].reshape(prompts, size, 32)
    whole, matched = {"base": 4, "SFT": 2, "Instruct": 1}, {"base": 4, "SFT": 1, "Instruct": 2}
    rows = [
        (stage, cut, prompt, place % (counts[stage] if prompt else size), counts[stage])
        for cut, counts in enumerate((whole, matched))
        for stage in counts
        for prompt in ((0, 1, 2, 4, 5, 6) if cut else range(prompts))
        for place in range(size)
    ]
    stage, cut, prompt, place, count = map(np.array, zip(*rows, strict=True))
    return [
        *write(
            folder,
            outputs=places[prompt, place],
            prompts=places[prompt, 0],
            models=stage,
            prompt=prompt,
            benchmark=np.array(["one", "two"])[prompt // 4],
            matched=cut,
            words=10 * count,
            distinct=np.where(cut == 1, np.nan, np.where(prompt == 0, 9.0, count)),
        ),
        *flags(bandwidth=1, scales="1,2", resamples=20),
    ]


def hivemind(folder: pathlib.Path, seed: int) -> list[str]:
    """Five models of three families and two vendors."""
    numbers = {"gemma-2-2b": 2, "gemma-2-9b": 2, "gemini-x": 4, "gpt-4o": 4, "gpt-4o-mini": 1}
    files = write_answers(folder, seed, numbers)
    files = [file for file in files if not file.startswith(("--classes", "--rewards", "--words"))]
    models = (folder / "models.txt").read_text().split()
    vendors = ["OpenAI" if name.startswith("gpt") else "Google" for name in models]
    more = flags(bandwidth=1, scales="1,2", resamples=20)
    return [*files, *write(folder, vendors=np.array(vendors)), *more]


def same_answers(folder: pathlib.Path, seed: int) -> list[str]:
    """Writes 40 pairs of answers, half of them for training; gives the flags.

    Pairs that are the same lie 0.2 to 0.4 apart, those that differ 0.6 to 1.2; one of them, 0.3.
    """
    generator = np.random.default_rng(seed)
    same = np.arange(40) % 2
    apart = np.where(same == 1, np.linspace(0.2, 0.4, 40), np.linspace(0.6, 1.2, 40))
    apart[38] = 0.3
    first = generator.normal(size=(40, 5))
    towards = generator.normal(size=(40, 5))
    towards /= np.linalg.norm(towards, axis=1, keepdims=True)
    files = write(
        folder,
        outputs=first,
        second=first + apart[:, None] * towards,
        same=same,
        train=(np.arange(40) < 20).astype(int),
        classes=np.where(np.arange(40) < 8, same, -1),
    )
    return [*files, *flags(resamples=20)]


def latent_truncation(folder: pathlib.Path, seed: int) -> list[str]:
    """Three types far apart, of four outputs each that the knob moves apart: one mode, then four.

    Prompts are one of two wordings of the type, as far apart.
    """
    generator = np.random.default_rng(seed)
    types, draws, values = 3, 8, (0.0, 0.5, 1.0)
    kind, which = (part.ravel() for part in np.indices((types, draws)))
    centres = 1000.0 * (kind + 1) + generator.normal()
    outputs = [
        np.stack([centres + 80.0 * value * (which % 4), np.zeros(len(kind))], axis=1)
        for value in values
    ]
    prompts = np.stack([1000.0 * kind, 1000.0 * (which // 4)], axis=1)
    files = write(
        folder,
        outputs=np.concatenate(outputs),
        prompts=np.tile(prompts, (len(values), 1)),
        types=np.tile(kind, len(values)),
        models=np.repeat(values, len(kind)),
    )
    return [*files, *widths(4), *flags(groups=3, scales="1,2")]


def substitution(folder: pathlib.Path, seed: int) -> list[str]:
    """Prompts far apart, eight outputs of each, of three models with 1, 2 and 4 modes a prompt."""
    files = write_uneven_models(folder, seed)
    files = [flag for flag in files if "--models" not in flag]
    return [*files, *widths(0.5), *flags(scales=1, repeats=2, steps=2)]


def temperature(folder: pathlib.Path, seed: int) -> list[str]:
    more = flags(scales="1,1.05", groups=5)
    return [*write_temperatures(folder, seed), *widths(0.2, 2), *more]


def beside_real(folder: pathlib.Path, seed: int) -> list[str]:
    """Twelve real outputs, a copy of each, and as many that are far from all; the flags."""
    real = 10.0 * np.random.default_rng(seed).normal(size=(12, 8))
    files = write(
        folder,
        outputs=np.concatenate([real, real, real + 1000]),
        prompts=np.tile(np.eye(12), (3, 1)),
        models=np.repeat(["real", "copy", "far"], 12),
    )
    return [*files, *widths(1), *flags(reference="real", neighbours=3, scales="1,2", halves=20)]


def side_by_side(folder: pathlib.Path, seed: int) -> list[str]:
    """Three models whose outputs spread within a prompt by a known number of modes: 1, 2 and 4."""
    more = flags(least_prompts=5, scales="1,2")
    return [*write_uneven_models(folder, seed), *widths(0.5), *more]


def theorems(folder: pathlib.Path, seed: int) -> list[str]:
    """A report in which the seed changes what one claim says."""
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    report["claims"][0]["detail"] = f"seed {seed}"
    path = folder / "report.json"
    path.write_text(json.dumps(report))
    return flags(report=path)


def type_ablation(folder: pathlib.Path, seed: int) -> list[str]:
    """Writes three types of eight outputs in two modes each, with four wordings; the flags."""
    generator = np.random.default_rng(seed)
    types, modes, wording = np.repeat(range(3), 8), np.tile(range(2), 12), np.arange(24) // 2 % 4
    outputs = generator.normal(size=(6, 6))[2 * types + modes]
    wordings, names = generator.normal(size=(4, 3)), 2 * np.eye(3)
    files = write(
        folder,
        outputs=outputs + 0.05 * generator.normal(size=outputs.shape),
        prompts=wordings[wording],
        typed_prompts=wordings[wording] + names[types],
        types=np.array(["ape", "bee", "cow"])[types],
        wording=wording,
    )
    return [*files, *widths(0.5), *flags(scales="1,2", repeats=2, restarts=2)]


def captioning(folder: pathlib.Path, seed: int) -> list[str]:
    return [*write_captions(folder, seed), *widths(1), *flags(groups=4)]


def model_or_prompts(folder: pathlib.Path, seed: int) -> list[str]:
    return flags(scales=1)


def captions_judged(folder: pathlib.Path, seed: int) -> list[str]:
    """Ten photographs whose judged captions are near them, and changed captions far off."""
    generator = np.random.default_rng(seed)
    photographs = generator.normal(size=(60, 4))
    turn = generator.normal(size=(4, 3))
    captions = photographs @ turn + 0.1 * generator.normal(size=(60, 3))
    path = folder / "references.npz"
    np.savez(
        path, outputs=photographs, prompts=captions, description="d", label_photograph=np.arange(60)
    )
    # Of each task three captions a photograph: its own, nearly its own, and another's.
    photograph, rank = (np.tile(of, 3) for of in np.divmod(np.arange(30), 3))
    whose = np.where(rank == 0, (photograph + 5) % 10, photograph)
    outputs = captions[whose] + 0.02 * (rank == 1)[:, None]
    task = np.repeat(["expert", "crowd", "color"], 30)
    numbers = {"people": rank.astype(float), "photograph": photograph, "caption": 3 * whose + rank}
    files = write(folder, outputs=outputs, prompts=photographs[photograph], task=task, **numbers)
    return [*files, *widths(1), *flags(references=path, ridges="1e-4,1e-2", resamples=20)]


def many_processes(folder: pathlib.Path, seed: int) -> list[str]:
    return [*flags(n=1024, processes="1,2", repeats=3)]


# Of the studies that have no function of their name above.
ON_PAIRS = {
    "convergence": small_pairs(
        "--sizes=40,80,150", "--repeats=2", "--rules=median", "--truncation=scaled,10"
    ),
    "prompt_clusters": small_pairs("--counts=2,5,10", "--repeats=2", "--rule=median"),
    "prompt_modes": small_pairs("--modes=3", "--rule=median"),
    "scaling": small_pairs("--parts=exact", "--exact_n=64"),
}


def small_run(study, folder: pathlib.Path, seed: int = 0) -> list[str]:
    """The flags of a run of seconds, on data written into the folder; by seed, other data there."""
    return (ON_PAIRS.get(study.name) or globals()[study.name])(folder, seed)


def population_of(mixture):
    """The pairs of an output and its prompt of a `PromptedMixture`, all prompts equally likely."""
    m, k = mixture.weights.shape
    means = jnp.concatenate(
        [jnp.tile(mixture.centres, (m, 1)), jnp.repeat(mixture.prompts, k, axis=0)], axis=1
    )
    variances = jnp.concatenate([jnp.full(2, mixture.spread**2), jnp.zeros(m)])
    covariances = jnp.broadcast_to(jnp.diag(variances), (m * k, m + 2, m + 2))
    return GaussianMixture(means, covariances, weights=mixture.weights.ravel() / m, d_x=2)
