"""Rebuild interventions.npz: published answers with and without a cure for sameness, embedded.

The first cure of a source is its baseline. An interrupted run goes on where it was.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from experiments.builders import common
from experiments.builders.answers import NOVELTY, STEP, prompt_number, read_lines, stored
from experiments.builders.common import NewSet, Work
from experiments.data.repository import Repository

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


@common.recipe(
    "interventions",
    *common.OF_TEXTS,
    source=("novelty-bench/novelty-bench", "6ccb21e"),
    leaderboard=NOVELTY,
    trained=("wenzhilics/novelty-bench-ori", "05b8715"),
    samplers=("larosafrancesco289/sampler-bench", "5429593"),
)
def build(work: Work, *repositories: Repository) -> NewSet:
    """The answers, and within a source all at one length."""
    every = [*_benchmark(repositories), *_samplers(repositories[-1])]
    first = [common.first_words(answer.text, WORDS) for answer in every]
    truncated, lengths = [], {}
    for source, rows in itertools.groupby(range(len(every)), lambda row: every[row].source):
        _, cut, length = common.cut_alike([first[row] for row in rows])
        truncated, lengths[source] = truncated + cut, length["words"]
    asked, prompt = np.unique([f"{a.source} {a.prompt}" for a in every], return_inverse=True)
    prompts = [of.split(" ", 1)[1] for of in asked]
    embedded = [work.embed_texts(of, work.long_texts) for of in (first, prompts, truncated)]
    return NewSet(
        stored(embedded[0]),
        (embedded[1], prompt),
        labels={
            "source": [a.source for a in every],
            "models": [a.cure for a in every],
            "prompt": prompt,
            "quality": np.array([a.quality for a in every], np.float32),
            "words": [len(a.text.split()) for a in every],
        },
        description="answers of language models with and without cures for sameness (NoveltyBench, "
        f"sampler-bench); {work.long_texts.name}",
        cut={"words": WORDS, "truncated": lengths, "percentile": common.PERCENTILE, "step": STEP},
        further={"truncated": stored(embedded[2])},
    )
