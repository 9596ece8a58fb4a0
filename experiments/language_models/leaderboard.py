"""The leaderboard of docs/leaderboard.md, from records alone, and the records of shipped models.

python -m experiments.language_models.leaderboard             # the page, from docs/leaderboard/
python -m experiments.language_models.leaderboard --records   # the records of shipped sets, too
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

import condvendi_jax as cv
from condvendi_jax import inference
from condvendi_jax.base import files
from condvendi_jax.cli import command
from condvendi_jax.results import record
from condvendi_jax.results.comparison import Comparison
from experiments import data
from experiments.lab import pages

PAGE = pages.PROJECT / "docs" / "leaderboard.md"
FOLDER = pages.PROJECT / "docs" / "leaderboard"
PROTOCOL = "novelty-100"
ANSWERS = 10
_DEVELOPERS = {"Anthropic": "anthropic", "Cohere": "CohereLabs", "Google": "google"}
_DEVELOPERS |= {"Meta": "meta-llama", "OpenAI": "openai"}
_STAGES = {"base": "", "SFT": "-SFT", "DPO": "-DPO", "Instruct": "-Instruct"}
_PART = re.compile("<!--board-->\n(?:.*\n)*?<!--/board-->\n")


def protocols() -> dict[str, dict[str, Any]]:
    """The frozen protocols of the library, by name."""
    return json.loads(record.PROTOCOLS.read_text(encoding="utf-8"))


def shipped() -> Iterator[tuple[str, np.ndarray]]:
    """Each model of the sets `answers` and `post_training`, and its answers `[prompts, k, d]`.

    Both answer the prompts of the protocol; they stand here in the order of the first set.
    """
    pairs = data.load("answers")
    asked = pairs.prompts[np.unique(pairs.labels["prompt"], return_index=True)[1]]
    for model in dict.fromkeys(pairs.labels["models"].tolist()):
        of_model = pairs.rows(pairs.labels["models"] == model)
        developer = _DEVELOPERS[str(of_model.labels["vendors"][0])]
        yield f"{developer}/{model}", _by_prompt(of_model, asked)
    pairs = data.load("post_training")
    whole = (pairs.labels["benchmark"] == "NoveltyBench") & (pairs.labels["matched"] == 0)
    for stage, name in _STAGES.items():
        of_stage = pairs.rows(whole & (pairs.labels["models"] == stage))
        yield f"allenai/OLMo-2-1124-7B{name}", _by_prompt(of_stage, asked)


def _by_prompt(pairs: data.PairedEmbeddings, asked: np.ndarray) -> np.ndarray:
    """The answers to each prompt `[prompts, k, d]`, by the embeddings of prompts."""
    similar = pairs.prompts @ asked.T
    prompt, place = similar.argmax(axis=1), np.argsort(similar.argmax(axis=1), kind="stable")
    if similar.max(axis=1).min() < 0.999 or np.any(np.bincount(prompt) != ANSWERS):
        raise ValueError(f"{pairs.name}: expected {ANSWERS} answers to each of these prompts.")
    return pairs.outputs[place].reshape(len(asked), ANSWERS, -1)


def records(answers: int = ANSWERS) -> dict[str, dict[str, Any]]:
    """The record of each shipped model, by its first answers to each prompt.

    The texts of the prompts are not shipped: the digests of the protocol stand for them.
    """
    protocol = protocols()[PROTOCOL]
    asked = np.repeat([f"sha256:{digest}" for digest in protocol["prompts"]], answers)
    parts = ("encoder", "encoder_revision")
    encoder = {f"text_{part}": protocol["compared"][part] for part in parts}
    kernel, found = cv.Gaussian(protocol["compared"]["outputs_bandwidth"]), {}
    for model, points in shipped():
        outputs = points[:, :answers].reshape(-1, points.shape[-1])
        scored = cv.evaluate(outputs, asked, output_kernel=kernel, orders=[2])
        scored = dataclasses.replace(scored, noun="answers")
        found[model] = scored.record(model, encoder=encoder, organization="condvendi_jax")
    return found


def board(folder: pathlib.Path = FOLDER) -> Comparison:
    """All models whose records are in a folder; ValueError where one breaks the protocol."""
    found = dict[str, Any]()
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        model = content["model_info"]["id"].replace("|", "/")
        if model in found or not _follows(content):
            why = "is there twice" if model in found else f"does not follow {PROTOCOL}"
            raise ValueError(f"{path}: {model} {why}.")
        found[model] = content
    return inference.leaderboard(found)


def _follows(content: dict[str, Any]) -> bool:
    """Whether a record was made by the protocol, with its prompts and enough answers to each."""
    protocol = protocols()[PROTOCOL]
    for result in content["evaluation_results"]:
        metric, scored = result["metric_config"], result["score_details"]
        if metric["metric_id"] == record.METRIC and "details" in scored:
            rows = json.loads(scored["details"][record.BY_PROMPT])
            told = {name: metric["metric_parameters"][name] for name in protocol["compared"]}
            enough = min(count for count, _ in rows.values()) >= protocol["least_answers"]
            return enough and told == protocol["compared"] and {*rows} == {*protocol["prompts"]}
    return False


def page(text: str, found: Comparison) -> str:
    """The text of the page with the board of these models."""
    ranking = found.ranking("conditional", 2)
    table = [["ranks", "model", "Conditional-RKE", "letters"]]
    for model, (first, last) in ranking.rank_sets.items():
        ranks = f"{first}" if first == last else f"{first} to {last}"
        table.append([ranks, model, str(ranking.estimate(model)), ranking.letters[model]])
    told = [f"- {advice}" for advice in found.advice if advice.code == "models"]
    lines = ["<!--board-->", *pages.markdown(table), *told, "<!--/board-->"]
    return _PART.sub("\n".join([*lines, ""]), text)


def main(argv: list[str]) -> None:
    """Writes the records, if asked, and the page."""
    if argv[1:] not in ([], ["--records"]):
        raise ValueError(f"expected --records or nothing, received {' '.join(argv[1:])}.")
    for model, content in records().items() if argv[1:] else ():
        files.write_json(FOLDER / f"{model.replace('/', '--')}.json", content)
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), board()), encoding="utf-8")


if __name__ == "__main__":
    command.run(main)
