"""Files of records to the answers of models: which model said what to which prompt."""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import marshal
import pathlib
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from condvendi_jax.base import checks, files
from condvendi_jax.base.labelling import identity
from condvendi_jax.base.tables import listed
from condvendi_jax.records import cleaning, matching
from condvendi_jax.records.answers import CALLS, FAILED, NO_CALL, Unfit, doubts, is_blank, label
from condvendi_jax.records.files import LOOKED_AT, first_rows, read_rows, record_files
from condvendi_jax.records.formats import BESIDE, MODEL_FIELDS, QUESTIONS, WEIGHT_FIELD, Format
from condvendi_jax.records.record import Fields, Record, Row, answer_field, values, with_lists

#: A note on answers whose own pairs cannot be left out.
ASKED_ONCE = "the answers of one request count as independent, as most prompts have one request"
_SHOWN = 10
_CALLED = re.compile(r'"(tool_calls": \[\{|type": "tool_use"|function_?call": \{)', re.IGNORECASE)
_COUNTED = re.compile(  # Fields that may number the answers to a prompt.
    r"(?:^|_)(?:id|uuid|seed|sample|index|idx|epoch|time|timestamp|attempt|run|trial)(?:_|$)", re.I
)


class Skipped(NamedTuple):
    """A record or an answer that is left out: file, line (row, or sample) from 1, and reason."""

    path: pathlib.Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.reason}."


@dataclasses.dataclass(frozen=True)
class Records:
    """The answers of models and the prompts that they answer, row by row, in the files' order.

    `answers[model][i]` answers `prompts[model][i]`; `fields` has the names of the fields that were
    read, of `prompts` and of `answers`; `skipped` is what was left out; `notes` are lines that say
    what else was decided. `weights` are the probabilities that the answers of a prompt have, of
    sum one for each prompt, or None without any. `by_id` says whether ids stand for prompts.
    `beside[field][model][i]` is what a field holds for that answer. `batches[model][i]` is a label
    of its request, where most prompts were asked several times with several answers each.
    `summary` says in a line what was read and cut. `tasks[model][i]` is the name of the file that
    it comes from, where a model has several. `cut` says how many answers a limit of tokens ended.
    """

    answers: dict[str, list[str]]
    prompts: dict[str, list[str]]
    fields: dict[str, list[str]]
    skipped: list[Skipped]
    notes: list[str]
    weights: dict[str, list[float]] | None = None
    by_id: bool = False
    beside: dict[str, dict[str, list[Any]]] = dataclasses.field(default_factory=dict)
    batches: dict[str, list[str]] | None = None
    summary: str = ""
    tasks: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    cut: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """The number of answers, by model and prompt."""
        asked = {name: map(identity, texts) for name, texts in self.prompts.items()}
        return {name: dict(collections.Counter(texts)) for name, texts in asked.items()}

    @property
    def by_task(self) -> dict[str, dict[str, list[str]]]:
        """The prompt of each answer, by model and task."""
        asked: dict[str, dict[str, list[str]]] = {model: {} for model in self.tasks}
        for model, labels in self.tasks.items():
            for task, prompt in zip(labels, self.prompts[model], strict=True):
                asked[model].setdefault(task, []).append(prompt)
        return asked


