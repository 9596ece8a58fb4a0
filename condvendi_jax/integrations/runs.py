"""The score of the answers of a finished run, as evaluation tools have them."""

import contextlib
import functools
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from condvendi_jax.base import checks
from condvendi_jax.data.bandwidth import AUTO
from condvendi_jax.data.kernels import Gaussian, Indicator
from condvendi_jax.encoders import embedding
from condvendi_jax.inference import compare, datasets, evaluate
from condvendi_jax.inference.comparisons import with_texts
from condvendi_jax.records import answers as texts
from condvendi_jax.records.cleaning import cleaned
from condvendi_jax.records.files import INSPECT_METRIC as NAME
from condvendi_jax.results.comparison import Comparison
from condvendi_jax.results.evaluation import Evaluation

_ENDINGS = {"value": "", "standard_error": "_stderr", "low": "_low", "high": "_high"}


class NoPairs(ValueError):
    """No prompt has two answers, so that there is nothing to compare."""


def score_run(
    rows: Iterable[Mapping[str, Any]],
    *,
    bandwidth: float | None = None,
    order: float = 2,
    encoder: Any = None,
    at_least: float | None = None,
    cache: str | None = None,
    clean: bool = True,
    tell: Callable[[str], Any] = checks.warn,
) -> Evaluation | Comparison:
    """The result of `evaluate` for the answers of a run, or of `compare` for several models.

    Only answers to the same prompt are compared, and each prompt counts once.

    Args:
      rows: one for each answer. `prompt`: any value; equal ones are one prompt, and 1 is not "1".
        `answer`: a text or chat messages. Rows where one of them is None or blank are left out. All
        rows may have a `model`, a `batch` (see `Pairs`) and a `quality`, used with `at_least`.
      bandwidth: of the Gaussian kernel of the answers; the encoder's where None. No rule takes it
        from the rows, since the scores of two runs could then not be compared.
      order, clean: in (0, inf]; as of `cv.read_records`.
      encoder, cache: as of `embed`; a name or an import path, too; all-MiniLM-L6-v2 where None.
      at_least: the quality from which an answer is good; then good and different ones are counted.
      tell: called with each line about answers that are left out, or may not be answers.

    Raises:
      TypeError, ValueError: an argument or a row is not valid, the encoder has no bandwidth, or
        no prompt of a model has two answers (`NoPairs`).
    """
    encoder = embedding.encoder_of("texts", encoder)
    if bandwidth is None and encoder.bandwidth is None:
        expected = f"expected that of the Gaussian kernel for {encoder.name}, received none"
        raise ValueError(f"bandwidth: {expected}. Compare runs at one bandwidth only.")
    kernel = None if bandwidth is None else Gaussian(bandwidth)
    orders = [checks.check_order(order)]
    columns = _columns([*rows], checks.check_flag(clean, name="clean"), tell)
    alone = [*columns["answer"]] == [""]
    given = {name: by_model[""] if alone else by_model for name, by_model in columns.items()}
    embed = functools.partial(embedding.embed, encoder=encoder, kind="texts", cache=cache)
    data = datasets.Dataset(columns["answer"], given["prompt"], {"outputs": embed}, encoder=encoder)
    how: Any = {"rule": AUTO, "similar_prompts": False, "batches": given.get("batch")}
    pairs: Any = data.pairs(output_kernel=kernel, prompt_kernel=Indicator(), **how)
    rated = {} if at_least is None else {"quality": given.get("quality"), "at_least": at_least}
    if alone:
        return datasets.advised(evaluate(pairs[""], orders=orders, **rated), pairs[""], data)
    return with_texts(compare(pairs, orders=orders, **rated), data, one_population=False)


def numbers(result: Evaluation | Comparison) -> dict[str, float]:
    """What a tool logs of the result of `score_run`, by name; of several models, as `a/NAME`.

    `answer_diversity` is the conditional score, an effective number; NaN if nearly all answers to a
    prompt differ at order 2, or came in one batch. `good_answers` is the number of good and
    different ones. `_stderr`, `_low` and `_high` are the error and the 95% interval.
    """
    flat: dict[str, float] = {}
    by_model = result.evaluations if isinstance(result, Comparison) else {"": result}
    for model, evaluation in by_model.items():
        scored, start = evaluation.orders[0], f"{model}/" if model else ""
        parts = {NAME: scored.estimate("conditional", unbiased=True).as_dict()}
        apart = scored.population and scored.saturated.get("conditional") == "largest"
        if apart or math.isinf(parts[NAME]["value"]):
            parts[NAME] = dict.fromkeys(parts[NAME], math.nan)
        if evaluation.quality:
            parts["good_answers"] = evaluation.quality.number.as_dict()
        for name, part in parts.items():
            flat |= {start + name + _ENDINGS[end]: value for end, value in part.items()}
    return flat


