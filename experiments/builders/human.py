"""Rebuild human.npz and human_similarities.npz: responses that people judged, set by set.

    python -m experiments.builders.human --cache_dir=human-files

The sets are those of Tevet and Berant (2021).
"""

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from condvendi_jax.encoders import load_minilm
from experiments.builders import common
from experiments.builders.similarities import of_responses
from experiments.builders.universal import load_universal
from experiments.data.repository import Repository

REPOSITORY = ("fabriceyhc/diversity-eval", "de683e4d13095c29e940ac82eda5e577673b0b53")
FAMILIES = ("conTest", "McDiv_nuggets", "decTest")
GENERATORS = {"prompt": "prompt", "resp": "response", "story": "story"}
DIMENSIONS = (192, 256)

_FILE = re.compile(r"data/with_metrics/(\w+)/\w+_with_hds_(prompt|resp|story)_gen\.csv")


class ResponseSet(NamedTuple):
    """Responses to one context, and what is known about them.

    Attributes:
      task: which of the nine.
      context: what was responded to.
      responses: five or ten texts.
      people: the mean judgement of diversity, from 1 to 5.
      label: 1 where the content differs, 0 where it is the same; NaN where no one says.
      temperature: of the model that wrote the responses; NaN where people wrote them.
      metrics: the published metrics by name, larger where more diverse.
    """

    task: str
    context: str
    responses: tuple[str, ...]
    people: float
    label: float
    temperature: float
    metrics: dict[str, float]


def read_sets(repository: Repository) -> list[ResponseSet]:
    """The judged sets, by family, generator and place in their file."""
    found = {}
    for path in repository.paths("data/with_metrics"):
        if match := _FILE.fullmatch(path):
            found[f"{match[1]} {GENERATORS[match[2]]}"] = path
    names = [f"{family} {word}" for family in FAMILIES for word in GENERATORS.values()]
    names = [name for name in names if name in found]
    contents = repository.read([found[name] for name in names])
    return [
        _parsed(task, row)
        for task, content in zip(names, contents, strict=True)
        for row in csv.DictReader(io.StringIO(content.decode("utf-8-sig")))
    ]


def _parsed(task: str, row: dict[str, str]) -> ResponseSet:
    value, is_temperature = float(row["label_value"]), row["label_name"] == "temp"
    return ResponseSet(
        task=task,
        context=row["context"],
        responses=tuple(text for name, text in row.items() if name.startswith("resp_")),
        people=float(row["metric_abs_hds_mean"]),
        label=np.nan if is_temperature else value,
        temperature=value if is_temperature else np.nan,
        metrics={
            name: float(number)
            for name, number in row.items()
            if name.startswith("metric_") and not name.startswith("metric_abs_hds")
        },
    )


def build(output: Path, cache: Path, repository: Repository) -> None:
    """Embeds responses and contexts, and writes them and similarities of the responses of a set."""
    sets = read_sets(repository)
    _write_similarities(_beside(output)[0], [s.responses for s in sets])
    pair = np.repeat(np.arange(len(sets)), [len(s.responses) for s in sets])
    responses, response = np.unique([t for s in sets for t in s.responses], return_inverse=True)
    contexts, context = np.unique([s.context for s in sets], return_inverse=True)
    rows: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    cut: dict[str, Any] = {}
    names = []
    for prefix, load, dimensions in zip(
        ("", "second_"), (load_minilm, load_universal), DIMENSIONS, strict=True
    ):
        encoder = load()
        # One set of directions for both, so that one can be subtracted from the other.
        texts = [*responses.tolist(), *contexts.tolist()]
        whole = common.embed_texts(texts, encoder, cache=cache, name="human")
        kept, words = common.principal_rows(whole, dimensions)
        rows[f"{prefix}outputs"] = (kept[: len(responses)], response)
        rows[f"{prefix}prompts"] = (kept[len(responses) :], context[pair])
        cut[encoder.name] = {"kept": words}
        names.append(f"{encoder.name} on {kept.shape[1]} directions")
    numbers = {
        **{name: [getattr(s, name) for s in sets] for name in ("people", "label", "temperature")},
        **{name: [s.metrics[name] for s in sets] for name in sets[0].metrics},
    }
    labels = {
        "task": np.array([s.task for s in sets]),
        "sets": np.arange(len(sets)),
        "prompt": context,
        **{name: np.array(values, np.float32) for name, values in numbers.items()},
    }
    common.write_set(
        output,
        "human",
        outputs=rows.pop("outputs"),
        prompts=rows.pop("prompts"),
        further=rows,
        labels={name: values[pair] for name, values in labels.items()},
        description=f"{len(sets):,} sets of responses judged by people, {len(pair):,} responses to "
        f"{len(contexts):,} contexts, {len(set(labels['task']))} tasks; {', '.join(names)}",
        provenance=common.origins(repository, common.MINILM, common.UNIVERSAL, "tokenizers"),
        cut=cut,
    )


def _beside(output: Path) -> list[Path]:
    return [output.with_stem(f"{output.stem}_similarities")]


def _write_similarities(path: Path, sets: Sequence[Sequence[str]]) -> None:
    """The similarities of each response with those of its set, `[n, most]`, zeros filling up."""
    encoder, most = load_minilm(), max(map(len, sets))
    of_sets = [of_responses(texts, encoder) for texts in sets]
    rows = {
        name: np.concatenate([np.pad(s[name], ((0, 0), (0, most - len(s[name])))) for s in of_sets])
        for name in of_sets[0]
    }
    common.write_arrays(path, **{name: of.astype(np.float16) for name, of in rows.items()})


RECIPES = {"human": common.Recipe(build, {"source": REPOSITORY}, beside=_beside)}

if __name__ == "__main__":
    common.run(RECIPES)
