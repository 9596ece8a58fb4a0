"""The verbs of `condvendi`: the flags of each, and what it reads, computes, prints and writes."""

import contextlib
import dataclasses
import functools
import json
import shlex
import sys
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from condvendi_jax import inference
from condvendi_jax import report as reports
from condvendi_jax.base import checks, files, labelling, programs
from condvendi_jax.base.result import comma_separated
from condvendi_jax.cli import command, flags, inputs, options
from condvendi_jax.cli.flags import flag
from condvendi_jax.cli.options import WORDS, Options, Target
from condvendi_jax.data.kernels import Gaussian
from condvendi_jax.encoders import embedding, similarity
from condvendi_jax.inference import comparisons, datasets
from condvendi_jax.records import answers as texts
from condvendi_jax.records.cleaning import cleaned
from condvendi_jax.records.record import values
from condvendi_jax.results.comparison import Comparison, Consensus
from condvendi_jax.statistics.power import FEWEST_TESTED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score(Options):
    """Scores of a model's outputs and, with prompts, how much of them is the model's own."""

    errors: bool = flag(True, "Compute standard errors.", excludes=("groups_file",))
    by_prompt: Target | None = flag(None, WORDS["by_prompt"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compare(Options):
    """Which of several models is more diverse, and whether the difference is real."""

    several = under_all = True
    level: float = flag(0.05, WORDS["level"], above=0, below=1)
    equal_ratio: float = flag(1.1, WORDS["equal_ratio"], above=1)
    one_population: bool = flag(False, WORDS["one_population"])
    csv: Target | None = flag(None, "Also write the scores of models to this file as CSV.")
    csv_pairs: Target | None = flag(None, "The same of every two models: differences, overlaps.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(Compare):
    """Plans a study from a small first one, the pilot: how many prompts and answers it needs."""

    under_all = False
    order: tuple[float, ...] = flag((2.0,), WORDS["pilot_order"], check=checks.check_order)
    ratio: float | None = flag(None, WORDS["ratio"])
    most_prompts: int | None = flag(None, WORDS["most_prompts"], at_least=FEWEST_TESTED)
    prompt_cost: float = flag(0.0, "The cost of a prompt, where an answer costs one.")
    budget: float | None = flag(None, "The most that prompts and answers of one model may cost.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report(Compare):
    """Several models side by side as one page of HTML, with the outputs behind the scores."""

    under_all = False
    output: Target | None = flag(None, WORDS["output"], endings=(".html", ".htm"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Enough:
    """Whether to ask a model again: the chance that its next answer to a prompt is new."""

    until: float = flag(0.1, "Stop if the chance is at most this.", above=0, below=1)
    most: int | None = flag(None, "The number of answers at which to stop anyway.", at_least=1)
    sure: bool = flag(False, "Stop only if the upper end is at most --until.")
    text_encoder: str | None = flag(None, "As of condvendi score; all-MiniLM-L6-v2 if unset.")
    similarity: str | None = flag(None, "See score.", excludes=("text_encoder", "output_bandwidth"))
    output_bandwidth: float | None = flag(None, "Gaussian; the encoder's if unset.", above=0)
    prompt_field: str = flag("prompt", "The field with the prompt, any value of JSON.")
    answer_field: str = flag("answer", "The field with the answer.")
    quality_field: str | None = flag(None, "The field with a number: only good answers are new.")
    at_least: float | None = flag(None, "The quality from which an answer is good.")


def score(argv: Sequence[str]) -> None:
    """`condvendi score`: the scores of one model's outputs, with errors."""
    words, given = flags.parse(Score, argv, WORDS["Score"])
    programs.keep()
    models = inputs.models_of(words, given)
    paired = any(model.prompts or model.kind == "records" for model in models.values())
    if given.by_prompt and not paired:
        raise ValueError(f"--by_prompt={given.by_prompt} needs --prompts: there are none.")
    tables, over, failed = [], None, dict[str, str]()
    with command.progress_bar() as bar:
        read = inputs.read(given, models, bar)
        pairs, settings = read.pairs()[""], read.settings
        scores = inference.evaluate(pairs, **settings, errors=given.errors)
        scores = datasets.advised(scores, pairs, read.dataset)
        if given.by_prompt:
            chosen = {name: settings[name] for name in ("truncation", "method")}
            chosen |= {"labels": read.dataset.prompt_texts}
            with checks.optional("by_prompt", failed, asked=True):
                tables = [inference.prompt_table(pairs, order=o, **chosen) for o in given.order]
        if given.profile:
            chosen = {name: settings[name] for name in ("seed", "unbiased", "progress")}
            with checks.optional("profile", failed, asked=True):
                over = inference.profile({"": pairs}, **chosen)
    beside = [line for part in (*tables, over) if part for line in ("", str(part))]

    def write_tables(path: str) -> None:
        if not tables:
            raise ValueError(f"--by_prompt={path}: not written, since there is no table.")
        files.write_text(path, comma_separated([line for t in tables for line in t.lines()]))

    options.write(given, scores, read, profile=over, beside=beside, by_prompt=write_tables)


def compare(argv: Sequence[str]) -> None:
    """`condvendi compare`: several models side by side, under one bandwidth."""
    words, given = flags.parse(Compare, argv, WORDS["Compare"])
    if read := inputs.records_of_scores(words, given):
        compared = inference.leaderboard(read.rows, **read.settings)
    else:
        read, compared = read_and_compare(words, given)
    options.write(given, compared, read)


def plan(argv: Sequence[str]) -> None:
    """`condvendi plan`: how many prompts, and answers to each, a difference takes, from a pilot."""
    words, given = flags.parse(Plan, argv, WORDS["Plan"])
    if given.quality_field is not None:
        raise ValueError("--quality_field: has no effect on a plan; leave it out.")
    read, pilot = read_and_compare(words, given)
    limits = {name: getattr(given, name) for name in ("ratio", "prompt_cost", "budget")}
    planned = inference.plan(pilot, prompts=given.most_prompts, **limits)
    options.write(given, pilot, read, plan=planned)


def report(argv: Sequence[str]) -> None:
    """`condvendi report`: several models side by side, with their outputs, as a page of HTML."""
    words, given = flags.parse(Report, argv, WORDS["Report"])
    if given.output is None:
        raise ValueError("--output: expected the file of the page, such as --output=report.html.")
    read, compared = read_and_compare(words, given)
    outputs = {name: rows for name, rows in read.dataset.outputs.items() if isinstance(rows, list)}
    shown: dict[str, Any] = {"outputs": outputs or None, "prompts": read.dataset.prompt_texts}
    shown |= {"encoder": read.encoders(), "command": shlex.join(["condvendi", "report", *argv])}
    options.write(given, compared, read, output=lambda path: reports.html(compared, path, **shown))


def enough(argv: Sequence[str]) -> int | None:
    """`condvendi enough`: after each answer of a stream, whether to ask again."""
    words, given = flags.parse(Enough, argv, WORDS["Enough"])
    if len(words) > 1:
        raise ValueError(f"expected one file, or standard input, received {len(words)} files.")
    if (given.quality_field is None) != (given.at_least is None):
        raise ValueError("--quality_field, --at_least: expected both or neither.")
    if given.answer_field == texts.CALLS and not given.text_encoder:
        given = dataclasses.replace(given, similarity=given.similarity or "calls")
    asked, status, output = dict[str, list[Any]](), None, sys.stdout
    how: Any = {name: getattr(given, name) for name in ("until", "most", "sure", "at_least")}
    how["output_kernel"] = given.output_bandwidth and Gaussian(given.output_bandwidth)
    source = files.expanded(words[0]) if words else 0
    with contextlib.redirect_stdout(sys.stderr):  # What encoders print is no result.
        if given.similarity:
            how["similarity"] = judge = similarity.as_loaded(given.similarity)
            if not hasattr(compare := judge.encoder, "batch_size"):  # Each pair is compared once.
                how["similarity"] = dataclasses.replace(judge, encoder=functools.cache(compare))
        else:  # Each text is embedded once.
            loaded = embedding.encoder_of("texts", given.text_encoder)
            row = functools.cache(lambda text: np.asarray(loaded.encoder.encode([text]))[0])
            once = types.SimpleNamespace(bandwidth=loaded.bandwidth)
            once.encode = lambda texts: np.stack([*map(row, texts)])
            how["encoder"] = embedding.LoadedEncoder(once, loaded.name)
        with open(source, encoding="utf-8-sig", errors="surrogateescape") as stream:
            for number, line in ((k, line) for k, line in enumerate(stream, 1) if line.strip()):
                try:
                    written = _after(json.loads(line), given, asked, how)
                except (ValueError, TypeError, RecursionError) as error:
                    written = {"error": f"line {number}: {getattr(error, 'msg', error)}"}
                    status = command.BAD_INPUT
                print(json.dumps(written), file=output, flush=True)
    return status


def _after(record: Any, given: Enough, asked: dict[str, list[Any]], how: Any) -> dict[str, Any]:
    """What is written after a record; its answer joins those to the prompt in `asked`."""
    fields = [given.prompt_field, given.answer_field, *filter(None, [given.quality_field])]
    held = [values(record, field) for field in fields]
    if {*map(len, held)} != {1}:
        raise ValueError(f"expected an object with {fields}, received {str(record)[:80]}")
    (prompt, answer, *rated), name = (one for (one,) in held), repr(given.answer_field)
    key = texts.label(labelling.identity(prompt))
    runs = given.answer_field == texts.CALLS
    parts = texts.calls(answer, name) if runs else [texts.assistant_text(answer, name)]
    said = "\n".join(parts) or texts.NO_CALL * runs
    texts.checked(cleaned([said], [None]).texts[0], name)  # It may hold reasoning alone.
    rows = [*asked.get(key, []), (texts.checked(said, name), *rated)]
    columns = dict(zip(("outputs", "quality"), map(list, zip(*rows, strict=True)), strict=False))
    line = inference.enough(**columns, prompts=[str(prompt)] * len(rows), **how).lines()[0]
    asked[key] = rows
    return line | {"prompt": prompt, "new": line["new"] if len(rows) > 1 else None}


def read_and_compare(words: Sequence[str], given: Compare) -> tuple[inputs.Inputs, Any]:
    """What a command line names, read and compared, under all encoders and similarities."""
    programs.keep()
    models, one = inputs.models_of(words, given), {"one_population": given.one_population}
    chosen: Any = one | {"level": given.level, "equal_ratio": given.equal_ratio}
    chosen["profile"] = True if given.profile else None
    reads, compared = dict[str, inputs.Inputs](), dict[str, Comparison]()
    with command.progress_bar() as bar:
        for name, view in given.views().items():
            reads[name] = inputs.read(view, models, bar, *[*reads.values()][:1])
        for name, read in reads.items():
            result = comparisons.compare(read.pairs(), **read.settings | chosen)
            compared[name] = comparisons.with_texts(result, read.dataset, **one)
    first, described = next(iter(reads.values())), {n: read.described for n, read in reads.items()}
    if len(reads) == 1:
        return first, compared.popitem()[1]
    return first._replace(described=described), Consensus.of(compared)
