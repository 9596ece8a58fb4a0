"""Rebuild answers.npz, post_training.npz or same_answers.npz: answers of language models, embedded.

    python -m experiments.builders.answers answers --cache_dir=data-cache

An interrupted run goes on where it was.
"""

import json
import pathlib
import types
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


def read_lines(repository: Repository, paths: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The records of some files of one JSON object a line, a list a file.

    Raises:
      ValueError: a line is not of that form, or as `Repository.read`.
    """
    found = []
    for path, content in zip(paths, repository.read(paths), strict=True):
        try:
            records = [json.loads(line) for line in content.decode().splitlines()]
        except ValueError as error:
            raise ValueError(f"{path}: not one JSON object a line: {error}") from error
        if not all(isinstance(record, dict) for record in records):
            raise ValueError(f"{path}: not one JSON object a line.")
        found.append(records)
    return found


def _curated(repository: Repository) -> list[str]:
    """The file of each model's answers to the curated prompts."""
    paths = repository.paths("eval")
    return [path for path in paths if "/curated/" in path and path.endswith("/scores.jsonl")]


class _Texts:
    """Embeds texts, and keeps them for the set."""

    def __init__(self, cache: pathlib.Path):
        self.cache = cache
        self.encoder: Encoder = load_minilm(long_texts="chunks")

    def embed(self, texts: Sequence[str], name: str) -> np.ndarray:
        return common.embed_texts(texts, self.encoder, cache=self.cache, name=name)

    def write(
        self,
        output: pathlib.Path,
        name: str,
        repositories: Sequence[Repository],
        description: str,
        rows: Mapping[str, np.ndarray],
        labels: Mapping[str, np.ndarray],
        cut: Mapping[str, Any] = types.MappingProxyType({}),
    ) -> None:
        """Writes the set, embeddings in steps."""
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


def build_answers(output: pathlib.Path, cache: pathlib.Path, repository: Repository) -> None:
    """Reads and embeds the answers of every model, and writes the set.

    Raises:
      ValueError: a model lacks a prompt or an answer of the others, or as `read_lines`.
    """
    paths = _curated(repository)
    texts, by_model = _Texts(cache), {}
    for path, records in zip(paths, read_lines(repository, paths), strict=True):
        # The files are not in one order.
        by_model[path] = sorted(records, key=lambda r: int(r["id"].rpartition("-")[2]))
    first = next(iter(by_model.values()))
    count = len(first[0]["generations"])
    for path, records in by_model.items():
        if [r["id"] for r in records] != [r["id"] for r in first]:
            raise ValueError(f"{path}: the prompts are not those of {paths[0]}.")
        if any(len(r["generations"]) != count for r in records):
            raise ValueError(f"{path}: not {count} answers to every prompt.")
    names = [path.split("/")[-2] for path in paths]
    answers = [[t for r in records for t in r["generations"]] for records in by_model.values()]
    words, cut, length = common.cut_alike(answers)
    whole, truncated = (
        [texts.embed(of, f"{name}-{m}") for m, of in zip(names, kinds, strict=True)]
        for name, kinds in (("answers", answers), ("answers-cut", cut))
    )
    prompts = texts.embed([r["prompt"] for r in first], "prompts")
    prompt = np.array([int(r["id"].rpartition("-")[2]) for r in first])
    row = np.tile(np.repeat(np.arange(len(first)), count), len(names))

    def of_answers(name: str) -> np.ndarray:
        values = [v for records in by_model.values() for r in records for v in r[name]]
        return np.array(values).astype(int)

    texts.write(
        output,
        "answers",
        [repository],
        f"{count} answers of each of {len(names)} language models to the same {len(first)} prompts "
        "of NoveltyBench",
        {
            "outputs": np.concatenate(whole),
            "prompts": prompts[row],
            "truncated": np.concatenate(truncated),
        },
        {
            "models": np.repeat(names, len(first) * count),
            "vendors": np.repeat(
                [VENDORS[path.split("/")[-3]] for path in paths], len(first) * count
            ),
            "prompt": prompt[row],
            "classes": of_answers("partition"),
            "rewards": of_answers("generation_scores"),
            "words": words,
        },
        {"truncated": length},
    )


def build_post_training(output: pathlib.Path, cache: pathlib.Path, repository: Repository) -> None:
    """Reads and embeds the answers after every stage, whole and at one length, and writes the set.

    Raises:
      ValueError: as `read_lines`.
    """
    texts, folder = _Texts(cache), "results/rlhf_experiment"
    (metrics,) = read_lines(repository, [f"{folder}/baseline_metrics.jsonl"])
    # The source's own measure, of whole answers.
    distinct = {(r["stage"], r["prompt_id"]): r["ead"] for r in metrics}
    rows, asked, numbers = [], [], {}
    labels: dict[str, list[np.ndarray]] = {
        name: [] for name in ("models", "benchmark", "prompt", "matched", "words", "distinct")
    }
    for matched, kind in enumerate(("generations", "generations_length_matched")):
        for short, benchmark in PROMPT_SETS.items():
            paths = [f"{folder}/{kind}/{stage}_{short}.jsonl" for stage in STAGE_NAMES]
            files = read_lines(repository, paths)
            for stage, records in zip(STAGE_NAMES, files, strict=True):
                records = sorted(records, key=lambda r: (r["prompt_id"], r["sample_idx"]))
                answers = [record["response"] for record in records]
                rows.append(texts.embed(answers, f"stage-{stage}-{short}-{kind}"))
                asked += [record["prompt"] for record in records]
                of = [numbers.setdefault(r["prompt_id"], len(numbers)) for r in records]
                labels["models"].append(np.repeat(STAGE_NAMES[stage], len(records)))
                labels["benchmark"].append(np.repeat(benchmark, len(records)))
                labels["prompt"].append(np.array(of))
                labels["matched"].append(np.repeat(matched, len(records)))
                labels["words"].append(np.array([len(text.split()) for text in answers]))
                of = [np.nan if matched else distinct[stage, r["prompt_id"]] for r in records]
                labels["distinct"].append(np.array(of, np.float32))
    texts.write(
        output,
        "post_training",
        [repository],
        f"ten answers of OLMo-2-7B to each of {len(numbers)} prompts after each of "
        f"{len(STAGE_NAMES)} stages of training",
        {"outputs": np.concatenate(rows), "prompts": texts.embed(asked, "stage-prompts")},
        {name: np.concatenate(values) for name, values in labels.items()},
    )


def build_same_answers(
    output: pathlib.Path, cache: pathlib.Path, repository: Repository, benchmark: Repository
) -> None:
    """Reads and embeds the pairs that people judged, and writes the set.

    Raises:
      ValueError: as `read_lines`.
    """
    texts, folder = _Texts(cache), "evals/novelty-bench/src/data/classifier"
    parts = read_lines(repository, [f"{folder}/{part}.jsonl" for part in PARTS])
    pairs = [record for part in parts for record in part]
    first, second, asked = (
        [record[name] for record in pairs] for name in ("generation_0", "generation_1", "prompt")
    )
    # The benchmark's own class of an answer, where the answer is one of the benchmark's.
    paths = _curated(benchmark)
    known = {
        (path.split("/")[-2], r["prompt"], text): r["partition"][place]
        for path, records in zip(paths, read_lines(benchmark, paths), strict=True)
        for r in records
        for place, text in enumerate(r["generations"])
    }
    classes = []
    for record, *both in zip(pairs, first, second, strict=True):
        asked_of = record["model"].rpartition("/")[2], record["prompt"]
        one, two = (known.get((*asked_of, text)) for text in both)
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
        [repository, benchmark],
        f"{len(pairs):,} pairs of answers of 20 language models that people called the same or "
        "different",
        {"outputs": outputs, "second": others, "prompts": prompts},
        {
            "prompt": np.unique(asked, return_inverse=True)[1],
            "same": np.array([int(record["similar"]) for record in pairs]),
            "train": np.repeat([1, 0], [len(part) for part in parts]),
            "equal": np.array([int(one == two) for one, two in zip(first, second, strict=True)]),
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
