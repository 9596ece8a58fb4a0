"""Rebuild human.npz: sets of responses to a context, and how diverse people find each set.

    python -m experiments.builders.human --cache_dir=human-files

Needs the extra `embed` and both packages of text weights (README.md). Nine tasks of Tevet and
Berant (2021, "Evaluating the Evaluation of Diversity in Natural Language Generation"): prompts to
be completed, dialogues to be answered and stories to be ended, with sets of five or ten responses.
In conTest and McDiv_nuggets the sets are of the same or of different content, in decTest they are
a language model's at one temperature.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from condvendi_jax.cli import command
from condvendi_jax.encoders import Encoder, load_minilm, load_universal
from condvendi_jax.encoders.minilm import PACKAGE as MINILM_PACKAGE
from condvendi_jax.encoders.universal import PACKAGE as UNIVERSAL_PACKAGE
from experiments.builders import common
from experiments.data.pairs import PairedEmbeddings
from experiments.data.repository import Repository
from experiments.data.sets import FOLDER

SOURCE, COMMIT = "fabriceyhc/diversity-eval", "de683e4d13095c29e940ac82eda5e577673b0b53"
LICENCE = "MIT (Tevet and Berant)"
FAMILIES = ("conTest", "McDiv_nuggets", "decTest")
GENERATORS = {"prompt": "prompt", "resp": "response", "story": "story"}
DIMENSIONS = (192, 256)
PEOPLE = "metric_abs_hds_mean"

_FILE = re.compile(r"data/with_metrics/(\w+)/\w+_with_hds_(prompt|resp|story)_gen\.csv")
_TEMPERATURE = "temp"  # What a file calls the label that is one.
_BANDWIDTHS = {"outputs": 1.0, "prompts": 0.5}


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


def read_sets(repository: Repository, tasks: Sequence[str] | None) -> list[ResponseSet]:
    """The judged sets of some tasks, or of all: by family, generator and place in their file.

    Raises:
      ValueError: a task is not there, with those that are.
    """
    found = {}
    for path in repository.paths("data/with_metrics"):
        if match := _FILE.fullmatch(path):
            found[f"{match[1]} {GENERATORS[match[2]]}"] = path
    names = [f"{family} {word}" for family in FAMILIES for word in GENERATORS.values()]
    names = [name for name in names if name in found]
    for task in tasks or ():
        if task not in names:
            raise ValueError(f"--tasks: expected some of {', '.join(names)}, received {task!r}.")
    names = [name for name in names if not tasks or name in tasks]
    contents = repository.read([found[name] for name in names])
    return [
        _parsed(task, row)
        for task, content in zip(names, contents, strict=True)
        for row in csv.DictReader(io.StringIO(content.decode("utf-8-sig")))
    ]


def _parsed(task: str, row: dict[str, str]) -> ResponseSet:
    value, is_temperature = float(row["label_value"]), row["label_name"] == _TEMPERATURE
    return ResponseSet(
        task=task,
        context=row["context"],
        responses=tuple(text for name, text in row.items() if name.startswith("resp_")),
        people=float(row[PEOPLE]),
        label=np.nan if is_temperature else value,
        temperature=value if is_temperature else np.nan,
        metrics={
            name: float(number)
            for name, number in row.items()
            if name.startswith("metric_") and not name.startswith("metric_abs_hds")
        },
    )


def build(
    repository: Repository,
    encoders: tuple[Encoder, Encoder],
    *,
    cache: Path,
    tasks: Sequence[str] | None = None,
    dimensions: Sequence[int] = DIMENSIONS,
) -> dict[str, Any]:
    """Everything that human.npz holds, as `common.write_set` takes it.

    Args:
      repository: a clone of the source.
      encoders: of texts.
      cache: folder of what is embedded.
      tasks: some of the nine; all where None.
      dimensions: principal directions that are kept of each encoder.
    """
    sets = read_sets(repository, tasks)
    size = np.array([len(s.responses) for s in sets])
    pairs = np.repeat(np.arange(len(sets)), size)
    responses, response = np.unique([t for s in sets for t in s.responses], return_inverse=True)
    contexts, context = np.unique([s.context for s in sets], return_inverse=True)

    def paired(rows: np.ndarray) -> PairedEmbeddings:
        table, of_contexts = np.split(rows, [len(responses)])
        return PairedEmbeddings("human", table[response], of_contexts[context[pairs]], "")

    tables, cut = [], {}
    for encoder, role, kept in zip(encoders, ("first", "second"), dimensions, strict=True):
        # One set of directions for both, so that one can be subtracted from the other.
        texts = [*responses.tolist(), *contexts.tolist()]
        whole = common.embed_texts(texts, encoder, cache=cache, name=role)
        kept = min(kept, whole.shape[1])
        rows, share = common.principal_rows(whole, kept)
        tables.append(np.split(rows, [len(responses)]))
        cut[encoder.name] = {
            "principal directions": f"{kept} of {whole.shape[1]}",
            "share of the squared norm": share,
            "bandwidths": _BANDWIDTHS,
            "cost at order 2": common.cost_of(paired(whole), paired(rows), _BANDWIDTHS),
        }
    (first, first_contexts), (second, second_contexts) = tables

    labels = {
        "task": np.array([s.task for s in sets]),
        "sets": np.arange(len(sets)),
        "prompt": context,
        **{
            name: np.array([getattr(s, name) for s in sets], np.float32)
            for name in ("people", "label", "temperature")
        },
        **{name: np.array([s.metrics[name] for s in sets], np.float32) for name in sets[0].metrics},
    }
    names = [
        f"{e.name} on {len(t[0][0])} directions" for e, t in zip(encoders, tables, strict=True)
    ]
    return {
        "outputs": (first, response),
        "prompts": (first_contexts, context[pairs]),
        "further": {
            "second_outputs": (second, response),
            "second_prompts": (second_contexts, context[pairs]),
        },
        "labels": {name: values[pairs] for name, values in labels.items()},
        "description": (
            f"{len(sets):,} sets of responses judged by people, {len(pairs):,} responses to "
            f"{len(contexts):,} contexts, {len(set(labels['task']))} tasks; {names[0]}, {names[1]}"
        ),
        "licence": LICENCE,
        "cut": cut,
    }


def main(argv: list[str]) -> None:
    """Read, embed and write."""
    command.no_words(argv[1:])
    values = flags.FLAGS
    output, cache = Path(values.output), Path(values.cache_dir)
    cache.mkdir(parents=True, exist_ok=True)
    common.check_output(FOLDER / "human.npz")
    repository = Repository.opened(SOURCE, COMMIT, source=values.source, cache=cache)
    found = build(
        repository,
        (load_minilm(), load_universal()),
        cache=cache,
        tasks=values.tasks,
        dimensions=[int(word) for word in values.dimensions],
    )
    packages = common.versions(MINILM_PACKAGE, UNIVERSAL_PACKAGE, "tokenizers")
    common.write_set(output, **found, provenance=[repository.reference, *packages])


if __name__ == "__main__":
    common.define_flags(FOLDER / "human.npz", source=SOURCE)
    flags.DEFINE_list("tasks", None, "Some of the nine tasks, 'decTest story' say; all if unset.")
    flags.DEFINE_list(
        "dimensions", list(map(str, DIMENSIONS)), "Principal directions kept of each encoder."
    )
    command.run(main)
