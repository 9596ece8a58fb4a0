"""The inputs of every verb: arrays from files, or pictures and texts that are embedded."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from condvendi_jax import encoders
from condvendi_jax.base import checks, files
from condvendi_jax.base.tables import span
from condvendi_jax.cli import command, options
from condvendi_jax.cli.options import Options, Source, Target
from condvendi_jax.data import bandwidth
from condvendi_jax.data.bandwidth import RuledBandwidth
from condvendi_jax.data.similarities import Similarities
from condvendi_jax.encoders import embedding, pictures, similarity
from condvendi_jax.encoders.embedding import LoadedEncoder
from condvendi_jax.encoders.named import PREFIXES
from condvendi_jax.inference import texts as texts_of
from condvendi_jax.records import items
from condvendi_jax.records import reading as records
from condvendi_jax.records.files import RECORD_ENDINGS, ending, record_files
from condvendi_jax.records.record import WEIGHT_FIELD

_RECORD_FIELDS = ("prompt_field", "answer_field", "model_field", "strip_thinking", "batch_field")


class Model(NamedTuple):
    """The outputs of a model and their prompts, as the command line names them."""

    kind: str  # `embeddings`, `images`, `texts` or `records`.
    path: str  # Of records without a name: they may be those of several models.
    prompts: str | None = None  # An array file, a file of texts, or the folder of the pictures.
    name: str | None = None


def is_text(path: str) -> bool:
    """Whether a path has an ending of files of texts."""
    return ending(pathlib.Path(path)) in items.TEXT_ENDINGS


def models_of(words: Sequence[str], given: Options) -> dict[str, Model]:
    """The models that the words of a command line name, after `check`, by name.

    Files of records hold answers, and prompts or their ids.
    """
    named = [(word, *_split(word)) for word in words]
    paths = [path for *_, path in named]
    unnamed = [path for _, name, path in named if name is None]
    if paths and _hold(paths, given):
        names = [word if name is None else name for word, name, _ in named]
        kinds = ["records"] * len(paths)
    elif not paths or (len(paths) > 1 and not given.several):
        wanted = "models" if given.several else "one model"
        raise ValueError(
            f"expected {wanted}, each a file or the folder of its pictures, received {len(paths)}. "
            "condvendi compare takes several; prompts are given as --prompts=FILE; --help has more."
        )
    else:
        short = iter(files.names_of(unnamed))
        names = [next(short) if name is None else name for _, name, _ in named]
        names = names if given.several else [""] * len(names)
        kinds = list(map(_kind_of, paths))
    joined = "records" in kinds  # To the ids of the records.
    prompts = {} if joined else given.prompts_of(names)
    shared = None if joined else given.prompts
    models: dict[str, Model] = {}
    for kind, model, (_, name, path) in zip(kinds, names, named, strict=True):
        if model in models:
            raise ValueError(
                f"{model!r} names both {models[model].path} and {path}; give names, as name=path."
            )
        models[model] = Model(kind, path, prompts.get(model, shared), name)
    if len({pathlib.Path(path).stem for path in unnamed}) < len(unnamed):
        _note(given, f"files share a name, so paths name models: for others write a={unnamed[0]}")
    _check(given, models)
    return models


def _note(given: Options, words: str) -> None:
    if not given.verbose:  # Else the notes below the table are printed.
        sys.stderr.write(f"note: {command.escaped(words)}.\n")


def _kind_of(path: str) -> str:
    place = files.expanded(path)
    if not place.suffix and not place.exists():
        raise ValueError(f"{path}: there is no such file or folder.")
    return "images" if place.is_dir() else "texts" if is_text(path) else "embeddings"


def _split(word: str) -> tuple[str | None, str]:
    """The name that a word gives to a model, None if it gives none, and the path."""
    name, equals, path = word.partition("=")
    if files.expanded(word).exists() or not equals or "/" in name:
        name, path = None, word
    if name == "" or not path:
        raise ValueError(f"{word!r}: expected a path, or name=path.")
    return name, path


def _hold(paths: Sequence[str], given: Options) -> bool:
    if given.prompts is not None:  # The prompts of answers with ids, or of texts in their order.
        return all(map(records.known_by, paths))
    endings = {ending(pathlib.Path(path)) for path in paths}
    named = given.is_set(*_RECORD_FIELDS) and endings <= {*RECORD_ENDINGS}
    return named or all(map(records.holds_records, paths))


def _check(given: Options, models: Mapping[str, Model]) -> None:
    """Sets the precision, and refuses what cannot work, before anything is read."""
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
    texts, paired = any(map(is_text, prompts)), answers or bool(prompts)
    if texts and not all(map(is_text, prompts)):
        raise ValueError(
            f"--prompts: expected texts for all models, or embeddings for all, received "
            f"{', '.join(prompts)}."
        )
    if given.quality_field is not None and given.at_least is None:
        raise ValueError("--quality_field: expected --at_least, from which an answer is good.")
    spectral = given.order != (2.0,) or given.truncation is not None
    by_name = any(f"{e}".startswith(PREFIXES) for e in (given.image_encoder, given.text_encoder))
    embedded = not given.is_set("similarity", "class_field")
    read_as_texts = texts or kind == "texts" or answers
    for flags, has_effect in {
        "outputs_key": kind == "embeddings",
        "prompts_key": paired and not texts and not answers,
        "prompt_column": texts,
        "image_column": texts and kind == "images",
        "text_column": kind == "texts",
        "image_encoder": kind == "images" and embedded,
        "text_encoder long_texts": read_as_texts and embedded,
        "encoder_device encoder_batch_size": by_name,
        "cache": texts or kind != "embeddings",
        " ".join(_RECORD_FIELDS): answers,
        "prompts": not answers,
        "similarity": kind != "embeddings",
        "class_field quality_field": answers,
        "kernel rule": embedded,
        "prompt_bandwidth equal_prompts similar_prompts": paired and embedded,
        "output_bandwidth prompt_bandwidth profile": given.kernel == "gaussian" and embedded,
        "at_least draws": given.quality_field is not None,
        "rule": None in given.kernels(paired=paired).values(),
        "method": spectral,  # Order 2 has no spectrum, and is exact.
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
    """Every file that will be read, by the flag or the model that names it."""
    sources = given.paths(Source).items()
    read: dict[str, list[Any]] = {flag: options.paths_in(value) for flag, value in sources}
    for name, (kind, path, *_) in models.items():
        reader = f"the model {name}" if len(models) > 1 else "this command"
        read[reader] = list(record_files(path)) if kind == "records" else [path]
    return read


class Inputs(NamedTuple):
    """The arrays that were read, `[n, d_x]` and `[n, d_t]` by model, and what to say about them."""

    outputs: dict[str, Any]  # Arrays, or `Similarities`, which have the prompts.
    prompts: dict[str, np.ndarray]
    texts: dict[str, list[str]]  # Of prompts.
    described: dict[str, Any]  # For JSON.
    notes: list[str]
    items: Mapping[str, Sequence[Any]]  # The texts or pictures of outputs.
    shared: bool = False  # Whether all models have the rows of one file of prompts.
    bandwidth: RuledBandwidth | None = None  # Of the encoder of outputs, from people's judgements.
    weights: Mapping[str, Sequence[float]] | None = None
    quality: Mapping[str, Sequence[float]] | None = None
    batches: Mapping[str, Sequence[str]] | None = None
    started: float = 0.0  # When they were first read, by `time.perf_counter`.

    def settings(self, given: Options) -> dict[str, Any]:
        """The arguments that `evaluate` and, for several models, `compare` take."""
        kernels = given.kernels(paired=bool(self.prompts))
        weights = given.of_rows("weights", files.read_weights)

        def of_models(rows: Any) -> Any:
            return rows if given.several or rows is None else np.array(next(iter(rows.values())))

        return {
            "output_kernel": kernels["outputs"] or (None if given.rule else self.bandwidth),
            "prompt_kernel": kernels.get("prompts"),
            "rule": given.rule or bandwidth.AUTO,
            "similar_prompts": given.similar_prompts,
            "orders": list(given.order),
            # Answers with probabilities are a distribution, not a sample of one.
            "unbiased": self.weights is None,
            "truncation": given.truncation,
            "method": given.chosen_method(),
            "groups": given.of_rows("groups_file", files.read_labels),
            "weights": of_models(self.weights) if weights is None else weights,
            "quality": of_models(self.quality),
            "batches": of_models(self.batches),
            "at_least": given.at_least,
            "draws": given.draws,
            "seed": given.seed,
        }

    def encoders(self) -> str | None:
        """The names of the encoders that were used, in words."""
        kinds = {"image_encoder": "pictures", "text_encoder": "texts"}
        named = [
            f"{self.described[k]} ({what})" for k, what in kinds.items() if k in self.described
        ]
        return " and ".join(named) or None


def read(given: Options, models: Mapping[str, Model], bar: Any) -> Inputs:
    """Reads the files, pairs outputs with prompts, and embeds pictures and texts.

    What an encoder prints goes to standard error.
    """
    kinds, started = [kind for kind, *_ in models.values()], time.perf_counter()
    asked = {model.prompts for model in models.values() if model.prompts is not None}
    media = {kind: "texts" if kind == "records" else kind for kind in kinds if kind != "embeddings"}
    media |= {"prompts": "texts"} if any(map(is_text, asked)) else {}
    with contextlib.redirect_stdout(sys.stderr):
        # Before anything is read, as a package or the weights may be missing.
        used = {}
        if given.similarity:
            used["similarity"] = similarity.as_loaded(given.similarity)
        elif not given.class_field:
            used = {medium: _load_encoder(given, medium) for medium in media.values()}
        if "records" in kinds:
            read = _read_records(given, models, used, bar)
        else:
            read = _read(given, models, used, bar)
    for name, outputs in read.outputs.items():
        prompts, of_model = read.prompts.get(name, ()), f"outputs{' of ' if name else ''}{name}"
        if np.array_equal(outputs, prompts):
            raise ValueError(
                f"{of_model} and their prompts are equal in every row: give the outputs, and the "
                "prompts that they answer."
            )
    command.use_threads(max(map(len, read.outputs.values())))
    flags = ("outputs_key", "prompts_key", "prompts", "weights", "class_field")
    described: dict[str, Any] = {f: getattr(given, f) for f in flags if given.is_set(f)}
    if "records" in kinds:
        described["records"] = ",".join(models)
    elif given.several:
        described["models"] = {name: model.path for name, model in models.items()}
        described["prompts"] = given.prompts_of(list(models)) or given.prompts
    else:
        described["outputs"] = models[""].path
    described |= read.described
    for medium, encoder in used.items():
        described |= encoder.described(medium)
    return read._replace(described=described, started=started)


def _read_records(
    given: Options, models: Mapping[str, Model], used: Mapping[str, LoadedEncoder], bar: Any
) -> Inputs:
    """Answers and prompts of all models, each text embedded once; prompts go by their model."""
    fields: dict[str, Any] = {f: getattr(given, f) for f in _RECORD_FIELDS if given.is_set(f)}
    paths = [model.path for model in models.values()]
    names = {model.path: model.name for model in models.values() if model.name}
    beside = [field for field in (given.class_field, given.quality_field) if field]
    read = records.read_records(paths, names=names, beside=beside, **fields)
    if len(read.answers) > 1 and not given.several:
        raise ValueError(
            "expected answers of one model, or condvendi compare, received those of "
            f"{', '.join(read.answers)}."
        )
    encoder, notes = used.get("texts"), []
    prompts: dict[str, Any] = {}
    if classes := read.beside.get(given.class_field or ""):
        name, make = f"classes in {given.class_field!r}", Similarities.from_classes
        answers = {m: make(of, read.prompts[m], name=name) for m, of in classes.items()}
    elif encoder is None:
        answers = _compared(given, read.answers, read.prompts, used, bar)
    else:
        answers = _embed(read.answers, encoder, "texts", given, bar, "answers")
        notes = [_embedded("answers", encoder, "field", read.fields["answers"])]
    if encoder and read.by_id:  # Ids are equal or different, and have no meaning.
        prompts = dict(read.prompts)
    elif encoder:
        prompts = _embed(read.prompts, encoder, "texts", given, bar, "prompts")
        notes.append(_embedded("prompts", encoder, "field", read.fields["prompts"]))
    notes = [*filter(None, ["; ".join(notes)]), *read.notes]
    counted = {}
    for name, counts in read.counts.items():
        n, least, most = len(read.answers[name]), min(counts.values()), max(counts.values())
        counted[name] = {"n": n, "prompts": len(counts), "least": least, "most": most}
        each = span(counts.values())
        notes.append(f"{name}: {n:,} answers, {len(counts):,} prompts, {each} answers a prompt")
    described = {"answers": counted, "fields": read.fields, "skipped": [*map(str, read.skipped)]}
    if read.by_id:
        _note(given, "ids stand for prompts, as equal or different")
    if records.ASKED_ONCE in read.notes:
        _note(given, records.ASKED_ONCE)
    if read.weights:
        _note(given, f"answers are weighed by their {WEIGHT_FIELD!r}")
    with checks.naming("--quality_field"):
        rated = read.beside.get(given.quality_field or "", {})
        quality = {name: np.asarray(of, np.float64) for name, of in rated.items()} or None
    beside: Any = {"weights": read.weights, "quality": quality, "batches": read.batches}
    beside["bandwidth"] = texts_of.judged(encoder)
    return Inputs(answers, prompts, read.prompts, described, notes, read.answers, **beside)


def _compared(
    given: Options,
    outputs: Mapping[str, Sequence[Any]],
    prompts: Mapping[str, Sequence[str]],
    used: Mapping[str, LoadedEncoder],
    bar: Any,
) -> dict[str, Similarities]:
    """The outputs of each model with their similarities by a function."""
    task = bar.add_task("comparing outputs", total=None)
    how: Any = {"across": False, "cache": given.cache}
    how["progress"] = lambda done, total: bar.update(task, completed=done, total=total)
    return texts_of.compare_pairs(used["similarity"], outputs, prompts or None, **how)


def _read(
    given: Options, models: Mapping[str, Model], used: Mapping[str, LoadedEncoder], bar: Any
) -> Inputs:
    (kind,) = {model.kind for model in models.values()}
    paths = dict.fromkeys(m.prompts for m in models.values() if m.prompts is not None)
    texts_in = functools.partial(items.read_prompts, column=given.prompt_column)
    tables = {path: texts_in(path) for path in paths if is_text(path)}
    arrays = {p: files.read_array(p, key=given.prompts_key) for p in paths if p not in tables}
    outputs, prompts, texts, rows, described = {}, {}, {}, {}, {}
    for name, model in models.items():
        table = tables.get(model.prompts or "")
        outputs[name], columns, rows[name] = _read_outputs(given, model, table)
        if table is not None:
            texts[name] = [table.texts[row] for row in rows[name] or range(len(table.texts))]
            columns |= {"prompt_column": table.column} if table.column else {}
        elif model.prompts is not None:
            prompts[name] = arrays[model.prompts]
        if paths and (tables or kind != "embeddings"):
            columns = {"paired_by": "order", **columns}
        for key, value in columns.items():
            described.setdefault(key, {})[name] = value
    notes, shown = [], {}
    if kind != "embeddings":
        shown = dict(outputs)
        what = {"images": "pictures", "texts": "texts"}[kind]
        columns = described.get("text_column", {}).values()
        if kind in used:
            outputs = _embed(shown, used[kind], kind, given, bar, what)
            notes.append(_embedded(what, used[kind], "column", columns))
        else:
            outputs, prompts = _compared(given, shown, {**prompts, **texts}, used, bar), {}
    if texts and "texts" in used:
        prompts = _embed(texts, used["texts"], "texts", given, bar, "prompts")
        columns = described.get("prompt_column", {}).values()
        notes.append(_embedded("prompts", used["texts"], "column", columns))
    report = {key: _one_or_each(values, len(models)) for key, values in described.items()}
    notes = ["; ".join(notes)] if notes else []
    if paired_by := report.get("paired_by"):
        if not isinstance(paired_by, str):
            paired_by = ", ".join(f"{entry} ({name})" for name, entry in paired_by.items())
        notes.append(f"outputs paired with prompts by {paired_by}")
        if any(rows.values()):  # Else nobody asked for it.
            _note(given, notes[-1])
    shared = len(paths) == 1 and not any(rows.values())
    judged = texts_of.judged(used.get(kind))
    return Inputs(outputs, prompts, texts, report, notes, shown, shared, judged)


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
) -> tuple[Any, dict[str, str], Sequence[int]]:
    """A model's array, texts or paths of pictures; its columns; and, if need be, prompts' rows."""
    if model.kind == "embeddings":
        return files.read_array(model.path, key=given.outputs_key), {}, ()
    if model.kind == "images":
        images = items.list_images(model.path, below=prompts is not None)
        if prompts is None:
            for found in sorted(images[0].parent.glob("metadata.*")):
                checks.warn(f"{found} is not read; if it has the prompts, pass --prompts={found}.")
            return images, {}, ()
        images, rows, column, how = items.pair_images(prompts, images, column=given.image_column)
        for one, two in zip(images, sorted(images), strict=True):
            if how == "order" and one != two:  # The prompts may be in the order of `sorted`.
                how = f"order, {one.name} before {two.name}"
        columns = {"paired_by": how} | ({"image_column": column} if column else {})
        return images, columns, () if rows == [*range(len(prompts.texts))] else rows
    try:
        texts = items.read_texts(model.path, column=given.text_column)
    except ValueError as error:
        if records.holds_records(model.path):
            error.add_note(
                "It holds prompts with their answers: name such files alone, without --prompts."
            )
        raise
    if prompts is not None:
        items.pair_texts(prompts, texts)
    return texts.texts, {"text_column": texts.column} if texts.column else {}, ()


def _load_encoder(given: Options, kind: str) -> LoadedEncoder:
    named = {"kind": kind, "device": given.encoder_device, "batch_size": given.encoder_batch_size}
    if kind == "images":
        pictures.pillow()
        return embedding.load_encoder(given.image_encoder, encoders.load_efficientnet, named=named)
    more = {} if given.long_texts is None else {"long_texts": given.long_texts}
    return embedding.load_encoder(given.text_encoder, encoders.load_minilm, named=named, **more)


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
    how: Any = {"kind": kind, "cache": given.cache}
    how["progress"] = lambda done: bar.update(task, completed=done)
    rows = embedding.embed(together, encoder, **how)
    ends = np.cumsum([len(items) for items in named.values()])
    return dict(zip(named, np.split(rows, ends[:-1]), strict=True))
