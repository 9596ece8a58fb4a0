"""A metric for Inspect: how many different answers a model gives to a prompt."""

import functools
import importlib
import logging
from typing import Any

import numpy as np

from condvendi_jax.base import checks, extras
from condvendi_jax.data.kernels import Gaussian, Indicator
from condvendi_jax.encoders import embedding
from condvendi_jax.inference import evaluate
from condvendi_jax.records import answers as texts
from condvendi_jax.records.cleaning import cleaned
from condvendi_jax.records.files import INSPECT_METRIC as _NAME
from condvendi_jax.spectra import AUTO


def answer_diversity(
    *,
    bandwidth: float,
    order: float = 2,
    encoder: Any = None,
    cache: str | None = None,
    clean: bool = True,
) -> Any:
    """A metric of Inspect: the conditional score of all answers, and its error over the samples.

    The answers are `score.answer` of all epochs. A sample is a prompt that no other sample shares
    (`Indicator`). The score is then a mean, over samples, of the effective number of different
    answers: geometric at order 1, harmonic at order 2, which is unbiased: it does not grow with the
    epochs. `condvendi score --equal_prompts` gives the same number for the log at this bandwidth.

    Args:
      bandwidth: of the Gaussian kernel of the answers. Compare models at one bandwidth only.
      order: in (0, inf].
      encoder: an import path or an object with `encode(texts)`; None is all-MiniLM-L6-v2.
      cache: the folder of embeddings; the user's cache folder if None.
      clean: as of `cv.read_records`.

    Returns:
      A metric of the values `answer_diversity` and `answer_diversity_stderr`, effective numbers,
      NaN without answers, where no sample has two, or at order 2 where all differ. Scores without
      an answer or a sample id are left out and logged.

    Raises:
      TypeError, ValueError: an argument is not valid, or a package is not installed.
    """
    with extras.needed("records", package="inspect_ai", purpose="a metric of Inspect"):
        metric = importlib.import_module("inspect_ai.scorer").metric
    made = metric(name=_NAME, scores="unreduced")(_metric)
    return made(bandwidth=bandwidth, order=order, encoder=encoder, cache=cache, clean=clean)


def _metric(*, bandwidth: float, order: float, encoder: Any, cache: Any, clean: bool) -> Any:
    kernels = {"output_kernel": Gaussian(bandwidth), "prompt_kernel": Indicator()}
    orders = [checks.check_order(order)]
    encoder = embedding.encoder_of("texts", encoder)
    tell = functools.cache(logging.getLogger(__name__).warning)  # Each warning once.

    def compute(scores: list[Any]) -> dict[str, float]:
        known = [one for one in scores if one.sample_id is not None]
        answers = [one.score.answer or "" for one in known]
        samples = [repr(one.sample_id) for one in known]  # 1 is another sample than "1".
        answers = cleaned(answers, [None] * len(answers)).texts if clean else answers
        kept = [k for k, text in enumerate(answers) if not texts.is_blank(text)]
        answers, samples = ([rows[k] for k in kept] for rows in (answers, samples))
        if left := len(scores) - len(answers):
            tell(f"{_NAME}: {left} scores without an answer or a sample id are left out.")
        for line in texts.doubts(answers, samples):
            tell(f"{_NAME}: {line}: these may not be answers.")
        value = error = np.nan
        if answers and len({*samples}) == len(answers):
            tell(f"{_NAME}: no sample has two answers, so it is NaN; evaluate with epochs=10.")
        elif answers:
            outputs = embedding.embed(answers, encoder, kind="texts", cache=cache)
            scored = evaluate(outputs, samples, orders=orders, method=AUTO, **kernels).orders[0]
            value = float((scored.unbiased or scored.decomposition.scores).conditional)
            errors = (scored.population or scored).standard_errors
            error = np.nan if errors is None else errors.conditional
            if scored.unbiased and scored.saturated.get("conditional") == "largest":
                tell(f"{_NAME}: nearly all answers to a sample differ: NaN; use more epochs.")
                value = error = np.nan
        return {_NAME: float(value), f"{_NAME}_stderr": float(error)}

    return compute
