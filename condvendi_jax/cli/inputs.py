"""The inputs of every verb: what files hold, as a `Dataset`."""

import contextlib
import functools
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from condvendi_jax import encoders
from condvendi_jax.base import checks, files
from condvendi_jax.base.tables import span
from condvendi_jax.cli import command, flags
from condvendi_jax.cli.options import Options, Source, Target, paths_in
from condvendi_jax.data import bandwidth, pairs
from condvendi_jax.data.kernels import is_equality
from condvendi_jax.data.similarities import Similarities
from condvendi_jax.encoders import embedding, pictures, similarity
from condvendi_jax.encoders.named import PREFIXES
from condvendi_jax.inference import leaderboards
from condvendi_jax.inference.datasets import Dataset, compare_pairs
from condvendi_jax.inference.evaluations import Keys
from condvendi_jax.records import items
from condvendi_jax.records import reading as records
from condvendi_jax.records.files import RECORD_ENDINGS, ending, misfit, read_rows, record_files
from condvendi_jax.records.formats import BESIDE, WEIGHT_FIELD
from condvendi_jax.records.record import Fields, values

_OUTPUTS = {"embeddings": "outputs", "images": "pictures", "texts": "texts", "records": "answers"}
_Used = dict[str, tuple[embedding.LoadedEncoder, str]]  # By role, the encoder and what it embeds.
# What was read, what describes it in JSON, and whether models share the rows of one prompt file.
_Held = tuple[records.Records, dict[str, Any], bool]
_REPEAT = "has no effect, as prompts repeat: equal ones are the same, others differ; leave it out"
_OF_RECORDS = ("level", "equal_ratio", "one_population")
_WRITTEN = ("csv", "csv_pairs", "json", "latex", "latex_details", "overwrite", "verbose")
_RECORD_FIELDS = ("prompt_field", "answer_field", "model_field", "clean", "batch_field")


class Model(NamedTuple):
    """The outputs of a model and their prompts, as the command line names them."""

    kind: str  # `embeddings`, `images`, `texts` or `records`.
    path: str  # Of records without a name: they may be those of several models.
    prompts: str | None = None  # An array file, a file of texts, or the folder of the pictures.
    name: str | None = None
    sources: Sequence[Any] = ()  # The files that are read for its outputs.


def is_text(path: str) -> bool:
    """Whether a path has an ending of files of texts, or is a folder of pictures."""
    is_folder = bool(path) and files.expanded(path).is_dir()
    return is_folder or ending(pathlib.Path(path)) in items.TEXT_ENDINGS


def models_of(words: Sequence[str], given: Options) -> dict[str, Model]:
    """The models that the words of a command line name, after `_check`, by name."""
    named = [*map(_split, words)]
    paths = [path for _, path in named]
    unnamed = [path for name, path in named if name is None]
    if scores := [path for path in paths if leaderboards.record_in(path)]:
        raise ValueError(f"{scores[0]}: is a record of scores, which condvendi compare takes.")
    answers = bool(paths) and _hold(paths, given)
    several = answers or given.several
    if not paths or (len(paths) > 1 and not several):
        wanted = "models" if given.several else "one model"
        raise ValueError(
            f"expected {wanted}, each a file or the folder of its pictures, received {len(paths)}. "
            "condvendi compare takes several; prompts are given as --prompts=FILE; --help has more."
        )
    short = iter(unnamed if answers else files.names_of(unnamed))
    names = [(name or next(short)) if several else "" for name, _ in named]
    # Those beside records are joined to their ids.
    prompts, shared = ({}, None) if answers else (given.prompts_of(names), given.prompts)
    if not answers and given.prompts is None and all(map(items.are_described, paths)):
        prompts = dict(zip(names, paths, strict=True))
        _note(given, f"prompts are those of the files metadata in {', '.join(paths)}")
    models: dict[str, Model] = {}
    for model, (name, path) in zip(names, named, strict=True):
        if model in models:
            two = f"{model!r} names both {models[model].path} and {path}; give names, as name=path"
            once = f"{path}: is given twice; leave one out"
            raise ValueError(f"{once if path == models[model].path else two}.")
        kind = "records" if answers else _kind_of(path)
        sources = [*record_files(path, _fields(given))] if answers else [path]
        models[model] = Model(kind, path, prompts.get(model, shared), name, sources)
    if len({pathlib.Path(path).stem for path in unnamed}) < len(unnamed):
        _note(given, f"files share a name, so paths name models: for others write a={unnamed[0]}")
    _check(given, models)
    return models