def read_records(
    paths: files.StrPath | Iterable[files.StrPath],
    *,
    prompt_field: str | None = None,
    answer_field: str | None = None,
    model_field: str | None = None,
    clean: bool = True,
    names: Mapping[str, str] = types.MappingProxyType({}),
    beside: Sequence[str] = (),
    batch_field: str | None = None,
    prompts_by_id: files.StrPath | Iterable[files.StrPath] = (),
) -> Records:
    r"""Reads the answers of one or several models, line by line.

    A file is .jsonl, .csv, .tsv, also packed (.gz), .parquet or .arrow, holds a list of records
    (.json), or is a log of Inspect (.eval, .json). A folder of files is a model, and a folder of
    folders one model each. A record is one answer, or one prompt with a list of answers, as plain
    texts or as chat messages, or a record of a tool in `formats`. The prompt is all that the model
    was given: a chat with its system message and earlier turns, and several fields, such as
    `instruction` and `input`, one after the other.

    Args:
      paths: files, folders, or patterns such as `runs/*.jsonl` and `runs/**/answers.jsonl`.
      prompt_field: the only field of the prompt, as `a.b`; if unset, all that the model was given.
      answer_field: the field of the answers; several with commas, a model each; 'tool_calls' for
        what agents did. If unset, the one of `ANSWER_FIELDS`, or another whose texts alone vary.
      model_field: the field of the model's name; if unset, one of `MODEL_FIELDS`, or else the file.
      names: the names of models by their path or pattern in `paths`, whatever their records say.
      clean: cut what stands around answers: reasoning such as `<think>...</think>`, the prompt
        where most answers repeat it, and marks and labels that most share.
      beside: fields with something of each answer, such as its class: a list in the order of the
        answers, or a value of one answer. Answers without it are left out.
      batch_field: the field with the request or batch of an answer; if unset, as the format has it.
      prompts_by_id: files with the prompts of records that have ids alone, as a batch's requests.

    Returns:
      At least one answer of each file. Records and answers that do not fit are in `skipped`, and a
      warning counts them. Another counts answers that may be errors, lists or placeholders.

    Raises:
      ValueError: a file is missing, of another format, malformed as CSV, or nothing in it fits; two
        fields may be the answer; a file and a field name one model; or a package is missing.

    Examples:
      >>> import pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp(), "small.jsonl")
      >>> _ = path.write_text('{"prompt": "Name a fruit.", "answers": ["a pear", "a fig"]}\n')
      >>> records = read_records(path)
      >>> records.answers, records.counts
      ({'small': ['a pear', 'a fig']}, {'small': {'Name a fruit.': 2}})
    """
    named = Fields(prompt_field, answer_field, model_field, batch_field, beside)
    sources = record_files(paths, named)
    named = named._replace(asked=_texts_by_id(prompts_by_id, beside=sources))
    by_file, skipped, notes, cut = _by_model(sources, names, named, clean)
    tasks = {model: _tasks(parts) for model, parts in by_file.items() if len(parts) > 1}
    rows_of = {m: [*itertools.chain(*parts.values())] for m, parts in by_file.items()}
    prompts = {model: [row.asked.text for row in rows] for model, rows in rows_of.items()}
    prompts = matching.without_samples(prompts)
    for model, rows in rows_of.items():
        both = zip(rows, prompts[model], strict=True)
        rows_of[model] = [row._replace(asked=row.asked._replace(text=text)) for row, text in both]
    every = [*itertools.chain(*rows_of.values())]
    answers = {model: [row.answer for row in rows] for model, rows in rows_of.items()}
    if unread := dict.fromkeys(name for row in every for name in row.asked.unread):
        notes.append(f"not read as a part of the prompt: {', '.join(map(repr, unread))}")
    if ids := dict.fromkeys(row.asked.fields[0] for row in every if row.asked.is_id):
        notes.append(f"prompts are known by {', '.join(map(repr, ids))} alone, not by their texts")
    if shares := _shares(rows_of):
        notes.append(
            f"answers are weighed by their {WEIGHT_FIELD!r}, of sum one for each prompt: as a "
            "distribution, not a sample of one, so that order 2 is not corrected for the sample"
        )
    batches, note = _batches(rows_of)
    notes += filter(None, [note])
    ended = {model: _warned(model, rows) for model, rows in rows_of.items()}
    odd = {model: doubts(said, prompts[model]) + ended[model] for model, said in answers.items()}
    doubtful = [f"{model}: {line}" for model, lines in odd.items() for line in lines]
    if cut and not clean:
        doubtful.append(f"kept, since clean is false: {cleaning.Cleaned([], cut)}")
    if skipped:
        failed = sum(FAILED in entry.reason for entry in skipped)
        number = f"{len(skipped):,}" + f", of which {failed:,} requests failed" * bool(failed)
        lines = [f"records or answers that do not fit are left out ({number}):"]
        lines += [*map(str, skipped[:_SHOWN]), *["..."] * (len(skipped) > _SHOWN)]
        checks.warn("\n".join(lines))
    if answer_field == CALLS:  # Many prompts may have one run.
        none = sum(row.answer == NO_CALL for row in every)
        words = f"{none} of {len(every)} runs have no tool call that is read"
        doubtful = [words] * (2 * none > len(every))
    if doubtful:
        checks.warn("\n".join(["some answers may not be what a model said:", *doubtful]))
    names_of = dict.fromkeys(name for row in every for name in row.asked.fields)
    fields = {"answers": [*dict.fromkeys(row.field for row in every)], "prompts": [*names_of]}
    more = {f: {m: [row.beside[f] for row in rows] for m, rows in rows_of.items()} for f in beside}
    said = _summary(every, len(skipped), fields, cut if clean else {})
    said += "".join(f"; {model}: {len({*names}):,} files" for model, names in tasks.items())
    known = (answers, prompts, fields, skipped, notes, shares, bool(ids), more, batches)
    read = Records(*known, said, tasks, ended)
    for model, asked in read.by_task.items():
        numbers = [f"{t} ({len(p):,} answers, {len({*p}):,} prompts)" for t, p in asked.items()]
        notes.insert(0, f"{model}: answers of {len(asked):,} files: {', '.join(numbers)}")
    if len(folders := {*sources.values()}) == 1 and not names and (folder := folders.pop()):
        _refuse_models(folder, read.by_task)
    return read


