"""Rebuild a set of published answers of language models, embedded.

answers.npz, post_training.npz, same_answers.npz, language.npz (of AlpacaEval's systems) or
interventions.npz (with and without a cure for sameness; the first cure of a source is its
baseline). An interrupted run goes on where it was.
"""

import itertools
import json
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.builders import common
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
VARIANTS = ("", "_concise", "_verbose")
SIZES = re.compile(r"Qwen1\.5-([\d.]+)B-Chat")
EVERY = 6  # Of the instructions that all systems answered, every so many are taken.
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
Records = list[dict[str, Any]]
Answer = tuple[str, str, str, str, float]  # Source, cure, prompt, text, and what the judge gave it.


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
    distinct, index = np.unique(rounded(rows, STEP), axis=0, return_inverse=True)
    return distinct, index.reshape(-1)  # NumPy 2.0 gives it a second axis.


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


def chosen_systems(systems: Iterable[str]) -> list[str]:
    """Systems with a concise and a verbose variant, and these; then the sizes of one family."""
    known = set(systems)
    plain = sorted(name for name in known if all(name + words in known for words in VARIANTS))
    sizes = [(float(found[1]), name) for name in known if (found := SIZES.fullmatch(name))]
    return [name + words for name in plain for words in VARIANTS] + [n for _, n in sorted(sizes)]


@recipe("language", *OF_TEXTS, source=("tatsu-lab/alpaca_eval", "cd543a1"))
def build_language(work: Work, repository: Repository) -> NewSet:
    """Some of the instructions that all systems answered, with the answers whole and cut."""
    files = [path for path in repository.paths("results") if path.endswith("_outputs.json")]
    systems = chosen_systems(path.split("/")[1] for path in files)
    contents = repository.read([f"results/{system}/model_outputs.json" for system in systems])
    by_system = [
        {entry["instruction"]: entry["output"] for entry in json.loads(content)}
        for content in contents
    ]
    shared = [text for text in by_system[0] if all(text in answers for answers in by_system)]
    kept = np.arange(0, len(shared), EVERY)
    taken = [answers[text] for answers in by_system for text in shared[::EVERY]]
    words, cut, length = cut_alike(taken)
    models, row = np.repeat(systems, len(kept)), np.tile(np.arange(len(kept)), len(systems))
    return NewSet(
        work.embed_parts(taken, models),
        (work.embed_texts(shared[::EVERY]), row),
        labels={"models": models, "prompt": kept[row], "words": words},
        description=f"answers of {len(systems)} language models to the same {len(kept)} "
        f"instructions of AlpacaEval; {work.texts.name} answers (256 tokens at most) and "
        "instructions",
        cut={
            "instructions": {"of": len(shared), "every": EVERY, "kept": len(kept)},
            "truncated": length,
        },
        further={"truncated": work.embed_parts(cut, models)},
    )


def _benchmark(repositories: Sequence[Repository]) -> Iterator[Answer]:
    """The answers of NoveltyBench; the quality of an answer is its class's reward."""
    for cure, (source, place, path) in FILES.items():
        (records,) = read_lines(repositories[place], [path])
        for record in sorted(records, key=prompt_number):
            for text, kind in zip(record["generations"], record["partition"], strict=True):
                yield source, cure, record["prompt"], text, record["partition_scores"][kind]


def _samplers(repository: Repository) -> Iterator[Answer]:
    """The stories of every model; one model's stories to a prompt are the answers to a prompt."""
    paths = [p for p in repository.paths("results") if p.count("/") == 1 and "_judged_" in p]
    files = [json.loads(content) for content in repository.read(paths)]
    for (sampler, cure), file in itertools.product(SAMPLED.items(), files):
        samples = [s for s in file["samples"] if s["sampler_name"] == sampler]
        for s in sorted(samples, key=lambda s: (s["prompt"], s["repetition"])):
            asked, text = f"{file['model_name']}: {s['prompt']}", s["generated_text"]
            score = s["judgment"]["overall_score"] if len(text.split()) >= LEAST else 0
            yield "samplers", cure, asked, text, score


@recipe(
    "interventions",
    *OF_TEXTS,
    source=("novelty-bench/novelty-bench", "6ccb21e"),
    leaderboard=NOVELTY,
    trained=("wenzhilics/novelty-bench-ori", "05b8715"),
    samplers=("larosafrancesco289/sampler-bench", "5429593"),
)
def build_interventions(work: Work, *repositories: Repository) -> NewSet:
    """The answers, and within a source all at one length."""
    every = [*_benchmark(repositories), *_samplers(repositories[-1])]
    sources, cures, asked, texts, qualities = zip(*every, strict=True)
    first = [common.first_words(text, WORDS) for text in texts]
    truncated, lengths = [], {}
    of_sources = itertools.groupby(zip(sources, first, strict=True), operator.itemgetter(0))
    for source, of in of_sources:
        _, cut, length = cut_alike([text for _, text in of])
        truncated, lengths[source] = truncated + cut, length["words"]
    pairs = [f"{source} {text}" for source, text in zip(sources, asked, strict=True)]
    distinct, prompt = np.unique(pairs, return_inverse=True)
    prompts = [of.split(" ", 1)[1] for of in distinct]
    embedded = [work.embed_texts(of, work.long_texts) for of in (first, prompts, truncated)]
    return NewSet(
        stored(embedded[0]),
        (embedded[1], prompt),
        labels={
            "source": sources,
            "models": cures,
            "prompt": prompt,
            "quality": np.array(qualities, np.float32),
            "words": [len(text.split()) for text in texts],
        },
        description="answers of language models with and without cures for sameness (NoveltyBench, "
        f"sampler-bench); {work.long_texts.name}",
        cut={"words": WORDS, "truncated": lengths, "percentile": common.PERCENTILE, "step": STEP},
        further={"truncated": stored(embedded[2])},
    )