def records_of_scores(words: Sequence[str], given: Options) -> "Inputs | None":
    """The records of scores that the words name, by model in `rows`; None where none is one."""
    started, rows = time.perf_counter(), dict[str, Any]()
    read = [(name, path, leaderboards.record_in(path)) for name, path in map(_split, words)]
    if not any(record for *_, record in read):
        return None
    for name, path, record in read:
        if record is None:
            raise ValueError(f"{path}: is no record of scores, as others of these files are.")
        said = getattr(record.get("model_info"), "get", lambda _: None)("id")
        model = name or str(said or "").strip().removeprefix("unknown/")
        if model in rows or not model:
            why = f"a second record of {model!r}" if model else "a record without model_info.id"
            raise ValueError(f"{path}: {why}; name it, other={path}.")
        rows[model] = record
    names = [field.name for field, *_ in flags.fields(type(given))]
    if further := [f for f in names if f not in _OF_RECORDS + _WRITTEN and given.is_set(f)]:
        raise ValueError(f"--{further[0]}: has no effect on records of scores; leave it out.")
    paths, how = [path for _, path, _ in read], {f: getattr(given, f) for f in _OF_RECORDS}
    files.check_targets(given.paths(Target), {"compare": paths}, overwrite=given.overwrite)
    return Inputs(Dataset({}), rows, how, {"records": paths}, [], started)


def _note(given: Options, words: str) -> None:
    if not given.verbose:  # Else the notes below the table are printed.
        sys.stderr.write(f"note: {command.escaped(words)}.\n")


def _kind_of(path: str) -> str:
    place = files.expanded(path)
    if not place.suffix and not place.exists():
        piped = " Save what comes from a pipe as a file: ... > x.jsonl." * (path == "-")
        raise ValueError(f"{path}: there is no such file or folder.{piped}")
    return "images" if place.is_dir() else "texts" if is_text(path) else "embeddings"


def _fields(given: Options) -> Fields:
    return Fields(given.prompt_field, given.answer_field, given.model_field, given.batch_field)


def _split(word: str) -> tuple[str | None, str]:
    """The name that a word gives to a model, None if it gives none, and the path."""
    name, equals, path = word.partition("=")
    if files.expanded(word).exists() or not equals or "/" in name:
        name, path = None, word
    if name == "" or not path:
        raise ValueError(f"{word!r}: expected a path, or name=path.")
    return name, path


def _hold(paths: Sequence[str], given: Options) -> bool:
    """Whether all paths are of records; ValueError, with the reason, where only some are."""
    if given.prompts is not None:  # The prompts of answers with ids, or of texts in their order.
        return all(map(records.known_by, paths))
    endings = {ending(pathlib.Path(path)) for path in paths}
    if given.is_set(*_RECORD_FIELDS) and endings <= {*RECORD_ENDINGS}:
        return True
    if all(map(items.are_described, paths)):
        return False
    why = {path: misfit(path, _fields(given)) for path in paths}
    good, wrong = [p for p in paths if not why[p]], [p for p in paths if why[p]]
    if good and wrong:
        raise ValueError(f"{wrong[0]}: is no file of records, as {good[0]} is: {why[wrong[0]]}")
    return not wrong


