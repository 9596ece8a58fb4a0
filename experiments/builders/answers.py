"""Rebuild answers.npz, post_training.npz or same_answers.npz: answers of language models, embedded.

An interrupted run goes on where it was.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.builders.common import OF_TEXTS, NewSet, Rows, Work, cut_alike, recipe, rounded
from experiments.data.repository import Repository

NOVELTY = ("novelty-bench/novelty-bench.github.io", "37ebedc")

# By the folder of a model, who made it.
VENDORS = {
    "anthropic": "Anthropic",
    "cohere": "Cohere",
    "gemini": "Google",
    "google": "Google",
    "meta-llama": "Meta",
    "openai": "OpenAI",
}
STAGE_NAMES = {"base": "base", "sft": "SFT", "dpo": "DPO", "instruct": "Instruct"}
PROMPT_SETS = {"nbcurated": "NoveltyBench", "alpacaeval": "AlpacaEval"}
STEP = 2.0**-8  # Of the stored embeddings, which are multiples of it.
Records = list[dict[str, Any]]


def read_lines(repository: Repository, paths: Sequence[str]) -> list[Records]:
    """The records of some files of one JSON object a line, a list a file."""
    contents = repository.read(paths)
    return [list(map(json.loads, content.decode().splitlines())) for content in contents]


def _curated(repository: Repository) -> list[tuple[str, str, Records]]:
    """Who made each model, its name, and its answers to the curated prompts."""
    paths = repository.paths("eval")
    paths = [path for path in paths if "/curated/" in path and path.endswith("/scores.jsonl")]
    files = zip(paths, read_lines(repository, paths), strict=True)
    return [(path.split("/")[-3], path.split("/")[-2], records) for path, records in files]


def stored(rows: np.ndarray) -> Rows:
    """Rows in steps, as a table of those that differ."""
    return np.unique(rounded(rows, STEP), axis=0, return_inverse=True)


def prompt_number(record: Mapping[str, Any]) -> int:
    """The number of the prompt of a record of NoveltyBench."""
    return int(record["id"].rpartition("-")[2])


@recipe("answers", *OF_TEXTS, source=NOVELTY)
def build_answers(work: Work, repository: Repository) -> NewSet:
    """The answers of every model, whole and cut."""
    fields = ("generations", "partition", "generation_scores")
    rows = [
        (maker, model, record["prompt"], prompt_number(record), *of)
        for maker, model, records in _curated(repository)
        for record in sorted(records, key=prompt_number)  # The files are in any order.
        for of in zip(*(record[field] for field in fields), strict=True)
    ]
    makers, models, asked, numbers, answers, classes, rewards = zip(*rows, strict=True)
    words, cut, length = cut_alike(answers)
    systems, prompts = len({*models}), len({*numbers})
    return NewSet(
        stored(work.embed_parts(answers, models, work.long_texts)),
        stored(work.embed_texts(asked, work.long_texts)),
        labels={
            "models": models,
            "vendors": [VENDORS[maker] for maker in makers],
            "prompt": numbers,
            "classes": np.array(classes).astype(int),
            "rewards": np.array(rewards).astype(int),
            "words": words,
        },
        description=f"{len(rows) // systems // prompts} answers of each of {systems} language "
        f"models to the same {prompts} prompts of NoveltyBench; {work.long_texts.name}",
        cut={"truncated": length, "step": STEP},
        further={"truncated": stored(work.embed_parts(cut, models, work.long_texts))},
    )


@recipe("post_training", *OF_TEXTS, source=("AMindToThink/icl-diversity", "132885e"))
def build_post_training(work: Work, repository: Repository) -> NewSet:
    """Answers after every stage, whole and at one length."""
    folder, every = "results/rlhf_experiment", []
    (metrics,) = read_lines(repository, [f"{folder}/baseline_metrics.jsonl"])
    # The source's own measure, of whole answers.
    distinct = {(0, r["stage"], r["prompt_id"]): r["ead"] for r in metrics}
    kinds = enumerate(("generations", "generations_length_matched"))
    for (matched, kind), short, stage in itertools.product(kinds, PROMPT_SETS, STAGE_NAMES):
        (records,) = read_lines(repository, [f"{folder}/{kind}/{stage}_{short}.jsonl"])
        records.sort(key=lambda r: (r["prompt_id"], r["sample_idx"]))
        of_file = f"{stage}-{short}-{kind}", matched, short, stage
        every += [(*of_file, r["prompt_id"], r["prompt"], r["response"]) for r in records]
    parts, matched, short, stage, asked, prompts, answers = zip(*every, strict=True)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(asked))}
    of_answers = [distinct.get(of, np.nan) for of in zip(matched, stage, asked, strict=True)]
    return NewSet(
        stored(work.embed_parts(answers, parts, work.long_texts)),
        stored(work.embed_texts(prompts, work.long_texts)),
        labels={
            "models": [STAGE_NAMES[name] for name in stage],
            "benchmark": [PROMPT_SETS[name] for name in short],
            "prompt": [numbers[name] for name in asked],
            "matched": matched,
            "words": [len(answer.split()) for answer in answers],
            "distinct": np.array(of_answers, np.float32),
        },
        description=f"ten answers of OLMo-2-7B to each of {len(numbers)} prompts after each of "
        f"{len(STAGE_NAMES)} stages of training; {work.long_texts.name}",
        cut={"step": STEP},
    )


@recipe(
    "same_answers", *OF_TEXTS, source=("facebookresearch/darling", "c07a323"), benchmark=NOVELTY
)
def build_same_answers(work: Work, repository: Repository, benchmark: Repository) -> NewSet:
    """The pairs that people judged."""
    folder, names = "evals/novelty-bench/src/data/classifier", ("train", "val")
    files = read_lines(repository, [f"{folder}/{name}.jsonl" for name in names])
    pairs, parts = sum(files, []), np.repeat(names, list(map(len, files))).tolist()
    # The benchmark's own class of an answer, where the answer is one of the benchmark's.
    known = {
        (name, r["prompt"], text): r["partition"][place]
        for _, name, records in _curated(benchmark)
        for r in records
        for place, text in enumerate(r["generations"])
    }
    classes = []
    for record in pairs:
        asked = record["model"].rpartition("/")[2], record["prompt"]
        one, two = (known.get((*asked, record[f"generation_{k}"])) for k in range(2))
        classes.append(-1 if one is None or two is None else int(one == two))

    def embedded(field: str) -> Rows:
        return stored(work.embed_parts([r[field] for r in pairs], parts, work.long_texts))

    return NewSet(
        embedded("generation_0"),
        embedded("prompt"),
        labels={
            "prompt": np.unique([record["prompt"] for record in pairs], return_inverse=True)[1],
            "same": [int(record["similar"]) for record in pairs],
            "train": [int(part == "train") for part in parts],
            "equal": [int(r["generation_0"] == r["generation_1"]) for r in pairs],
            "classes": classes,
        },
        description=f"{len(pairs):,} pairs of answers of 20 language models that people called the "
        f"same or different; {work.long_texts.name}",
        cut={"step": STEP},
        further={"second": embedded("generation_1")},
    )