def _warned(model: str, rows: Sequence[Row]) -> list[str]:
    """A line on answers that were cut off; warnings on those of merged chats, and on copies."""
    times = collections.Counter((row.asked.text, row.answer) for row in rows)
    if len(times) > 1 and {*times.values()} == {2}:
        checks.warn(f"{model}: every answer stands exactly twice: was the file written twice?")
    asked, turns = {text for text, _ in times}, {row.asked.turns for row in rows}
    if 2 * len(asked) <= (ways := sum(len(said) > 1 for said in turns)):
        words = f"{model}: {rows[0].asked.fields[0]!r} gives {len(asked):,} different prompts, for "
        words += f"example {rows[0].asked.text[:40]!r}, but users' turns differ in {ways:,} ways: "
        checks.warn(f"{words}name a field of ids, or leave out --prompt_field to read all turns.")
    words = "were cut off by a limit of tokens, as their records say, for example"
    cut = [row.answer for row in rows if row.is_cut]
    return [f"{len(cut):,} of {len(rows):,} {words} {text[:80]!r}" for text in cut[:1]]


def _hint(rows: Sequence[dict[Any, Any]], named: Fields) -> None:
    """Warns where the rows of one model may be of several, or of agents."""
    inner = [str(name) for row in rows[:1] for name, v in row.items() if isinstance(v, dict | list)]
    ends = map(".".join, itertools.product(inner, MODEL_FIELDS))
    for path in (*ends, "extra.metadata.ls_model_name", "session_name"):
        labels = [label for row in rows for label in values(row, path)]
        names = dict.fromkeys(label for label in labels if isinstance(label, str))
        if 1 < len(names) <= len(labels) / 2:
            words = f"taken as one model, though {path!r} names several"
            checks.warn(f"{words}, {listed([*names][:9])}: --model_field={path} compares them")
            break
    if named.answer is None and any(_CALLED.search(label(row, 10**9)) for row in rows[:99]):
        checks.warn(f"runs hold tool calls, which --answer_field={CALLS} compares")


def _refuse_models(folder: pathlib.Path, by_task: Mapping[str, Mapping[str, list[str]]]) -> None:
    """ValueError where files of a folder that was given alone answer the same prompts."""
    for model, tasks in by_task.items():
        for (one, asked), (other, too) in itertools.combinations(tasks.items(), 2):
            if 2 * len({*asked} & {*too}) > min(len({*asked}), len({*too})):
                raise ValueError(
                    f"{folder}: its files {one} and {other} answer the same prompts. If each is a "
                    f"model, give the files, {folder}/*. If all are of one model, name it, "
                    f"{model}={folder} or, in Python, names={{'{folder}': {model!r}}}."
                )