def _check(given: Options, models: Mapping[str, Model]) -> None:
    """Sets the precision, and refuses what cannot work, before anything is read."""
    kinds = {model.kind: name for name, model in models.items()}
    if len(kinds) > 1:
        named = [f"{kind} of {name} ({models[name].path})" for kind, name in kinds.items()]
        raise ValueError(f"expected outputs of one kind, received {' and '.join(named[:2])}.")
    (kind,) = kinds
    prompts = [model.prompts for model in models.values() if model.prompts is not None]
    answers = kind == "records"
    texts, paired = any(map(is_text, prompts)), answers or bool(prompts)
    if texts and not all(map(is_text, prompts)):
        wanted = "expected texts for all models, or embeddings for all"
        raise ValueError(f"--prompts: {wanted}, received {', '.join(prompts)}.")
    if given.quality_field is not None and given.at_least is None:
        raise ValueError("--quality_field: expected --at_least, from which an answer is good.")
    encoders = {e for v in given.views().values() for e in (v.image_encoder, v.text_encoder)}
    compared = {view.similarity for view in given.views().values()}
    embedded = any(encoders) or not given.is_set("similarity", "class_field")
    why = "has no effect on these inputs beside the other flags; leave it out, or see --help"
    for names, has_effect in {
        "outputs_key": kind == "embeddings",
        "prompts_key": paired and not texts and not answers,
        "prompt_column": texts,
        "image_column": texts and kind == "images",
        "text_column": kind == "texts",
        "image_encoder": kind == "images" and embedded,
        "text_encoder long_texts": (texts or kind == "texts" or answers) and embedded,
        "encoder_device encoder_batch_size": any(f"{e}".startswith(PREFIXES) for e in encoders),
        "cache": texts or kind != "embeddings",
        " ".join(_RECORD_FIELDS) + " class_field quality_field": answers,
        "similarity": kind != "embeddings",
        "kernel rule": embedded,
        "prompt_bandwidth equal_prompts similar_prompts": paired and embedded,
        "output_bandwidth prompt_bandwidth profile": given.kernel == "gaussian" and embedded,
        "at_least draws": given.quality_field is not None,
        "rule": None in given.kernels(paired=paired).values(),
        "method": given.order != (2.0,) or given.truncation is not None,  # Order 2 is exact.
    }.items():
        for flag in filter(given.is_set, names.split()):
            if not has_effect:
                raise ValueError(f"--{flag}={getattr(given, flag)}: {why}.")
    if "calls" in compared and not given.is_set("answer_field", "text_column"):
        raise ValueError("--similarity=calls: name the field of calls: --answer_field=tool_calls.")
    if given.cache is not None and files.expanded(given.cache).is_file():
        raise ValueError(f"--cache={given.cache}: is a file; expected a folder, there or to be.")
    _check_targets(given, models)
    jax.config.update("jax_enable_x64", given.x64)


def _check_targets(given: Options, models: Mapping[str, Model], names: Sequence[str] = ()) -> None:
    """Refuses targets, also the records of `names`, that would replace a file that is read."""
    read: dict[str, Sequence[Any]] = {flag: paths_in(v) for flag, v in given.paths(Source).items()}
    for name, (*_, paths) in models.items():
        beside = [f"{p}".replace("display_predictions.json", n) for p in paths for n in BESIDE]
        read[f"the model {name}" if len(models) > 1 else "this command"] = [*paths, *beside]
    encoders = [e for v in given.views().values() for e in (v.image_encoder, v.text_encoder) if e]
    parts = [e.partition(mark)[2] for e in encoders for mark in (":", "/", "local-dir:")]
    read["the encoder"] = [p for p in parts if p and files.expanded(p).exists()]  # By name.
    modules = [getattr(module, "__file__", None) for module in [*sys.modules.values()]]
    read["Python"] = [f for f in modules * given.overwrite if isinstance(f, str)]  # Else all stay.
    records = {f"--record of {name}": path for name, path in given.record_files(names).items()}
    files.check_targets(given.paths(Target) | records, read, overwrite=given.overwrite)


