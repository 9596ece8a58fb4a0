"""What the verbs read: arrays from files, or pictures and texts that are embedded."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags
from rich import progress

from condvendi_jax import encoders, files, validation
from condvendi_jax.encoders import embedding, items, records
from condvendi_jax.encoders.embedding import LoadedEncoder
from condvendi_jax.encoders.items import Texts

_TEXT_ENDINGS = (".txt", ".csv", ".jsonl")
_ONE_THREAD = 1_500  # Rows up to which eigenvalues are computed by one thread.
_ENCODERS = {"images": "load_efficientnet", "texts": "load_minilm"}


class Model(NamedTuple):
    """A model's outputs and their prompts, as the command line names them.

    `kind` is `embeddings`, `images`, `texts` or `records`; `path` an array file, a folder of
    pictures or a file of texts; `prompts` an array file or a file of texts, None without prompts.
    Files of records, of all models, are both.
    """

    kind: str
    path: str
    prompts: str | None


def kind_of(path: str) -> str:
    """What a path holds, by its ending: `embeddings`, `images` or `texts`."""
    if is_text(path):
        return "texts"
    return "images" if files.expanded(path).is_dir() else "embeddings"


def is_text(path: str) -> bool:
    """Whether a path has an ending of files of texts."""
    return pathlib.Path(path).suffix.lower() in _TEXT_ENDINGS


def model_of_records(given: dict[str, Any]) -> Model:
    """What --records names; its prompts are there too, and no others may be given."""
    if given["prompts"] is not None:
        raise ValueError("--records and --prompts: records hold their prompts; give one of them.")
    return Model("records", given["records"], given["records"])


def define(values: flags.FlagValues) -> None:
    """Adds the flags that say how outputs and prompts are read, and embedded if need be."""
    words = {
        "outputs_key": "The array to read from a file of outputs.",
        "prompts_key": "The array to read from a file of prompts.",
        "image_encoder": "The encoder of pictures: package.module:attribute with encode(items); "
        "EfficientNet-Lite0 if unset.",
        "text_encoder": "The encoder of texts, in the same form; all-MiniLM-L6-v2 if unset.",
        "prompt_column": "The column of the prompts' file that holds the prompts.",
        "image_column": "The column of the prompts' file that names the pictures.",
        "text_column": "The column of the texts' file that holds the texts.",
        "cache": "The folder that keeps embeddings; the user's cache folder if unset.",
        "records": "Answers with their prompts, which are embedded: files in .jsonl, .json, .csv "
        "or .parquet, or logs of Inspect, with commas, or a pattern such as 'runs/*.jsonl'.",
        "prompt_field": "The only field of the records that holds the prompt; if unset, all that "
        "the model was given.",
        "answer_field": "The field that holds the answer, or a list of answers.",
        "model_field": "The field that names the model; 'model', or else the file, if unset.",
    }
    for name, word in words.items():
        flags.DEFINE_string(name, None, word, flag_values=values)
    for name, word in {
        "strip_thinking": "Whether an answer of a record is the text after <think>...</think>, the "
        "default; --strip_thinking=false embeds the reasoning too, with a warning.",
        "skip_broken": "Leave out pictures that cannot be decoded, with their prompts.",
    }.items():
        flags.DEFINE_bool(name, None, word, flag_values=values)
    flags.DEFINE_enum(
        "long_texts",
        None,
        ["cut", "chunks"],
        "What all-MiniLM-L6-v2 does with texts longer than the 256 tokens that it reads: 'cut', "
        "the default, ignores the rest with a warning; 'chunks' averages the embeddings of pieces.",
        flag_values=values,
    )


def check(given: dict[str, Any], models: Mapping[str, Model]) -> None:
    """Refuses models of different kinds, and flags without effect, before anything is read."""
    kinds = {model.kind: name for name, model in models.items()}
    if len(kinds) > 1:
        (first, one), (second, other) = list(kinds.items())[:2]
        raise ValueError(
            f"expected outputs of one kind, received {first} of {one} ({models[one].path}) and "
            f"{second} of {other} ({models[other].path})."
        )
    (kind,) = kinds
    prompts = [model.prompts for model in models.values() if model.prompts is not None]
    answers = kind == "records"
    texts = not answers and any(map(is_text, prompts))
    if texts and not all(map(is_text, prompts)):
        raise ValueError(
            f"--prompts: expected texts for all models, or embeddings for all, received "
            f"{', '.join(prompts)}."
        )
    needs = {
        "outputs_key": kind == "embeddings",
        "prompts_key": bool(prompts) and not texts and not answers,
        "prompt_column": texts,
        "image_column": texts and kind == "images",
        "text_column": kind == "texts",
        "image_encoder": kind == "images",
        "skip_broken": kind == "images" and given["weights"] is None,
        "text_encoder": texts or answers or kind == "texts",
        "long_texts": texts or answers or kind == "texts",
        "cache": texts or kind != "embeddings",
        "prompt_field": answers,
        "answer_field": answers,
        "model_field": answers,
        "strip_thinking": answers,
    }
    for name, used in needs.items():
        if given[name] is not None and not used:
            raise ValueError(f"--{name}: there is nothing here that it would act on.")
    if given["long_texts"] is not None and given["text_encoder"] is not None:
        raise ValueError("--long_texts is an option of all-MiniLM-L6-v2, not of --text_encoder.")


def sources(given: dict[str, Any], models: Mapping[str, Model]) -> dict[str, list[Any]]:
    """Every file that will be read, by the flag or the model that names it."""
    found: dict[str, list[Any]] = {
        f"--{name}": [given[name]]
        for name in ("bandwidths_from", "groups_file")
        if given[name] is not None
    }
    if given["weights"] is not None:
        one_file = files.expanded(given["weights"]).exists()
        found["--weights"] = [given["weights"]] if one_file else given["weights"].split(",")
    for name in ("output_texts", "prompt_texts"):
        if given.get(name) is not None:
            one_file = files.expanded(given[name]).exists()
            found[f"--{name}"] = [given[name]] if one_file else given[name].split(",")
    for name in ("image_encoder", "text_encoder"):
        if given[name] is not None:
            source = embedding.source_of(given[name])
            found[f"--{name}"] = [source] if source else []
    if given["cache"] is not None:
        found["--cache"] = [given["cache"]]
    if given["records"] is not None:
        return found | {"--records": list(records.record_files(_record_paths(given)))}
    for name, model in models.items():
        reader = f"the model {name}" if name else "this command"
        is_folder = model.kind == "images"
        found[reader] = items.pictures(model.path) if is_folder else [model.path]
        if model.prompts is not None:
            found.setdefault("--prompts", []).append(model.prompts)
    return found


class Inputs(NamedTuple):
    """What was read.

    `outputs` are embeddings `[n, d_x]` by model, `prompts` embeddings `[n, d_t]` by file, and
    `texts` what was embedded of a file of prompts; of records, both go by model. `described` has
    columns, pairing and encoders for JSON, one entry a model where they differ; `notes` are lines
    to print below the table. `items` are the texts, or paths of pictures, that were embedded as
    outputs, by model; `kept`, if broken ones are left out, the weight of each, 1 or 0.
    """

    outputs: dict[str, np.ndarray]
    prompts: dict[str, np.ndarray]
    texts: dict[str, list[str]]
    described: dict[str, Any]
    notes: list[str]
    items: Mapping[str, Sequence[Any]]
    kept: dict[str, np.ndarray]


def read(
    given: dict[str, Any],
    models: Mapping[str, Model],
    bar: progress.Progress,
    *,
    several: bool = False,
) -> Inputs:
    """Reads the files, pairs outputs with prompts, and embeds pictures and texts.

    Records must hold one model, or `several`. What an encoder prints goes to standard error:
    standard output is for the results.
    """
    with contextlib.redirect_stdout(sys.stderr):
        records_given = given["records"] is not None
        read = _read_records(given, bar, several) if records_given else _read(given, models, bar)
    _limit_threads(max(map(len, read.outputs.values())))
    return read


def _limit_threads(n: int) -> None:
    """Lets OpenBLAS use one thread for the eigenvalues of small matrices.

    Its threads wait for each other by spinning. On small matrices this costs more than it saves,
    and on cores that other programs use, many times more. OpenBLAS reads the variable when JAX
    loads SciPy's LAPACK, which is when the first eigenvalues are computed. What a user sets counts.
    """
    if n <= _ONE_THREAD:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _record_paths(given: dict[str, Any]) -> list[str]:
    one_file = files.expanded(given["records"]).exists()
    return [given["records"]] if one_file else given["records"].split(",")


def _read_records(given: dict[str, Any], bar: progress.Progress, several: bool) -> Inputs:
    """Answers and prompts of all models, each text embedded once; prompts go by their model."""
    names = ("prompt_field", "answer_field", "model_field", "strip_thinking")
    named = {name: given[name] for name in names if given[name] is not None}
    read = records.read_records(_record_paths(given), **named)
    if several != (len(read.answers) > 1):
        wanted = "at least two models" if several else "one model, or condvendi compare"
        received = ", ".join(read.answers)
        raise ValueError(f"--records: expected answers of {wanted}, received those of {received}.")
    for name, texts in read.answers.items():
        if texts == read.prompts[name]:
            raise ValueError(f"--records: the answers of {name} and their prompts are equal.")
    _warn_of_missing_prompts(read.counts)
    encoder = _load_encoder(given, "texts")
    embedded, notes = {}, []
    for role, texts in (("answers", read.answers), ("prompts", read.prompts)):
        together = [text for rows in texts.values() for text in rows]
        rows = _embed(together, encoder, "texts", given["cache"], bar, role)
        ends = np.cumsum([len(rows) for rows in texts.values()])
        embedded[role] = dict(zip(texts, np.split(rows, ends[:-1]), strict=True))
        fields = {field: field for field in read.fields[role]}
        notes.append(_embedded(role, encoder, fields, of="field"))
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
    rows = embedded["answers"], embedded["prompts"]
    return Inputs(*rows, read.prompts, described, notes, read.answers, {})


def _warn_of_missing_prompts(counts: Mapping[str, Mapping[str, int]]) -> None:
    """Warns of prompts that some models answer and others do not."""
    prompts = dict.fromkeys(prompt for of_model in counts.values() for prompt in of_model)
    absent = {p: name for name, found in counts.items() for p in prompts if p not in found}
    if absent:
        prompt, name = next(iter(absent.items()))
        validation.warn(
            f"{len(absent):,} of {len(prompts):,} prompts are not answered by all models: for "
            f"example, {name} has no answer to {prompt[:80]!r}."
        )


def _read(given: dict[str, Any], models: Mapping[str, Model], bar: progress.Progress) -> Inputs:
    (kind,) = {model.kind for model in models.values()}
    paths = dict.fromkeys(m.prompts for m in models.values() if m.prompts is not None)
    key, column = given["prompts_key"], given["prompt_column"]
    texts = {path: items.read_prompts(path, column=column) for path in paths if is_text(path)}
    prompts = {path: files.read_array(path, key=key) for path in paths if not is_text(path)}
    outputs, described = {}, {}
    for name, model in models.items():
        outputs[name], columns = _read_outputs(given, model, texts.get(model.prompts or ""))
        if paths and (texts or kind != "embeddings"):
            columns = {"paired_by": "order", **columns}
        for key, value in columns.items():
            described.setdefault(key, {})[name] = value
    used, notes, shown, kept = {}, [], {}, {}
    if kind != "embeddings":
        shown = dict(outputs)
        encoder = used[kind] = _load_encoder(given, kind)
        what = {"images": "pictures", "texts": "texts"}[kind]
        for name, found in outputs.items():
            if given["skip_broken"]:
                kept[name] = _decoded(found)
                found = [path for path, keep in zip(found, kept[name], strict=True) if keep]
            rows = _embed(found, encoder, kind, given["cache"], bar, what)
            # In the place of a broken picture, which has no weight, stands its neighbour's row.
            places = np.cumsum(kept[name]) if name in kept else np.arange(1, len(rows) + 1)
            outputs[name] = rows[np.maximum(places, 1) - 1]
        notes.append(_embedded(what, encoder, described.get("text_column", {})))
    if texts:
        encoder = used["texts"] = used.get("texts") or _load_encoder(given, "texts")
        columns = {path: found.column for path, found in texts.items() if found.column}
        for path, found in texts.items():
            prompts[path] = _embed(found.texts, encoder, "texts", given["cache"], bar, "prompts")
        notes.append(_embedded("prompts", encoder, columns))
        if columns:
            described["prompt_column"] = columns
    for name, model in models.items():
        if model.prompts is not None and np.array_equal(outputs[name], prompts[model.prompts]):
            raise ValueError(
                f"outputs{' of ' if name else ''}{name} and their prompts are equal in every row: "
                "give the outputs, and the prompts that they answer."
            )
    report = {
        key: _one_or_each(values, len(texts if key == "prompt_column" else models))
        for key, values in described.items()
    }
    for medium, encoder in used.items():
        name = f"{medium[:-1]}_encoder"
        report |= {name: encoder.name, f"{name}_path": encoder.spec}
    notes = ["; ".join(notes)] if notes else []
    if "paired_by" in report:
        notes.append(f"outputs paired with prompts by {_in_words(report['paired_by'])}")
    words = {path: found.texts for path, found in texts.items()}
    return Inputs(outputs, prompts, words, report, notes, shown, kept)


def _decoded(paths: Sequence[pathlib.Path]) -> np.ndarray:
    """1 for each picture that can be decoded and 0 for the others, `[n]`, which a warning names."""
    errors = {}
    for path in paths:
        try:
            items.decode_image(path.read_bytes(), name=str(path))
        except ValueError as error:
            errors[path] = str(error)
    if errors:
        validation.warn("\n".join(["left out, with their prompts:", *errors.values()]))
    return np.array([path not in errors for path in paths], int)


def _one_or_each(values: Mapping[str, str], count: int) -> Any:
    """The value that all `count` entries have in common, or else each entry's own."""
    shared = len(values) == count and len(set(values.values())) == 1
    return next(iter(values.values())) if shared else dict(values)