def known_by(path: files.StrPath) -> str:
    """The field whose id stands for the prompt in the first row of a file; '' if none does."""
    with contextlib.suppress(ValueError):
        return next((Record(row).id for file in record_files(path) for row in first_rows(file)), "")
    return ""


def _texts_by_id(paths: Any, beside: Iterable[pathlib.Path] = ()) -> dict[str, str]:
    """The texts of files of prompts by their ids; the records beside them must have ids alone."""
    texts: dict[str, str] = {}
    for path in record_files(paths) if isinstance(paths, str) or paths else ():
        if with_prompts := [str(source) for source in beside if not known_by(source)]:
            raise ValueError(f"{path}: has no effect, as {with_prompts[0]} has prompts itself.")
        for line, row in read_rows(path):
            try:
                if isinstance(row, Unfit):
                    raise row
                record = Record({**row, " ": ""}, Fields(answer=" "))  # It has no answer.
                name = next((name for name in QUESTIONS if record.row.get(name) is not None), "")
                if not name:
                    raise Unfit(f"expected a prompt with its {' or '.join(QUESTIONS)}")
                record.form = Format("", "", prompt=QUESTIONS[name], id=name)
                key, text = str(record.row[name]), record.prompt().text
                if texts.setdefault(key, text) != text:
                    words = f"{name!r} {key!r} has a second prompt"
                    raise Unfit(f"{words}; read records that hold theirs")
            except Unfit as error:
                raise ValueError(f"{path}, line {line}: {error}.") from error
    return texts


def _tasks(by_file: Mapping[pathlib.Path, Sequence[Row]]) -> list[str]:
    """The task of each answer: the name of its file, without dates and parts."""
    extra = r"^samples_|_\d{4}-\d\d-\d\dT[\d.:-]+$|-\d+-of-\d+$"
    names = zip(files.names_of(list(map(str, by_file))), by_file.values(), strict=True)
    return [task for name, rows in names for task in [re.sub(extra, "", name)] * len(rows)]


def _by_model(
    paths: Mapping[pathlib.Path, Any], names: Mapping[str, str], named: Fields, clean: bool
) -> tuple[dict[str, dict[pathlib.Path, list[Row]]], list[Skipped], list[str], dict[str, int]]:
    """The rows of each model by their file, what is left out, notes, and what was cut."""
    given = {file: name for p, name in names.items() for file in record_files(p, named)}
    labels = {path: str(paths[path] or path) for path in paths if path not in given}
    named_by = dict.fromkeys(labels.values())
    plain = dict(zip(named_by, files.names_of([*named_by]), strict=True))
    rows_of: dict[str, dict[pathlib.Path, list[Row]]] = collections.defaultdict(dict)
    skipped, cut = list[Skipped](), collections.Counter[str]()
    fields, notes, heads = _answer_fields(paths, named)
    for path in paths:
        shown = path.name == "display_predictions.json" and not named.asked
        beside = [other for other in map(path.with_name, BESIDE) if shown and other.exists()][:1]
        notes += [f"the prompts of {path} are those of {other}" for other in beside]
        asked = named.asked or _texts_by_id(beside)
        rows, unfit, of_file = _read_file(path, fields[path]._replace(asked=asked), clean)
        cut.update(of_file)
        if not rows:
            why = f"no record fits. {unfit[0]}" if unfit else "holds no records."
            raise ValueError(f"{path}: {why}")
        skipped += unfit
        models = list(dict.fromkeys(row.model for row in rows if row.model))
        if not models:
            _hint(heads[path], named)
        if path in given and len(models) > 1:
            words = f"{', '.join(models)}, which are not all {given[path]!r}: leave this name out"
            raise ValueError(f"{path}: holds answers of {words}.")
        for row in rows:
            model = given.get(path) or row.model or plain[labels[path]]
            rows_of[model].setdefault(path, []).append(row)
    for model, parts in rows_of.items():
        if len({(path in given, rows[0].model is None) for path, rows in parts.items()}) > 1:
            *_, last = parts
            held = f"hold answers of {model!r}, which not all of them name alike"
            mend = f"give each file a name of its own, as other={last}."
            raise ValueError(f"{' and '.join(map(str, parts))} {held}: {mend}")
        said = {f"{p}": [(row.asked.text, row.answer) for row in parts[p]] for p in parts}
        for line, *_, mend in matching.copies(said):
            checks.warn(f"{line}, and both count. {mend}.")
    return rows_of, skipped, notes, dict(cut)