class Inputs(NamedTuple):
    """What was read, how it is compared, and what to say about it."""

    dataset: Dataset
    rows: dict[str, Any]  # The weights, batches and groups of rows, and how they are compared.
    settings: dict[str, Any]  # The arguments that `evaluate` and `compare` take beside pairs.
    described: dict[str, Any]  # For JSON.
    notes: list[str]
    started: float  # When they were first read, by `time.perf_counter`.
    held: _Held | None = None

    def pairs(self) -> dict[str, Any]:
        """The `Pairs` of each model; what an encoder prints goes to standard error."""
        with contextlib.redirect_stdout(sys.stderr):
            made = self.dataset.pairs(**self.rows, progress=self.settings["progress"])
        fixed = self.rows["output_kernel"] and self.rows["rule"] != bandwidth.AUTO
        if fixed and all(is_equality(p.kernels[-1]) for p in made.values()):
            raise ValueError(f"--rule={self.rows['rule']}: {_REPEAT}.")
        return made

    def encoders(self) -> str | None:
        """The names of the encoders that were used, in words."""
        kinds, named = {"image_encoder": "pictures", "text_encoder": "texts"}, self.described
        return " and ".join(f"{named[k]} ({kinds[k]})" for k in kinds if k in named) or None


def read(given: Options, models: Mapping[str, Model], bar: Any, before: Any = None) -> Inputs:
    """Reads the files, unless they were read `before`, and pairs outputs with prompts."""
    start, (kind,) = time.perf_counter(), {model.kind for model in models.values()}
    used = _load_encoders(given, models, kind)
    reading = _read_records if kind == "records" else _read
    held, described, shared = kept = before.held if before else reading(given, models)
    _check_targets(given, models, [*held.answers] * given.several)  # Now all names are known.
    noun = {"outputs": _OUTPUTS[kind], "prompts": "prompts"}
    if not (given.similarity or given.class_field):
        _refuse_equal(held)
    if held.by_id:
        used.pop("prompts", None)  # Ids are equal or different, and have no meaning.
    command.use_threads(max(map(len, held.answers.values())))
    outputs = held.answers if given.several else {"": _of_models(given, held.answers)}
    prompts = next(iter(held.prompts.values())) if shared else _of_models(given, held.prompts)
    embed = {r: functools.partial(_embed, *used[r], noun[r], given, bar) for r in noun if r in used}
    compare, encoder = _comparison(given, held, used, bar), used.get("outputs", [None])[0]
    fields, runs = held.fields if kind == "records" else {}, given.similarity == "calls"
    cut = held.cut if given.several else {"": [line for some in held.cut.values() for line in some]}
    dataset = Dataset(outputs, prompts, embed, compare, encoder, held.summary, fields, runs, cut)
    dataset = dataset.matched(refuse=held.by_id)
    if kind == "texts":
        dataset = dataset.cleaned(given.clean)
    rows = _rows(given, held, paired=bool(held.prompts) and dataset.compare is None)
    if dataset.compare:  # Which has a kernel of its own, also beside encoders.
        rows |= {"output_kernel": None, "prompt_kernel": None, "similar_prompts": False}
    embedded = dataset.embedded(rows["prompt_kernel"], given.similar_prompts)
    if given.long_texts and not (dataset.compare or "texts" in (used[r][1] for r in embedded)):
        raise ValueError(f"--long_texts={given.long_texts}: {_REPEAT}.")
    words, names = [], {"outputs": held.fields["answers"], "prompts": held.fields["prompts"]}
    for role in embedded:
        named = ", ".join(map(repr, names[role]))
        where = f" ({'field' if kind == 'records' else 'column'} {named})" if named else ""
        words.append(f"{noun[role]}{where} embedded by {used[role][0].name}")
    files_of = ("outputs_key", "prompts_key", "prompts", "weights", "class_field")
    described = {f: getattr(given, f) for f in files_of if given.is_set(f)} | described
    for encoder, content in [used[role] for role in used if role in (*embedded, "similarity")]:
        described |= encoder.described(content)
    notes = [*filter(None, ["; ".join(words)]), *held.notes]
    return Inputs(dataset, rows, _settings(given, held, models, bar), described, notes, start, kept)


