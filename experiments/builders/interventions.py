"""Rebuild interventions.npz: published answers with and without a cure for sameness, embedded.

    python -m experiments.builders.interventions --cache_dir=data-cache

The first cure of a source is its baseline. An interrupted run goes on where it was.
"""

import itertools
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from condvendi_jax.encoders import load_minilm
from experiments.builders import common
from experiments.builders.answers import NOVELTY, STEP, prompt_number, read_lines
from experiments.data.repository import Repository

REPOSITORIES = {
    "source": ("novelty-bench/novelty-bench", "6ccb21e"),
    "leaderboard": NOVELTY,
    "trained": ("wenzhilics/novelty-bench-ori", "05b8715"),
    "samplers": ("larosafrancesco289/sampler-bench", "5429593"),
}
WORDS = 100  # Of an answer that are embedded.
LEAST = 50  # Words of a story; the judge gives empty ones up to 8.5, and they get 0 here.
# Of NoveltyBench, by cure: the source, the repository and the file.
_EVALS = (
    "eval/03-27-2025/curated/meta-llama",
    "evaluation/2025-11-21_CrPO-llama-3.1-8b-instruct-cre",
)
FILES = {
    "asked again": ("prompts", 0, "sample_data/gpt-4o.jsonl"),
    "paraphrased prompts": ("prompts", 0, "sample_data/gpt-4o-paraphrase.jsonl"),
    "system prompt": ("prompts", 0, "sample_data/gpt-4o-system-prompt.jsonl"),
    "one conversation": ("prompts", 0, "sample_data/gpt-4o-in-context.jsonl"),
    "Llama 3.1 8B": ("training", 1, f"{_EVALS[0]}/Llama-3.1-8B-Instruct/scores.jsonl"),
    "trained for creativity": ("training", 2, f"{_EVALS[1]}/nb-curated/scores.jsonl"),
}
SAMPLED = {
    "model_default": "default sampler",
    "standard_minp": "min-p, T = 0.7",
    "creative_minp": "min-p, T = 1",
    "standard_sigma": "top-n-sigma, T = 1.5",
    "creative_sigma": "top-n-sigma, T = 1",
}


class Answer(NamedTuple):
    """An answer to a prompt under a cure, and what the source's judge gave it."""

    source: str
    cure: str
    prompt: str
    text: str
    quality: float


def _benchmark(repositories: Sequence[Repository]) -> Iterator[Answer]:
    """The answers of NoveltyBench; the quality of an answer is its class's reward."""
    for cure, (source, place, path) in FILES.items():
        (records,) = read_lines(repositories[place], [path])
        for record in sorted(records, key=prompt_number):
            for text, kind in zip(record["generations"], record["partition"], strict=True):
                yield Answer(source, cure, record["prompt"], text, record["partition_scores"][kind])


def _samplers(repository: Repository) -> Iterator[Answer]:
    """The stories of every model; one model's stories to a prompt are the answers to a prompt."""
    paths = [p for p in repository.paths("results") if p.count("/") == 1 and "_judged_" in p]
    files = [json.loads(content) for content in repository.read(paths)]
    for (sampler, cure), file in itertools.product(SAMPLED.items(), files):
        samples = [s for s in file["samples"] if s["sampler_name"] == sampler]
        for s in sorted(samples, key=lambda s: (s["prompt"], s["repetition"])):
            asked, text = f"{file['model_name']}: {s['prompt']}", s["generated_text"]
            score = s["judgment"]["overall_score"] if len(text.split()) >= LEAST else 0
            yield Answer("samplers", cure, asked, text, score)


def build(output: pathlib.Path, cache: pathlib.Path, *repositories: Repository) -> None:
    """Reads and embeds the answers, and within a source all at one length; writes the set."""
    every = [*_benchmark(repositories), *_samplers(repositories[-1])]
    first = [" ".join(answer.text.split()[:WORDS]) for answer in every]
    cut, lengths = [], {}
    for source, rows in itertools.groupby(range(len(every)), lambda row: every[row].source):
        _, (texts,), length = common.cut_alike([[first[row] for row in rows]])
        cut, lengths[source] = [*cut, *texts], length["words"]
    asked, prompt = np.unique([f"{a.source} {a.prompt}" for a in every], return_inverse=True)
    encoder = load_minilm(long_texts="chunks")
    texts = {"cut": cut, "prompts": [of.split(" ", 1)[1] for of in asked], "first": first}
    rows = {
        name: common.embed_texts(of, encoder, cache=cache, name=f"cures-{name}")
        for name, of in texts.items()
    }
    outputs, truncated = (
        np.unique(common.rounded(rows[name], STEP), axis=0, return_inverse=True)
        for name in ("first", "cut")
    )
    common.write_set(
        output,
        "interventions",
        outputs=outputs,
        prompts=(rows["prompts"], prompt),
        further={"truncated": truncated},
        labels={
            "source": np.array([a.source for a in every]),
            "models": np.array([a.cure for a in every]),
            "prompt": prompt,
            "quality": np.array([a.quality for a in every], np.float32),
            "words": np.array([len(a.text.split()) for a in every]),
        },
        description="answers of language models with and without cures for sameness (NoveltyBench, "
        f"sampler-bench); {encoder.name}",
        provenance=common.origins(*repositories, common.MINILM, "tokenizers"),
        cut={"words": WORDS, "truncated": lengths, "percentile": common.PERCENTILE, "step": STEP},
    )


RECIPES = {"interventions": common.Recipe(build, REPOSITORIES)}

if __name__ == "__main__":
    common.run(RECIPES)