def _answer_fields(
    paths: Iterable[pathlib.Path], named: Fields
) -> tuple[dict[pathlib.Path, Fields], list[str], dict[pathlib.Path, list[dict[Any, Any]]]]:
    """The fields of each file with that of its answers, by its first records; why; and these."""
    alike: dict[Any, list[pathlib.Path]] = collections.defaultdict(list)
    heads = {path: [with_lists(row) for row in first_rows(path, LOOKED_AT)] for path in paths}
    for path, rows in heads.items():
        if rows and named.answer is None and not Record(rows[0]).form.answers:
            alike[frozenset(rows[0])].append(path)
    fields, notes = dict.fromkeys(paths, named), []
    for some in alike.values():
        rows = [row for path in some for row in heads[path]]
        field, why = answer_field(rows, named, " and ".join(map(str, some)))
        fields |= {path: named._replace(answer=field or None) for path in some}
        notes += [why] * bool(field)
    return fields, notes, heads


def _read_file(
    path: pathlib.Path, named: Fields, clean: bool
) -> tuple[list[Row], list[Skipped], dict[str, int]]:
    seen: dict[int, tuple[Any, str, dict[Any, Any]]] = {}
    lines = list(_lines(path, named, seen))
    twice = {n: Unfit(f"stands twice, also in line {k}") for n, k in _repeats(seen).items()}
    lines = [(n, twice.get(n, row)) for n, row in lines]
    cut = collections.Counter[str]()
    places: dict[str | None, list[tuple[int, Row]]] = collections.defaultdict(list)
    for k, (_, row) in enumerate(lines):
        if isinstance(row, Row):
            places[row.model].append((k, row))
    for of_model in () if named.answer == CALLS else places.values():
        prompts = [None if row.asked.is_id else row.asked.text for _, row in of_model]
        texts = cleaning.cleaned([row.answer for _, row in of_model], prompts)
        cut.update(texts.cut)
        for (k, row), text in zip(of_model if clean else [], texts.texts, strict=False):
            nothing = Unfit(f"{row.field!r} holds reasoning, or its prompt, without an answer")
            lines[k] = lines[k][0], nothing if is_blank(text) else row._replace(answer=text)
    rows = [(line, row) for line, row in lines if isinstance(row, Row)]
    of_models = any(row.model for _, row in rows)
    lacking = {line for line, row in rows if row.model is None} if of_models else set()
    why = f"has no {MODEL_FIELDS[0]!r}, which other records of this file have"
    skipped = [Skipped(path, line, str(row)) for line, row in lines if isinstance(row, Unfit)]
    skipped += [Skipped(path, line, why) for line in lacking]
    skipped.sort(key=lambda entry: entry.line)
    return [row for line, row in rows if line not in lacking], skipped, cut


def _lines(
    path: pathlib.Path, named: Fields, seen: dict[int, tuple[Any, str, dict[Any, Any]]]
) -> Iterator[tuple[int, Row | Unfit]]:
    """Each answer, or why it does not fit, with its line; fills `seen` for `_repeats`."""
    filters: dict[str, Any] = {}
    columns = (named.answer or "").split(",")  # Several that a record has are of several models.
    for line, fields in read_rows(path):
        try:
            if isinstance(fields, Unfit):
                raise fields
            if (named.answer or "").endswith("*"):  # Of numbered columns.
                fields = with_lists(fields)
            models = [column for column in columns if values(fields, column)]
            for column in models if len(models) > 1 else [None]:
                named_so = named._replace(answer=column) if column else named
                record = Record(fields, named_so, f"{path}, line {line}")
                counted = {f: v for f, v in fields.items() if _COUNTED.search(str(f))}
                counted.pop(named_so.answer, None)
                if counted:
                    seen[line] = _digest(fields), label([*record.given().values()]), counted
                if not record.repeats(filters):
                    for row in record.rows():
                        if column and isinstance(row, Row):
                            row = row._replace(model=column)
                        yield line, row
        except (Unfit, RecursionError) as error:
            yield line, error if isinstance(error, Unfit) else Unfit("is nested too deeply")