def _of_models(given: Options, by_model: Mapping[str, Any] | None) -> Any:
    """What is known of the rows of each model, or of the only one; None if nothing is."""
    return by_model or None if given.several else next(iter((by_model or {}).values()), None)


def _rows(given: Options, held: records.Records, *, paired: bool) -> dict[str, Any]:
    """How rows are compared, and what is known of them: the arguments of `Dataset.pairs`."""
    kernels, weights = given.kernels(paired=paired), given.of_rows("weights", files.read_weights)
    how: Any = {"rule": given.rule or bandwidth.AUTO, "similar_prompts": given.similar_prompts}
    how |= {"output_kernel": kernels["outputs"], "prompt_kernel": kernels.get("prompts")}
    how["weights"] = _of_models(given, held.weights) if weights is None else weights
    how["groups"] = given.of_rows("groups_file", files.read_labels)
    return how | {"key": Keys(given.seed).rule, "batches": _of_models(given, held.batches)}


def _not_rated(field: str, models: Mapping[str, Model]) -> str | None:
    """What is wrong with the first line whose field holds neither a number nor a list of them."""
    for path in record_files(model.path for model in models.values()):
        for line, row in read_rows(path):
            try:
                np.asarray(held := values(row, field), np.float64)
            except (TypeError, ValueError):
                received = f"--quality_field={field} expects a number, received {held[0]!r:.80}"
                return f"{path}, line {line}: {received}; correct it, or remove the field."


def _settings(given: Options, read: records.Records, models: Any, bar: Any) -> dict[str, Any]:
    rated = read.beside.get(field := given.quality_field or "", {}).items()
    try:
        quality = {name: np.asarray(of_model, np.float64) for name, of_model in rated}
    except (TypeError, ValueError) as error:
        raise ValueError(_not_rated(field, models) or f"--quality_field: {error}") from error
    # After the tasks of encoders, as the last one is shown.
    task = functools.cache(lambda: bar.add_task("scores", total=None))
    settings = {n: getattr(given, n) for n in ("truncation", "at_least", "draws", "seed")}
    settings |= {"orders": list(given.order), "method": given.chosen_method()}
    # Probabilities are a distribution, not a sample of one.
    settings |= {"unbiased": read.weights is None, "quality": _of_models(given, quality)}
    return settings | {"progress": lambda words: bar.update(task(), description=words)}


def _load_encoders(given: Options, models: Mapping[str, Model], kind: str) -> _Used:
    """Loads the encoders, before anything is read, as a package may be missing."""
    kinds = {} if kind == "embeddings" else {"outputs": kind.replace("records", "texts")}
    if kind == "records" or any(is_text(model.prompts or "") for model in models.values()):
        kinds["prompts"] = "texts"
    with contextlib.redirect_stdout(sys.stderr):
        if given.similarity:
            return {"similarity": (similarity.as_loaded(given.similarity), "similarity")}
        if given.class_field:
            return {}
        loaded = {what: _load_encoder(given, what) for what in dict.fromkeys(kinds.values())}
    return {role: (loaded[what], what) for role, what in kinds.items()}


def _refuse_equal(held: records.Records) -> None:
    for name, outputs in held.answers.items():
        prompts = held.prompts.get(name, ())
        texts = isinstance(outputs, list) and isinstance(prompts, list)
        if outputs == prompts if texts else np.array_equal(outputs, prompts):
            both = f"outputs{' of ' if name else ''}{name} and their prompts"
            mend = "give the outputs, and the prompts that they answer"
            raise ValueError(f"{both} are equal in every row: {mend}.")


