"""Models compared by their records alone, without what they said."""

import collections
import contextlib
import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from condvendi_jax.base import files
from condvendi_jax.data.similarities import Similarities
from condvendi_jax.inference.comparisons import compare
from condvendi_jax.results.comparison import Comparison
from condvendi_jax.results.evaluation import Advice
from condvendi_jax.results.record import BY_PROMPT, METRIC

#: Why a model is left out.
NO_SCORE = "it has no unbiased Conditional-RKE: it has other scores, or no two answers are alike"
NO_PROMPTS = "it has no similarities by prompt: prompts lack texts, were asked once or are weighted"
_MOST = 1000  # Answers to a prompt, of which each two take a number.
_MEND = "Score its answers as those of the others"
_TERMS = "encoder", "revision of the encoder", "kernel"


def leaderboard(
    records: Mapping[str, Mapping[str, Any]],
    *,
    level: float = 0.05,
    equal_ratio: float = 1.1,
    one_population: bool = False,
) -> Comparison:
    """The comparison of models that their records give, as `compare` of their answers would.

    By unbiased Conditional-RKE (order 2), which does not depend on the number of answers. As many
    answers to each prompt as the model gave, of its mean similarity, take the place of its answers.

    Args:
      records: of each model by its name, from `Evaluation.record` or a file of it.
      level, equal_ratio, one_population: as `compare`.

    Returns:
      A `Comparison` of the most models whose outputs were compared alike; its `advice` says which
      others are left out, and why. Models with other prompts are compared on those that they share.

    Raises:
      ValueError: a value is no record, a score is not that of its prompts, or no model is left.
    """
    if not isinstance(records, Mapping) or not records:
        raise ValueError("records: expected the record of each model by its name, read by json.")
    entries = dict[str, Any]()
    for name, record in records.items():
        try:
            entries[name] = _entry(record)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise ValueError(f"{name}: is no valid record ({error!r}); write it anew.") from error
    reasons = {name: entry for name, entry in entries.items() if isinstance(entry, str)}
    models = {name: entry for name, entry in entries.items() if name not in reasons}
    if not models:
        raise ValueError(f"records: none can be compared, as {next(iter(reasons.values()))}.")
    terms, _ = collections.Counter(terms for terms, *_ in models.values()).most_common(1)[0]
    rows, words = {}, f"{terms[2]}, {terms[0]}, by records"
    for name, (others, prompts, _) in models.items():
        if others == terms:  # Every two of the k answers to a prompt are as similar.
            alike = {p: np.sqrt(np.where(np.eye(k), 1, u)) for p, (k, u) in prompts.items()}
            rows[name] = Similarities(alike, name=words)
        else:
            apart = zip(_TERMS, others, terms, strict=True)
            reasons[name] = "; ".join(f"{t}: {a}, others have {b}" for t, a, b in apart if a != b)
    how: Any = {"level": level, "equal_ratio": equal_ratio, "one_population": one_population}
    result = compare(rows, orders=[2], **how)
    advice = [Advice("models", f"{m} is left out", why, _MEND) for m, why in reasons.items()]
    by_model = result.evaluations.items()
    evaluations = {m: dataclasses.replace(e, noun=models[m][2]) for m, e in by_model}
    told: Any = {"matching": (*result.matching, *advice), "evaluations": evaluations}
    return dataclasses.replace(result, **told, read=f"{len(rows):,} of {len(records):,} records")


def record_in(path: files.StrPath) -> dict[str, Any] | None:
    """The record of scores in a file; None where the file is something else."""
    with contextlib.suppress(OSError), files.expanded(path).open("rb") as stream:
        head = stream.read(500)  # Else no more need be read.
        if b'"schema_version"' in head or b'"eval_library"' in head:
            try:
                record = json.loads(head + stream.read())
            except ValueError as error:
                raise ValueError(f"{path}: is no whole record of scores: {error}.") from error
            return record if "evaluation_results" in record else None
    return None


def _entry(record: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, Any], str] | str:
    """How outputs were compared, each prompt's answers and similarity, the unit; or why not."""
    parts = [(r["metric_config"], r["score_details"]) for r in record["evaluation_results"]]
    if not (ours := [part for part in parts if part[0].get("metric_id") == METRIC]):
        return NO_SCORE
    metric, scored = ours[0]
    if BY_PROMPT not in scored.get("details", {}):
        return NO_PROMPTS
    rows, given = json.loads(scored["details"][BY_PROMPT]), metric["metric_parameters"]
    prompts = {f"sha256:{prompt}": (int(k), float(u)) for prompt, (k, u) in rows.items()}
    right = [1 < k <= _MOST and 0 <= u <= 1 and k == int(k) for k, u in rows.values()]
    if not (right and all(right)):
        raise ValueError(f"expected 2 to {_MOST:,} answers a prompt, and similarities up to 1")
    score, by_prompts = scored["score"], 1 / float(np.mean([u for _, u in prompts.values()]))
    if not math.isclose(score, by_prompts, rel_tol=1e-3):
        raise ValueError(f"its score is {score}, and {by_prompts:g} by its prompts")
    width, kernel = given["outputs_bandwidth"], given["outputs_kernel"]
    if width is not None and given["encoder"] is None:
        return "its record does not name the encoder"
    compared = kernel if width is None else f"Gaussian, bandwidth {width:g}"
    terms = given["encoder"] or "none", given["encoder_revision"] or "none", compared
    return terms, prompts, metric["metric_unit"]
