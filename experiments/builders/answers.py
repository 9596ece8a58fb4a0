"""Rebuild answers.npz, post_training.npz or same_answers.npz: answers of language models, embedded.

    python -m experiments.builders.answers answers --cache_dir=data-cache

An interrupted run goes on where it was.
"""

import itertools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from condvendi_jax.encoders import Encoder, load_minilm
from experiments.builders import common
from experiments.data.repository import Repository

NOVELTY = ("novelty-bench/novelty-bench.github.io", "37ebedc")
STAGES = ("AMindToThink/icl-diversity", "132885e")
PEOPLE = ("facebookresearch/darling", "c07a323")

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
PARTS = ("train", "val")
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


class _Texts:
    """Embeds texts, and writes a set of them with embeddings in steps."""

    def __init__(self, cache: pathlib.Path):
        self.cache = cache
        self.encoder: Encoder = load_minilm(long_texts="chunks")

    def embed(self, texts: Sequence[str], name: str) -> np.ndarray:
        return common.embed_texts(texts, self.encoder, cache=self.cache, name=name)

    def write(
        self,
        output: pathlib.Path,
        name: str,
        *repositories: Repository,
        description: str,
        rows: Mapping[str, np.ndarray],
        labels: Mapping[str, np.ndarray],
        **cut: Any,
    ) -> None:
        stored = {
            role: np.unique(common.rounded(values, STEP), axis=0, return_inverse=True)
            for role, values in rows.items()
        }
        common.write_set(
            output,
            name,
            outputs=stored.pop("outputs"),
            prompts=stored.pop("prompts"),
            further=stored,
            labels=labels,
            description=f"{description}; {self.encoder.name}",
            provenance=common.origins(*repositories, common.MINILM, "tokenizers"),
            cut={**cut, "step": STEP},
        )


def prompt_number(record: Mapping[str, Any]) -> int:
    """The number of the prompt of a record of NoveltyBench."""
    return int(record["id"].rpartition("-")[2])


def build_answers(output: pathlib.Path, cache: pathlib.Path, repository: Repository) -> None:
    """Reads and embeds the answers of every model, and writes the set."""
    texts = _Texts(cache)
    makers, names, files = zip(*_curated(repository), strict=True)
    by_model = [
        sorted(records, key=prompt_number) for records in files
    ]  # The files are in any order.
    first = by_model[0]

    def of_answers(name: str) -> list[list[Any]]:
        return [[value for record in records for value in record[name]] for records in by_model]

    answers = of_answers("generations")
    words, cut, length = common.cut_alike(answers)
    whole, truncated = (
        np.concatenate([texts.embed(of, f"{name}-{m}") for m, of in zip(names, kinds, strict=True)])
        for name, kinds in (("answers", answers), ("answers-cut", cut))
    )
    prompts = texts.embed([record["prompt"] for record in first], "prompts")
    each, count = len(answers[0]), len(first[0]["generations"])
    row = np.tile(np.repeat(np.arange(len(first)), count), len(names))
    texts.write(
        output,
        "answers",
        repository,
        description=f"{count} answers of each of {len(names)} language models to the same "
        f"{len(first)} prompts of NoveltyBench",
        rows={"outputs": whole, "prompts": prompts[row], "truncated": truncated},
        labels={
            "models": np.repeat(names, each),
            "vendors": np.repeat([VENDORS[maker] for maker in makers], each),
            "prompt": np.array([prompt_number(record) for record in first])[row],
            "classes": np.concatenate(of_answers("partition")).astype(int),
            "rewards": np.concatenate(of_answers("generation_scores")).astype(int),
            "words": words,
        },
        truncated=length,
    )


def build_post_training(output: pathlib.Path, cache: pathlib.Path, repository: Repository) -> None:
    """Reads and embeds answers after every stage, whole and at one length, and writes the set."""
    texts, folder = _Texts(cache), "results/rlhf_experiment"
    (metrics,) = read_lines(repository, [f"{folder}/baseline_metrics.jsonl"])
    # The source's own measure, of whole answers.
    distinct = {(0, r["stage"], r["prompt_id"]): r["ead"] for r in metrics}
    rows, origins, every = [], [], []
    kinds = enumerate(("generations", "generations_length_matched"))
    for (matched, kind), short, stage in itertools.product(kinds, PROMPT_SETS, STAGE_NAMES):
        (records,) = read_lines(repository, [f"{folder}/{kind}/{stage}_{short}.jsonl"])
        records.sort(key=lambda r: (r["prompt_id"], r["sample_idx"]))
        answers = [record["response"] for record in records]
        rows.append(texts.embed(answers, f"stage-{stage}-{short}-{kind}"))
        origins += [(matched, short, stage)] * len(records)
        every += records
    matched, short, stage = zip(*origins, strict=True)
    asked = [record["prompt_id"] for record in every]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(asked))}
    of_answers = [distinct.get(of, np.nan) for of in zip(matched, stage, asked, strict=True)]
    prompts = texts.embed([record["prompt"] for record in every], "stage-prompts")
    texts.write(
        output,
        "post_training",
        repository,
        description=f"ten answers of OLMo-2-7B to each of {len(numbers)} prompts after each of "
        f"{len(STAGE_NAMES)} stages of training",
        rows={"outputs": np.concatenate(rows), "prompts": prompts},
        labels={
            "models": np.array([STAGE_NAMES[name] for name in stage]),
            "benchmark": np.array([PROMPT_SETS[name] for name in short]),
            "prompt": np.array([numbers[name] for name in asked]),
            "matched": np.array(matched),
            "words": np.array([len(record["response"].split()) for record in every]),
            "distinct": np.array(of_answers, np.float32),
        },
    )


def build_same_answers(
    output: pathlib.Path, cache: pathlib.Path, repository: Repository, benchmark: Repository
) -> None:
    """Reads and embeds the pairs that people judged, and writes the set."""
    texts, folder = _Texts(cache), "evals/novelty-bench/src/data/classifier"
    parts = read_lines(repository, [f"{folder}/{part}.jsonl" for part in PARTS])
    pairs = [record for part in parts for record in part]
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
    outputs, others, prompts = (
        np.concatenate(
            [
                texts.embed([record[field] for record in part], f"pairs-{name}-{word}")
                for name, part in zip(PARTS, parts, strict=True)
            ]
        )
        for field, word in (("generation_0", "0"), ("generation_1", "1"), ("prompt", "prompts"))
    )
    texts.write(
        output,
        "same_answers",
        repository,
        benchmark,
        description=f"{len(pairs):,} pairs of answers of 20 language models that people called the "
        "same or different",
        rows={"outputs": outputs, "second": others, "prompts": prompts},
        labels={
            "prompt": np.unique([record["prompt"] for record in pairs], return_inverse=True)[1],
            "same": np.array([int(record["similar"]) for record in pairs]),
            "train": np.repeat([1, 0], [len(part) for part in parts]),
            "equal": np.array([int(r["generation_0"] == r["generation_1"]) for r in pairs]),
            "classes": np.array(classes),
        },
    )


RECIPES = {
    "answers": common.Recipe(build_answers, {"source": NOVELTY}),
    "post_training": common.Recipe(build_post_training, {"source": STAGES}),
    "same_answers": common.Recipe(build_same_answers, {"source": PEOPLE, "benchmark": NOVELTY}),
}

if __name__ == "__main__":
    common.run(RECIPES)