def _comparison(
    given: Options, read: records.Records, used: _Used, bar: Any
) -> Callable[[Any, Any], Mapping[str, Similarities]] | None:
    """What makes the similarities of outputs, by classes or a function; None with embeddings."""

    def by_class(outputs: Any, prompts: Any) -> dict[str, Similarities]:
        make, name = Similarities.from_classes, f"classes in {given.class_field!r}"
        classes = zip(outputs, read.beside[given.class_field or ""].values(), strict=True)
        asked = pairs.of_each_model(prompts, outputs, "prompts")
        return {model: make(labels, asked[model], name=name) for model, labels in classes}

    def by_function(outputs: Any, prompts: Any) -> dict[str, Similarities]:
        task = bar.add_task("comparing outputs", total=None)
        how: Any = {"across": False, "cache": given.cache}
        how["progress"] = lambda done, total: bar.update(task, completed=done, total=total)
        return compare_pairs(used["similarity"][0], outputs, prompts, **how)

    return by_class if given.class_field else by_function if given.similarity else None


def _read_records(given: Options, models: Mapping[str, Model]) -> _Held:
    fields: dict[str, Any] = {f: getattr(given, f) for f in _RECORD_FIELDS if given.is_set(f)}
    paths = [model.path for model in models.values()]
    names = {model.path: model.name for model in models.values() if model.name}
    beside = [field for field in (given.class_field, given.quality_field) if field]
    asked = [] if given.prompts is None else paths_in(given.prompts)
    read = records.read_records(paths, names=names, beside=beside, prompts_by_id=asked, **fields)
    if len(read.answers) > 1 and not given.several:
        wanted = "expected answers of one model, or condvendi compare"
        raise ValueError(f"{wanted}, received those of {', '.join(read.answers)}.")
    counted, by_task = {}, read.by_task
    for name, counts in read.counts.items():
        n, least, most = len(read.answers[name]), min(counts.values()), max(counts.values())
        counted[name] = {"n": n, "prompts": len(counts), "least": least, "most": most}
        tasks = {t: {"n": len(p), "prompts": len({*p})} for t, p in by_task.get(name, {}).items()}
        counted[name] |= {"tasks": tasks} if tasks else {}
        words = f"{name}: {n:,} answers, {len(counts):,} prompts, {span(counts.values())} answers"
        read.notes.append(f"{words} a prompt")
    described = {"records": ",".join(models), "answers": counted, "fields": read.fields}
    described["skipped"] = [*map(str, read.skipped)]
    runs, once = given.similarity == "calls", records.ASKED_ONCE
    said = {"ids stand for prompts, as equal or different": read.by_id, once: once in read.notes}
    said |= {"runs are compared by their tool calls, in order: --similarity=calls": runs}
    said |= {f"answers are weighed by their {WEIGHT_FIELD!r}": read.weights}
    for words in filter(said.get, said):
        _note(given, words)
    return read, described, False


def _read(given: Options, models: Mapping[str, Model]) -> _Held:
    paths = dict.fromkeys(m.prompts for m in models.values() if m.prompts is not None)
    texts_in = functools.partial(items.read_texts, column=given.prompt_column, prompts=True)
    tables = {path: texts_in(path) for path in paths if is_text(path)}
    array = functools.partial(files.read_array, key=given.prompts_key, flag="--prompts_key")
    arrays = {path: array(path) for path in paths if path not in tables}
    outputs, prompts, rows, described = {}, {}, {}, {}
    for name, model in models.items():
        table = tables.get(model.prompts or "")
        outputs[name], columns, rows[name] = _read_outputs(given, model, table)
        if table is not None:
            prompts[name] = [table.texts[row] for row in rows[name] or range(len(table.texts))]
            columns["prompt_column"] = table.column
        elif model.prompts is not None:
            prompts[name] = arrays[model.prompts]
        if paths and (tables or model.kind != "embeddings"):
            columns = {"paired_by": "order", **columns}
        for key in filter(columns.get, columns):
            described.setdefault(key, {})[name] = columns[key]
    columns_of = {"answers": "text_column", "prompts": "prompt_column"}.items()
    fields = {r: [*dict.fromkeys(described.get(key, {}).values())] for r, key in columns_of}
    for key, names in described.items():  # What all models have in common is written once.
        if len(names) == len(models) and len({*names.values()}) == 1:
            described[key] = next(iter(names.values()))
    notes = []
    if paired_by := described.get("paired_by"):
        if not isinstance(paired_by, str):
            paired_by = ", ".join(f"{entry} ({name})" for name, entry in paired_by.items())
        notes.append(f"outputs paired with prompts by {paired_by}")
        if any(rows.values()):  # Else nobody asked for it.
            _note(given, notes[-1])
    paths_of = {name: model.path for name, model in models.items()}
    named: dict[str, Any] = {"outputs": paths_of.get("")}
    if given.several:
        named = {"models": paths_of, "prompts": given.prompts_of(list(models)) or given.prompts}
    read = records.Records(outputs, prompts, fields, [], notes, summary="".join(notes))
    return read, named | described, len(paths) == 1 and not any(rows.values())


