"""The inputs of every verb: arrays from files, or pictures and texts that are embedded."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from condvendi_jax import encoders
from condvendi_jax.base import checks, files
from condvendi_jax.cli import command, options
from condvendi_jax.cli.options import Options, Source, Target, Verb
from condvendi_jax.data import bandwidth
from condvendi_jax.data.bandwidth import RuledBandwidth
from condvendi_jax.encoders import embedding, items, records
from condvendi_jax.encoders.embedding import LoadedEncoder
from condvendi_jax.encoders.record_files import RECORD_ENDINGS
from condvendi_jax.inference import texts as texts_of
from condvendi_jax.spectra import computation

_RECORD_FIELDS = ("prompt_field", "answer_field", "model_field", "strip_thinking")


class Model(NamedTuple):
    """The outputs of a model and their prompts, as the command line names them.

    `kind` is `embeddings`, `images`, `texts` or `records`; `path` an array file, a folder of
    pictures or a file of texts; `prompts` an array file or a file of texts, None without prompts.
    Files of records, of all models, are both.
    """

    kind: str
    path: str
    prompts: str | None


def kind_of(path: str) -> str:
    """Returns what a path holds, by its ending: `embeddings`, `images` or `texts`."""
    if is_text(path):
        return "texts"
    return "images" if files.expanded(path).is_dir() else "embeddings"


def is_text(path: str) -> bool:
    """Whether a path has an ending of files of texts."""
    return pathlib.Path(path).suffix.lower() in items.TEXT_ENDINGS


def as_records(words: Sequence[str], given: Verb) -> tuple[Sequence[str], Verb]:
    """The words and flags, where words that name files of records become --records."""
    if words and given.records is not None:
        raise ValueError(f"--records={given.records} and {words[0]}: give one or the other.")
    # Fields that only the user knows.
    endings = {pathlib.Path(word).suffix.lower() for word in words}
    named = given.is_set(*_RECORD_FIELDS) and endings <= {*RECORD_ENDINGS}
    if not words or given.prompts is not None:
        return words, given
    if not named and not all(map(records.holds_records, words)):
        return words, given
    return [], dataclasses.replace(given, records=Source(",".join(words)))


def check(given: Options, models: Mapping[str, Model]) -> None:
    """Sets the precision, and refuses what cannot work, before anything is read.

    Raises:
      ValueError: models are of different kinds, or a flag has no effect.
      ValueError, OSError: a file to write is one to read, exists, or cannot be written.
    """
    kinds = {model.kind: name for name, model in models.items()}
    if len(kinds) > 1:
        (first, one), (second, other) = list(kinds.items())[:2]
        raise ValueError(
            f"expected outputs of one kind, received {first} of {one} ({models[one].path}) and "
            f"{second} of {other} ({models[other].path})."
        )
    (kind,) = kinds
    prompts = [model.prompts for model in models.values() if model.prompts is not None]
    answers, paired = kind == "records", bool(prompts)
    texts = not answers and any(map(is_text, prompts))
    if texts and not all(map(is_text, prompts)):
        raise ValueError(
            f"--prompts: expected texts for all models, or embeddings for all, received "
            f"{', '.join(prompts)}."
        )
    method = given.method or "auto"
    spectral = given.order != (2.0,) or given.truncation is not None
    approximates = computation.BY_NAME[method].approximates
    gaussian, read_as_texts = given.kernel == "gaussian", texts or kind == "texts"
    for flags, has_effect in {
        "outputs_key": kind == "embeddings",
        "prompts_key": paired and not texts and not answers,
        "prompt_column": texts,
        "image_column": texts and kind == "images",
        "text_column": kind == "texts",
        "image_encoder": kind == "images",
        "text_encoder long_texts": read_as_texts or answers,
        "cache": texts or kind != "embeddings",
        " ".join(_RECORD_FIELDS): answers,
        "prompt_bandwidth equal_prompts similar_prompts": paired,
        "output_bandwidth prompt_bandwidth profile": gaussian,
        "rule": None in given.kernels(paired=paired).values(),
        "method rtol": spectral or approximates,  # Order 2 has no spectrum, and is exact.
        "rtol": not approximates and method != "exact",
        "features": approximates,
        "plugin": not approximates and not given.truncation and 2 in given.order,
    }.items():
        for flag in filter(given.is_set, flags.split()):
            if not has_effect:
                raise ValueError(
                    f"--{flag}={getattr(given, flag)}: has no effect on these inputs beside the "
                    "other flags; leave it out, or see --help."
                )
    files.check_targets(given.paths(Target), _sources(given, models), overwrite=given.overwrite)
    jax.config.update("jax_enable_x64", given.x64)


def _sources(given: Options, models: Mapping[str, Model]) -> dict[str, list[Any]]:
    """Returns every file that will be read, by the flag or the model that names it."""
    read: dict[str, list[Any]] = {
        flag: options.paths_in(value) for flag, value in given.paths(Source).items()
    }
    if given.records is not None:
        read["--records"] = list(records.record_files(read["--records"]))
        return read
    for name, model in models.items():
        read[f"the model {name}" if name else "this command"] = [model.path]
    return read


class Inputs(NamedTuple):
    """The arrays that were read, and what to say about them.

    Attributes:
      outputs: embeddings `[n, d_x]`, by model.
      prompts: embeddings `[n, d_t]`, by model.
      texts: the texts of prompts that were embedded, by model.
      described: columns, pairing and encoders for JSON, one entry a model where they differ.
      notes: lines to print below the table.
      items: the texts, or paths of pictures, that were embedded as outputs, by model.
      bandwidth: that of the encoder of the outputs, where people's judgements gave it one.
    """

    outputs: dict[str, np.ndarray]
    prompts: dict[str, np.ndarray]
    texts: dict[str, list[str]]
    described: dict[str, Any]
    notes: list[str]
    items: Mapping[str, Sequence[Any]]
    bandwidth: RuledBandwidth | None = None

    def settings(self, given: Options, models: Sequence[str] = ()) -> dict[str, Any]:
        """Returns the arguments that `evaluate` and, for several `models`, `compare` take."""
        kernels = given.kernels(paired=bool(self.prompts))
        return {
            "output_kernel": kernels["outputs"] or (None if given.rule else self.bandwidth),
            "prompt_kernel": kernels.get("prompts"),
            "rule": given.rule or bandwidth.AUTO,
            "similar_prompts": given.similar_prompts,
            "orders": list(given.order),
            "unbiased": not given.plugin,
            "truncation": given.truncation,
            "method": given.chosen_method,
            "groups": given.read_groups(),
            "weights": given.read_weights(models),
            "seed": given.seed,
        }


def read(given: Options, models: Mapping[str, Model], bar: Any, *, several: bool = False) -> Inputs:
    """Reads the files, pairs outputs with prompts, and embeds pictures and texts.

    Records must hold one model, or `several`. What an encoder prints goes to standard error:
    standard output is for the results.
    """
    with contextlib.redirect_stdout(sys.stderr):
        if given.records is not None:
            read = _read_records(given, bar, several)
        else:
            read = _read(given, models, bar)
    for name, outputs in read.outputs.items():
        if np.array_equal(outputs, read.prompts.get(name, ())):
            raise ValueError(
                f"outputs{' of ' if name else ''}{name} and their prompts are equal in every row: "
                "give the outputs, and the prompts that they answer."
            )
    command.use_threads(max(map(len, read.outputs.values())))
    return read


def _read_records(given: Options, bar: Any, several: bool) -> Inputs:
    """Answers and prompts of all models, each text embedded once; prompts go by their model."""
    named = {name: getattr(given, name) for name in _RECORD_FIELDS if given.is_set(name)}
    read = records.read_records(options.paths_in(given.records or ""), **named)
    if several != (len(read.answers) > 1):
        wanted = "at least two models" if several else "one model, or condvendi compare"
        received = ", ".join(read.answers)
        raise ValueError(f"--records: expected answers of {wanted}, received those of {received}.")
    _warn_of_missing_prompts(read.counts)
    encoder = _load_encoder(given, "texts")
    answers = _embed(read.answers, encoder, "texts", given, bar, "answers")
    prompts = _embed(read.prompts, encoder, "texts", given, bar, "prompts")
    notes = [_embedded(role, encoder, "field", names) for role, names in read.fields.items()]
    notes = ["; ".join(notes), *read.notes]
    counted = {}
    for name, counts in read.counts.items():
        n, least, most = len(read.answers[name]), min(counts.values()), max(counts.values())
        counted[name] = {"n": n, "prompts": len(counts), "least": least, "most": most}
        each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        notes.append(f"{name}: {n:,} answers, {len(counts):,} prompts, {each} answers a prompt")
    described = {
        "answers": counted,
        "fields": read.fields,
        "skipped": list(map(str, read.skipped)),
        "text_encoder": encoder.name,
        "text_encoder_path": encoder.spec,
    }
    judged = texts_of.judged(encoder)
    return Inputs(answers, prompts, read.prompts, described, notes, read.answers, judged)


def _warn_of_missing_prompts(counts: Mapping[str, Mapping[str, int]]) -> None:
    """Warns of prompts that some models answer and others do not."""
    prompts = dict.fromkeys(prompt for answered in counts.values() for prompt in answered)
    absent = {p: name for name, answered in counts.items() for p in prompts if p not in answered}
    if absent:
        prompt, name = next(iter(absent.items()))
        checks.warn(
            f"{len(absent):,} of {len(prompts):,} prompts are not answered by all models: for "
            f"example, {name} has no answer to {prompt[:80]!r}."
        )


def _read(given: Options, models: Mapping[str, Model], bar: Any) -> Inputs:
    (kind,) = {model.kind for model in models.values()}
    paths = dict.fromkeys(m.prompts for m in models.values() if m.prompts is not None)
    texts = {p: items.read_prompts(p, column=given.prompt_column) for p in paths if is_text(p)}
    prompts = {p: files.read_array(p, key=given.prompts_key) for p in paths if not is_text(p)}
    outputs, described = {}, {}
    for name, model in models.items():
        table = texts.get(model.prompts or "")
        outputs[name], columns = _read_outputs(given, model, table)
        if table is not None and table.column:
            columns = {"prompt_column": table.column, **columns}
        if paths and (texts or kind != "embeddings"):
            columns = {"paired_by": "order", **columns}
        for key, value in columns.items():
            described.setdefault(key, {})[name] = value
    used, notes, shown = {}, [], {}
    if kind != "embeddings":
        shown = dict(outputs)
        encoder = used[kind] = _load_encoder(given, kind)
        what = {"images": "pictures", "texts": "texts"}[kind]
        outputs = _embed(shown, encoder, kind, given, bar, what)
        columns = described.get("text_column", {}).values()
        notes.append(_embedded(what, encoder, "column", columns))
    if texts:
        encoder = used["texts"] = used.get("texts") or _load_encoder(given, "texts")
        by_path = {path: table.texts for path, table in texts.items()}
        prompts = _embed(by_path, encoder, "texts", given, bar, "prompts")
        columns = described.get("prompt_column", {}).values()
        notes.append(_embedded("prompts", encoder, "column", columns))
    report = {key: _one_or_each(values, len(models)) for key, values in described.items()}
    for medium, encoder in used.items():
        name = f"{medium[:-1]}_encoder"
        report |= {name: encoder.name, f"{name}_path": encoder.spec}
    notes = ["; ".join(notes)] if notes else []
    if paired_by := report.get("paired_by"):
        if not isinstance(paired_by, str):
            paired_by = ", ".join(f"{entry} ({name})" for name, entry in paired_by.items())
        notes.append(f"outputs paired with prompts by {paired_by}")
    asked = {name: model.prompts for name, model in models.items() if model.prompts is not None}
    words = {name: texts[path].texts for name, path in asked.items() if texts}
    rows = {name: prompts[path] for name, path in asked.items()}
    return Inputs(outputs, rows, words, report, notes, shown, texts_of.judged(used.get(kind)))


def _one_or_each(values: Mapping[str, str], count: int) -> Any:
    """The value that all `count` entries have in common, or else that of each."""
    shared = len(values) == count and len(set(values.values())) == 1
    return next(iter(values.values())) if shared else dict(values)


def _embedded(role: str, encoder: LoadedEncoder, kind: str, names: Any) -> str:
    """A note: what was embedded, of which columns or fields, and by which encoder."""
    words = ", ".join(map(repr, dict.fromkeys(names)))
    return f"{role}{f' ({kind} {words})' if words else ''} embedded by {encoder.name}"


def _read_outputs(
    given: Options, model: Model, prompts: items.Texts | None
) -> tuple[Any, dict[str, str]]:
    """A model's array, texts or paths of pictures; and its columns and pairing."""
    if model.kind == "embeddings":
        return files.read_array(model.path, key=given.outputs_key), {}
    if model.kind == "images":
        images = items.list_images(model.path)
        column = None
        if prompts is not None:
            images, column = items.pair_images(prompts, images, column=given.image_column)
            for one, two in zip(images, sorted(images), strict=True):
                if column is None and one != two:  # The prompts may be in the order of `sorted`.
                    return images, {"paired_by": f"order, {one.name} before {two.name}"}
        paired_by = {"image_column": column, "paired_by": f"image column {column!r}"}
        return images, paired_by if column is not None else {}
    texts = items.read_texts(model.path, column=given.text_column)
    if prompts is not None:
        items.pair_texts(prompts, texts)
    return texts.texts, {"text_column": texts.column} if texts.column else {}


def _load_encoder(given: Options, kind: str) -> LoadedEncoder:
    if kind == "images":
        return embedding.load_encoder(given.image_encoder, encoders.load_efficientnet)
    more = {} if given.long_texts is None else {"long_texts": given.long_texts}
    return embedding.load_encoder(given.text_encoder, encoders.load_minilm, **more)


def _embed(
    named: Mapping[str, Sequence[Any]],
    encoder: LoadedEncoder,
    kind: Any,
    given: Options,
    bar: Any,
    role: str,
) -> dict[str, np.ndarray]:
    """The embeddings of pictures or texts by name; those in the cache are not computed again."""
    together = [item for items in named.values() for item in items]
    task = bar.add_task(f"embedding {role}", total=len(together))
    rows = embedding.embed(
        together,
        encoder,
        kind=kind,
        cache=given.cache,
        progress=lambda count: bar.advance(task, count),
    )
    ends = np.cumsum([len(items) for items in named.values()])
    return dict(zip(named, np.split(rows, ends[:-1]), strict=True))