def run_metric(more: str, *, answer: str | None = None, **options: Any) -> Callable[..., Any]:
    """For tools: a function that gives the `numbers` of prompts `[n]` and outputs `[n]` of tasks.

    They are NaN if no prompt has two answers. Why, and what is left out, is logged once.

    Args:
      more: how to ask for more answers to a prompt, in the words of the tool.
      answer: the field of an output that is the answer, where it has several.
      **options: of `score_run`, but for `at_least` and `tell`; checked at once.
    """
    log = functools.cache(logging.getLogger(__name__).warning)
    options["encoder"] = embedding.encoder_of("texts", options.get("encoder"))
    score = functools.partial(score_run, tell=lambda line: log(f"{NAME}: {line}."), **options)
    with contextlib.suppress(NoPairs):
        score([])

    def compute(prompts: Iterable[Any], outputs: Iterable[Any]) -> dict[str, float]:
        both, why = [*zip(prompts, outputs, strict=True)], "nearly all answers to a prompt differ"
        try:
            flat = numbers(score({"prompt": p, "answer": _field(out, answer)} for p, out in both))
        except NoPairs as error:
            flat, why = {NAME + end: math.nan for end in _ENDINGS.values()}, str(error)
        if both and math.isnan(flat[NAME]):  # A tool may ask before there are any.
            log(f"{NAME}: NaN, since {why}. Ask for more answers to each prompt: {more}.")
        return flat

    return compute


def known(flat: Mapping[str, float]) -> dict[str, float | None]:
    """The `numbers`, None where one is not known: JSON has no NaN."""
    return {name: value if math.isfinite(value) else None for name, value in flat.items()}


def _field(output: Any, name: str | None) -> Any:
    """A field of an output by its name; if there is none, its only field, or the output."""
    inside = output if isinstance(output, Mapping) else getattr(output, "__dict__", {})
    if name is None and (inside is not output or "content" in inside):
        return output
    if name is None and len(inside) < 2:
        return next(iter(inside.values()), None)
    if output is not None and name not in inside:
        raise ValueError(f"answer: expected a field of outputs, {[*inside]}, received {name!r}.")
    return inside.get(name)


def _columns(rows: list[Any], clean: bool, tell: Callable[[str], Any]) -> dict[str, dict[str, Any]]:
    """The columns of the rows that have an answer, each by model; '' if there is one model."""
    models, kept = dict[Any, list[dict[str, Any]]](), 0
    for k, row in enumerate(rows):
        if not isinstance(row, Mapping) or not {"prompt", "answer"} <= row.keys():
            raise ValueError(f"rows[{k}]: expected 'prompt' and 'answer', received {row!r:.200}.")
        said = "" if row["answer"] is None else texts.assistant_text(row["answer"], f"rows[{k}]")
        models.setdefault(row.get("model"), []).append({**row, "answer": said})
        for name in ("model", "batch"):
            if (row.get(name) is None) != (rows[0].get(name) is None):
                raise ValueError(f"rows[{k}]: expected a {name!r} in all rows, or in none.")
    beside = [n for n in ("batch", "quality") if any(row.get(n) is not None for row in rows)]
    columns: dict[str, dict[str, Any]] = {name: {} for name in ("prompt", "answer", *beside)}
    for model, mine in models.items():
        if clean:
            asked = [row["prompt"] if isinstance(row["prompt"], str) else None for row in mine]
            said = cleaned([row["answer"] for row in mine], asked).texts
            mine = [{**row, "answer": text} for row, text in zip(mine, said, strict=True)]
        mine = [r for r in mine if r["prompt"] is not None and not texts.is_blank(r["answer"])]
        kept += len(mine)
        for name, of_models in columns.items():
            of_models["" if len(models) == 1 else model] = [row.get(name) for row in mine]
    if kept < len(rows):
        tell(f"left out are {len(rows) - kept:,} of {len(rows):,} rows: no prompt or no answer")
    for name, prompts in columns["prompt"].items():
        columns["prompt"][name] = asked = [*map(texts.label, prompts)]
        for line in texts.doubts(columns["answer"][name], asked):
            tell(f"{name and f'{name}: '}{line}: these may not be answers")
        if len({*asked}) == len(asked):
            raise NoPairs(f"{name and f'{name}: '}no prompt has two answers")
    if not rows:
        raise NoPairs("there are no answers")
    return columns