def _read_outputs(
    given: Options, model: Model, prompts: items.Texts | None
) -> tuple[Any, dict[str, str | None], Sequence[int]]:
    """A model's array, texts or paths of pictures; its columns; and, if need be, prompts' rows."""
    if model.kind == "embeddings":
        return files.read_array(model.path, key=given.outputs_key, flag="--outputs_key"), {}, ()
    if model.kind == "images":
        images = items.list_images(model.path, below=prompts is not None)
        if prompts is None:
            for path in sorted(images[0].parent.glob("metadata.*")):
                checks.warn(f"{path} is not read; if it has the prompts, pass --prompts={path}.")
            return images, {}, ()
        images, rows, column, how = items.pair_images(prompts, images, column=given.image_column)
        for one, two in zip(images, sorted(images), strict=True):
            if how == "order" and one != two:  # The prompts may be in the order of `sorted`.
                how = f"order, {one.name} before {two.name}"
        by_order = rows == [*range(len(prompts.texts))]
        return images, {"paired_by": how, "image_column": column}, () if by_order else rows
    try:
        texts = items.read_texts(model.path, column=given.text_column)
    except ValueError as error:
        why, of_texts = misfit(model.path), str(error).removeprefix(f"{model.path}: ")
        if why and given.prompts is None and ending(pathlib.Path(model.path)) in RECORD_ENDINGS:
            failure = ValueError(why if why.startswith(model.path) else f"{model.path}: {why}")
            if not of_texts.startswith(("there is no", "holds no rows")):
                failure.add_note(f"As texts without prompts: {of_texts}")
            raise failure from error
        alone = "It holds prompts with their answers: name such files alone, without --prompts."
        error.add_note(f"As a file of records: {why}" if why else alone)
        raise
    others = [name for name in texts.columns if name != texts.column]
    if prompts is None and given.text_column is None and others:
        raise ValueError(
            f"{model.path}: its texts in {texts.column!r} have no prompts. Name the field of their "
            f"prompts or ids, --prompt_field={others[0]}, among {', '.join(others)[:200]}; "
            f"or pass --text_column={texts.column} to score them without prompts."
        )
    if prompts is not None:
        items.pair_texts(prompts, texts)
    return texts.texts, {"text_column": texts.column}, ()


def _load_encoder(given: Options, kind: str) -> embedding.LoadedEncoder:
    named = {"kind": kind, "device": given.encoder_device, "batch_size": given.encoder_batch_size}
    if kind == "images":
        pictures.pillow()
        return embedding.load_encoder(given.image_encoder, encoders.load_efficientnet, named=named)
    more = {} if given.long_texts is None else {"long_texts": given.long_texts}
    return embedding.load_encoder(given.text_encoder, encoders.load_minilm, named=named, **more)


def _embed(encoder: Any, kind: Any, role: str, given: Options, bar: Any, items: Any) -> np.ndarray:
    task = bar.add_task(f"embedding {role}", total=len(items))
    how: Any = {"cache": given.cache, "progress": lambda done: bar.update(task, completed=done)}
    return embedding.embed(items, encoder, kind=kind, **how)
