"""A result as records of Every Eval Ever, a common format of evaluations, one a model.

A record holds, beside the scores, the similarity of two answers to each prompt, by a digest of the
prompt. `inference.leaderboard` compares models by it as `compare` does, without their answers.
"""

import hashlib
import json
import math
import pathlib
import re
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

import condvendi_jax
from condvendi_jax.results.evaluation import Evaluation, score_name

LIBRARY = "condvendi_jax"
#: The metric of the results that models are compared by, and where their prompts are.
METRIC, BY_PROMPT = f"{LIBRARY}.conditional_rke.unbiased", "similarity_by_prompt"
_ROLES = ("text_encoder", "image_encoder", "similarity")
_UNKNOWN = {"deployment_type": "unknown", "model_availability": "unknown"}
_METRIC = {"metric_kind": "effective_number", "lower_is_better": False, "score_type": "continuous"}
_METRIC |= {"min_score": 0.0, "max_score": "Infinity"}
_DIGEST = "sha256:"
_Prompts = Mapping[str, tuple[int, float]]  # By digest, the answers and their mean similarity.
#: The frozen protocols, by name.
PROTOCOLS = pathlib.Path(__file__).with_name("protocols.json")


def digest(prompt: str) -> str:
    """What stands for the text of a prompt in a record; 'sha256:...' already does."""
    if prompt.startswith(_DIGEST):
        return prompt.removeprefix(_DIGEST)
    return hashlib.sha256(prompt.encode(errors="surrogatepass")).hexdigest()[:16]


def record_of(
    evaluation: Evaluation,
    model: str,
    *,
    name: str = "diversity of answers",
    encoder: Mapping[str, Any] | str | None = None,
    organization: str = "unknown",
) -> dict[str, Any]:
    """The record of a model: see `Evaluation.record`."""
    developer, _, plain = model.rpartition("/") if isinstance(model, str) else ("", "", "")
    if not plain.strip():
        raise ValueError(f"model: expected a name such as developer/model, received {model!r}.")
    named: Any = {"text_encoder": encoder} if isinstance(encoder, str) else encoder
    told = named or evaluation.encoder
    role = next((role for role in _ROLES if told.get(role)), "")
    details = told.get(f"{role}_details") or {}
    revision = told.get(f"{role}_revision") or details.get("revision") or details.get("weights")
    known = {"encoder": told.get(role), "encoder_revision": revision}
    every = [scored.population for scored in evaluation.orders if scored.population]
    by_text = every[0].by_prompt if every and evaluation.unbiased else {}
    prompts = {digest(text): numbers for text, numbers in by_text.items()}
    name = _protocol(evaluation, known, prompts) or name
    asked = {"prompts": str(evaluation.distinct_prompts), "read": evaluation.read}
    asked["prompts_sha256"] = digest(" ".join(sorted(prompts))) if prompts else ""
    source: dict[str, Any] = {"dataset_name": name, "source_type": "other"}
    source["additional_details"] = {key: text for key, text in asked.items() if text}
    finite = [line for line in evaluation.lines() if math.isfinite(line["value"])]
    about = {"evaluation_name": name, "source_data": source}
    results = [about | _result(evaluation, line, known, prompts) for line in finite]
    info = {"name": plain, "id": f"{developer or 'unknown'}/{plain}"}
    run = {"source_type": "evaluation_run", "source_organization_name": organization}
    library = {"name": LIBRARY, "version": condvendi_jax.__version__}
    now, versions = f"{time.time():.0f}", {"jax": jax.__version__, "numpy": np.__version__}
    return {
        "schema_version": "0.3.0",
        "evaluation_id": f"{name}/{info['id']}/{now}",
        "retrieved_timestamp": now,
        "source_metadata": run | {"evaluator_relationship": "other"},
        "eval_library": library | {"additional_details": versions},
        "model_info": info | {"developer": developer or "unknown", "additional_details": _UNKNOWN},
        "evaluation_results": results,
    }


def _result(
    evaluation: Evaluation, line: Mapping[str, Any], known: Mapping[str, Any], prompts: _Prompts
) -> dict[str, Any]:
    """The score of a line with its interval, and how it was computed."""
    scored, unbiased = evaluation.order(float(line["order"])), line["unbiased"]
    parameters = {name: line[name] for name in ("order", "truncation", "unbiased")} | {**known}
    for role, (width, rule, _) in evaluation.bandwidths.items():
        parameters |= {f"{role}_bandwidth": width, f"{role}_kernel": rule}
    least, most = evaluation.answers or (None, None)
    parameters |= {"outputs": line["n"], "least_answers": least, "most_answers": most}
    parameters["saturated"] = scored.saturated.get(line["score"])
    by = scored.errors_by  # Of which units the error is, such as prompts.
    method = {"method": str(by or scored.decomposition.method)}
    uncertainty: dict[str, Any] = {"num_samples": by.groups if by else line["n"]}
    if math.isfinite(line["standard_error"]):
        uncertainty["standard_error"] = {"value": float(line["standard_error"])} | method
    if math.isfinite(line["high"] - line["low"]):  # The format has no infinity.
        ends = {"lower": float(line["low"]), "upper": float(line["high"])}
        uncertainty["confidence_interval"] = ends | {"confidence_level": 0.95} | method
    title = score_name(line["score"], scored.decomposition.order, line["truncation"])
    metric = {"metric_id": f"{LIBRARY}.{re.sub(r'[^a-z0-9]+', '_', title.lower())}"}
    metric["metric_id"] += ".unbiased" * unbiased
    metric |= {**_METRIC, "metric_name": title + ", unbiased" * unbiased}
    metric |= {"metric_unit": evaluation.noun, "metric_parameters": parameters}
    details: dict[str, Any] = {"score": float(line["value"]), "uncertainty": uncertainty}
    if metric["metric_id"] == METRIC and prompts:
        rows = {key: [k, float(f"{u:.7g}")] for key, (k, u) in prompts.items()}
        details["details"] = {BY_PROMPT: json.dumps(rows)}
    return {"metric_config": metric, "score_details": details}


def _protocol(evaluation: Evaluation, known: Mapping[str, Any], prompts: _Prompts) -> str | None:
    """The frozen protocol that an evaluation follows, with its version; None if it follows none."""
    width = evaluation.bandwidths["outputs"].bandwidth
    for name, wanted in json.loads(PROTOCOLS.read_text(encoding="utf-8")).items():
        alike = wanted["compared"] == {**known, "outputs_bandwidth": width}
        enough = min((k for k, _ in prompts.values()), default=0) >= wanted["least_answers"]
        if alike and enough and {*prompts} == {*wanted["prompts"]}:
            return f"{name}, version {wanted['version']}"
    return None