def _digest(fields: dict[Any, Any]) -> Any:
    """What equal records share: the digest of their bytes, which take less time than JSON."""
    with contextlib.suppress(ValueError):  # Tables may hold dates.
        return hashlib.sha256(marshal.dumps(sorted(fields.items()), 2)).digest()
    return label(fields)


def _repeats(seen: Mapping[int, tuple[Any, str, dict[Any, Any]]]) -> dict[int, int]:
    """The first line of each repeated record; none unless a field numbers those of a prompt."""
    first: dict[Any, int] = {}
    lines = {line: first.setdefault(whole, line) for line, (whole, *_) in seen.items()}
    records = [seen[line] for line in first.values()]
    prompts = {prompt for _, prompt, _ in records}
    for field in dict.fromkeys(name for *_, counted in records for name in counted):
        numbered = {(prompt, str(counted.get(field))) for _, prompt, counted in records}
        if len(numbered) == len(records) > len(prompts):
            return {line: earlier for line, earlier in lines.items() if earlier < line}
    return {}


def _summary(rows: Sequence[Row], left_out: int, fields: Any, cut: dict[str, int]) -> str:
    shown = [(f"field{'s' * (len(n) > 1)}", listed([*map(repr, n)])) for n in fields.values()]
    said, asked = map(" ".join, shown)
    prompts = len({identity(row.asked.text) for row in rows})
    lost = f", {left_out:,} left out" if left_out else ""
    words = f"{len(rows):,} answers ({said}{lost}) to {prompts:,} prompts ({asked})"
    return f"{words}; cut: {cleaning.Cleaned([], cut)}" if cut else words


def _batches(rows_of: Mapping[str, Sequence[Row]]) -> tuple[dict[str, list[str]] | None, str]:
    """Each row's batch by model, or None where most prompts have one batch or answers; a note."""
    labels = {
        model: [f"{k}" if row.batch is None else f" {row.batch}" for k, row in enumerate(rows)]
        for model, rows in rows_of.items()
    }
    if all(len({*batches}) == len(batches) for batches in labels.values()):
        return None, ""
    for model, rows in rows_of.items():
        prompts = [identity(row.asked.text) for row in rows]
        asked = {*zip(prompts, labels[model], strict=True)}
        times = collections.Counter(prompt for prompt, _ in asked)
        if sum(times[prompt] > 1 for prompt in prompts) < len(rows) / 2:
            return None, ASKED_ONCE
    return labels, "pairs of answers of one request or batch are left out at order 2"


def _shares(rows_of: Mapping[str, Sequence[Row]]) -> dict[str, list[float]] | None:
    """The weights of rows by model, of sum one for each prompt; None without weights."""
    if all(row.weight is None for rows in rows_of.values() for row in rows):
        return None
    shares = {}
    for model, rows in rows_of.items():
        totals: dict[str, float] = collections.defaultdict(float)
        for row in rows:
            if row.weight is None:
                raise ValueError(
                    f"{model}: an answer to {row.asked.text[:80]!r} has no {WEIGHT_FIELD!r}, which "
                    "others have. Answers with probabilities are a distribution, and others a "
                    "sample: score them one by one."
                )
            totals[identity(row.asked.text)] += row.weight
        if not all(totals.values()):
            prompt = min(totals, key=totals.__getitem__)
            raise ValueError(f"all answers to {prompt[:80]!r} have the {WEIGHT_FIELD} 0.")
        shares[model] = [(row.weight or 0.0) / totals[identity(row.asked.text)] for row in rows]
    return shares
