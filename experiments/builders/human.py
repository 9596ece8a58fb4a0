"""Rebuild human.npz and human_similarities.npz: responses that people judged, set by set.

The sets are those of Tevet and Berant (2021).
"""

import csv
import io
import re

import numpy as np

from experiments.builders import common
from experiments.builders.common import NewSet, Rows, Work
from experiments.builders.similarities import OF_TEXTS, of_responses
from experiments.data.repository import Repository
from experiments.data.sets import TEXT

FAMILIES = ("conTest", "McDiv_nuggets", "decTest")
GENERATORS = {"prompt": "prompt", "resp": "response", "story": "story"}
DIMENSIONS = (192, 256)

_FILE = re.compile(r"data/with_metrics/(\w+)/\w+_with_hds_(prompt|resp|story)_gen\.csv")
_PEOPLE = "metric_abs_hds"


def read_sets(repository: Repository) -> list[tuple[str, dict[str, str]]]:
    """The task and the row of each judged set, by family, generator and place in their file."""
    found = {}
    for path in repository.paths("data/with_metrics"):
        if match := _FILE.fullmatch(path):
            found[f"{match[1]} {GENERATORS[match[2]]}"] = path
    names = [f"{family} {word}" for family in FAMILIES for word in GENERATORS.values()]
    names = [name for name in names if name in found]
    contents = repository.read([found[name] for name in names])
    return [
        (task, row)
        for task, content in zip(names, contents, strict=True)
        for row in csv.DictReader(io.StringIO(content.decode("utf-8-sig")))
    ]


@common.recipe(
    "human",
    common.MINILM,
    common.UNIVERSAL,
    "tokenizers",
    beside=["{}_similarities.npz"],
    source=("fabriceyhc/diversity-eval", "de683e4d13095c29e940ac82eda5e577673b0b53"),
)
def build(work: Work, repository: Repository) -> tuple[NewSet, dict[str, np.ndarray]]:
    """Responses and contexts, and similarities of each response with those of its set.

    People judge diversity from 1 to 5. The label is 1 where the content differs and 0 where it is
    the same, or NaN; the temperature is that of the model that wrote the responses, or NaN.
    Similarities are `[n, most]`, zeros filling up.
    """
    tasks, sets = zip(*read_sets(repository), strict=True)
    texts = [[text for name, text in row.items() if name.startswith("resp_")] for row in sets]
    most = max(map(len, texts))
    of_sets = [of_responses(of, work.texts) for of in texts]
    similarities = {
        k: np.concatenate([np.pad(s[k], ((0, 0), (0, most - len(s[k])))) for s in of_sets])
        for k in of_sets[0]
    }
    pair = np.repeat(np.arange(len(sets)), [len(of) for of in texts])
    responses, response = np.unique([text for of in texts for text in of], return_inverse=True)
    contexts, context = np.unique([row["context"] for row in sets], return_inverse=True)
    rows: dict[str, Rows] = {}
    cut, names = {}, []
    encoders = {"": work.texts, "second_": work.second}
    for (prefix, encoder), dimensions in zip(encoders.items(), DIMENSIONS, strict=True):
        # One set of directions for both, so that one can be subtracted from the other.
        whole = work.embed_texts([*responses.tolist(), *contexts.tolist()], encoder)
        kept, words = common.principal_rows(whole, dimensions)
        rows[f"{prefix}outputs"] = (kept[: len(responses)], response)
        rows[f"{prefix}prompts"] = (kept[len(responses) :], context[pair])
        cut[encoder.name] = {"kept": words}
        names.append(f"{encoder.name} on {kept.shape[1]} directions")

    def numbers(name: str) -> np.ndarray:
        return np.array([float(row[name]) for row in sets], np.float32)

    value, heated = numbers("label_value"), np.array([row["label_name"] == "temp" for row in sets])
    labels = {
        "task": np.array(tasks),
        "sets": np.arange(len(sets)),
        "prompt": context,
        "people": numbers(f"{_PEOPLE}_mean"),
        "label": np.where(heated, np.float32(np.nan), value),
        "temperature": np.where(heated, value, np.float32(np.nan)),
    }
    metrics = [name for name in sets[0] if name.startswith("metric_") and _PEOPLE not in name]
    labels |= {name: numbers(name) for name in metrics}
    for name, score in OF_TEXTS.items():
        labels[TEXT + name] = np.array([score(of) for of in texts], np.float32)
    made = NewSet(
        rows.pop("outputs"),
        rows.pop("prompts"),
        labels={name: values[pair] for name, values in labels.items()},
        description=f"{len(sets):,} sets of responses judged by people, {len(pair):,} responses to "
        f"{len(contexts):,} contexts, {len(set(tasks))} tasks; {', '.join(names)}",
        cut=cut,
        further=rows,
    )
    return made, {name: of.astype(np.float16) for name, of in similarities.items()}