def _in_words(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ", ".join(f"{entry} ({name})" for name, entry in value.items())


def _embedded(
    what: str, encoder: LoadedEncoder, columns: Mapping[str, str], *, of: str = "column"
) -> str:
    """What was embedded, of which columns or fields and by which encoder."""
    names = ", ".join(map(repr, dict.fromkeys(columns.values())))
    where = f" ({of} {names})" if names else ""
    return f"{what}{where} embedded by {encoder.name}"


def _read_outputs(
    given: dict[str, Any], model: Model, prompts: Texts | None
) -> tuple[Any, dict[str, str]]:
    """A model's array, texts or paths of pictures; and its columns and pairing."""
    if model.kind == "embeddings":
        _refuse_one_array(given, model)
        return files.read_array(model.path, key=given["outputs_key"]), {}
    if model.kind == "images":
        images = items.list_images(model.path)
        column = None
        if prompts is not None:
            images, column = items.pair_images(prompts, images, column=given["image_column"])
            for one, two in zip(images, sorted(images), strict=True):
                if column is None and one != two:  # The prompts may be in the order of `sorted`.
                    return images, {"paired_by": f"order, {one.name} before {two.name}"}
        paired_by = {"image_column": column, "paired_by": f"image column {column!r}"}
        return images, paired_by if column is not None else {}
    texts = items.read_texts(model.path, column=given["text_column"])
    if prompts is not None:
        items.pair_texts(prompts, texts)
    return texts.texts, {"text_column": texts.column} if texts.column else {}


def _refuse_one_array(given: dict[str, Any], model: Model) -> None:
    """Raises ValueError where one array is both the outputs and the prompts."""
    if model.prompts is None or is_text(model.prompts):
        return
    keys = given["outputs_key"], given["prompts_key"]
    paths = files.expanded(model.path), files.expanded(model.prompts)
    # Where one key was not needed to read it, the file holds only one array.
    if not (keys[0] == keys[1] or None in keys) or not all(path.exists() for path in paths):
        return
    if os.path.samefile(*paths):
        raise ValueError(
            f"{model.path}: the same array is both the outputs and their prompts; give two files, "
            "or two keys with --outputs_key and --prompts_key."
        )


def _load_encoder(given: dict[str, Any], kind: str) -> LoadedEncoder:
    options = {}
    if kind == "texts" and given["long_texts"] is not None:
        options["long_texts"] = given["long_texts"]
    return embedding.load_encoder(given[f"{kind[:-1]}_encoder"], _default(kind), **options)


def _embed(
    items: Sequence[Any], encoder: LoadedEncoder, kind: Any, cache: str | None, bar: Any, what: str
) -> np.ndarray:
    """The embeddings of pictures or texts; those in the cache are not computed again."""
    task = bar.add_task(f"embedding {what}", total=len(items))
    return embedding.embed(
        items, encoder, kind=kind, cache=cache, progress=lambda count: bar.advance(task, count)
    )


def _default(kind: str) -> Callable[[], Any]:
    """What loads the shipped encoder."""
    return getattr(encoders, _ENCODERS[kind])
