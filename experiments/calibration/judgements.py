"""Sets of responses that people judged: their scores in many configurations, and pools of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import condvendi_jax as cv
from condvendi_jax import spectra
from condvendi_jax.data import bandwidth
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.entropies import log_scores
from experiments.data import PairedEmbeddings
from experiments.lab import Bandwidths, Scales, agreement

METRIC = "metric_"
SCORES = ("Conditional-RKE", "RKE", "Conditional-Vendi", "Vendi")
SCORES += ("Conditional-RKE, unbiased", "RKE, unbiased")
_POOLED = (cv.Entropy(order=2), cv.Entropy(order=1))
# Contexts of the less diverse pool, as a multiple of those of the more diverse one.
DESIGNS = {"as many contexts in both": 1, "twice the contexts in the less diverse": 2}
_ENOUGH = 0.95
_SHARES = (0.0, 0.25, 0.5, 0.75)  # Of the context's embedding.
SIMILARITIES = ("edit_similarity", "trigram_similarity", "token_similarity")
_KEY = 0x4D0DE5  # Of the second encoder's bandwidth.


class Responses(NamedTuple):
    """The sets, in the order of their numbers: the rows, task and context of each.

    The labels `[S]` are by role: people, label, temperature and the published metrics.
    """

    members: list[np.ndarray]
    task: np.ndarray
    context: np.ndarray
    labels: dict[str, np.ndarray]

    @classmethod
    def of(cls, pairs: PairedEmbeddings) -> Responses:
        """The sets of some pairs.

        Raises:
          ValueError: a label or the prompt differs within a set, or a set has one response.
        """
        _, first, index = np.unique(pairs.labels["sets"], return_index=True, return_inverse=True)
        members = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
        context = np.unique(pairs.prompts, axis=0, return_inverse=True)[1].reshape(-1)
        known = {"prompts": context, **pairs.labels}
        for role, values in known.items():
            words = values.astype(str)  # NaN equals NaN.
            differ = np.flatnonzero(words != words[first][index])
            if differ.size:
                raise ValueError(
                    f"{role}: expected one value a set, row {differ[0]} differs in its set."
                )
        if (fewest := min(map(len, members))) < 2:
            raise ValueError(f"sets: expected two responses or more in each, received {fewest}.")
        people = pairs.labels["people"]
        if people.dtype.kind not in "iuf" or not np.all(np.isfinite(people)):
            raise ValueError("people: expected finite numbers, one for each row.")
        numbers = {
            role: values[first].astype(np.float64)
            for role, values in pairs.labels.items()
            if role in ("people", "label", "temperature") or role.startswith(METRIC)
        }
        task = known.get("task", np.full(len(people), pairs.name)).astype(str)
        return cls(members, task[first], context[first], numbers)

    def some(self, chosen: np.ndarray) -> Responses:
        """Some of the sets, by their numbers."""
        return Responses(
            [self.members[s] for s in chosen],
            self.task[chosen],
            self.context[chosen],
            {role: values[chosen] for role, values in self.labels.items()},
        )


@functools.partial(jax.jit, static_argnames="orders")
def _entropies_of_sets(
    rows: jax.Array, kernel: cv.Kernel, *, orders: tuple[float, ...]
) -> jax.Array:
    """H(X) in nats of each of some sets `[S, k, d]` at each order, `[orders, S]`."""

    def of_one(outputs: jax.Array) -> jax.Array:
        points = Pairs(outputs, output_kernel=kernel)
        wanted = [cv.Entropy(order=order) for order in orders]
        found = spectra.compute(points, wanted, spectra.Exact())
        return jnp.stack([computed.values.outputs for computed in found])

    return jax.vmap(of_one, out_axes=1)(rows)


def scores_of_sets(
    pairs: PairedEmbeddings,
    members: Sequence[np.ndarray],
    tried: Mapping[str, Sequence[Any]],
    units: Mapping[str, float],
    cosine: bool = False,
) -> np.ndarray:
    """H(X) of each set in nats, in every configuration, `[C, S]`.

    What is tried: encoders, shares of the context that are subtracted, multiples of the bandwidth,
    which is one of `units` for each encoder, and orders. The cosine kernel has no bandwidth.
    """
    encoders, less, multiples, orders = tried.values()
    size = np.array(list(map(len, members)))
    found = np.zeros((*map(len, tried.values()), len(members)), np.float32)
    for (e, encoder), (c, share) in itertools.product(enumerate(encoders), enumerate(less)):
        outputs = representation(pairs, units, encoder, share)
        for (m, multiple), k in itertools.product(enumerate(multiples), np.unique(size)):
            sets = np.flatnonzero(size == k)
            rows = outputs[np.stack([members[s] for s in sets.tolist()])]
            kernel = cv.Cosine() if cosine else cv.Gaussian(multiple)
            found[e, c, m][:, sets] = _entropies_of_sets(rows, kernel, orders=tuple(orders))
    return found.reshape(-1, len(members))


def scores_of_similarities(
    pairs: PairedEmbeddings, members: Sequence[np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """H(X) of each set in nats by score and similarity, `[S]` each, that of the cosine beside them.

    The second result is the share of negative eigenvalues in the trace of each similarity.
    """
    sets, vectors, negative = pairs.labels["sets"], {}, {}
    for role in filter(pairs.further.__contains__, SIMILARITIES):
        grams = {sets[of[0]].item(): pairs.further[role][of, : len(of)] for of in members}
        similarities = cv.Similarities(grams, prompts=sets.tolist(), name=role)
        name = role.replace("_", " ")
        vectors[name], negative[name] = similarities.vectors, similarities.negative
    if vectors:
        vectors["cosine similarity"] = pairs.outputs
    scores = {}
    tried = {"encoder": ["first"], "less": [0.0], "multiple": [1.0], "order": [1.0, 2.0]}
    for name, rows in vectors.items():
        of_name = dataclasses.replace(pairs, outputs=rows.astype(np.float32))
        both = scores_of_sets(of_name, members, tried, {"first": 1.0}, cosine=True)
        scores |= dict(zip((f"Vendi, {name}", f"RKE, {name}"), both, strict=True))
    return scores, negative


def encoders_of(pairs: PairedEmbeddings) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """The outputs and the contexts as the first encoder has them, and the second where there is."""
    found: dict[str, Any] = {"first": (pairs.outputs, pairs.prompts)}
    if "second_outputs" in pairs.further:
        found["second"] = (pairs.further["second_outputs"], pairs.further.get("second_prompts"))
    return found


def shares_of(pairs: PairedEmbeddings) -> tuple[float, ...]:
    """How much of the context is subtracted: nothing where it is not as long as the outputs."""
    alike = [t is not None and t.shape == x.shape for x, t in encoders_of(pairs).values()]
    return _SHARES if all(alike) else (0.0,)


def units_of(pairs: PairedEmbeddings, bandwidths: Scales, seed: int) -> dict[str, float]:
    """The bandwidth of each encoder; 1 for the cosine kernel."""
    encoders, first = encoders_of(pairs), bandwidths.output_bandwidth
    if first is None:
        return dict.fromkeys(encoders, 1.0)
    units = {"first": first}
    if "second" in encoders:
        key = jax.random.fold_in(jax.random.key(seed), _KEY)
        second, rule = encoders["second"][0], bandwidths.rule
        chosen = bandwidth.bandwidth_by_rule(second, rule, key=key, partitions=1).bandwidth
        assert chosen is not None
        units["second"] = chosen
    return units


def representation(
    pairs: PairedEmbeddings, units: Mapping[str, float], encoder: str, less: float
) -> np.ndarray:
    """The outputs by one or both encoders, in units of bandwidths, less a part of the context.

    A multiple of the prompt's embedding is subtracted, and the row scaled to its norm again. Both
    stand side by side, so that their Gaussian kernel is the product of the two.
    """
    found = []
    for name, (outputs, prompts) in encoders_of(pairs).items():
        if encoder not in (name, "both"):
            continue
        if less:
            assert prompts is not None
            rest = outputs - np.float32(less) * prompts
            norms, wanted = (np.linalg.norm(x, axis=1, keepdims=True) for x in (rest, outputs))
            outputs = rest * (wanted / np.maximum(norms, np.finfo(np.float32).tiny))
        found.append(outputs / np.float32(units[name]))
    return np.concatenate(found, axis=1)


def choose_elsewhere(
    scores: np.ndarray, people: np.ndarray, fold: np.ndarray, orders: Sequence[float]
) -> np.ndarray:
    """What each fold is judged by: the number of the best configuration on the others, `[folds]`.

    Of scores `[C, n]`, of order `[C]`, the people's `[n]` in a fold have no part in its choice.
    """
    others = [fold != part for part in range(fold.max() + 1)]
    found = [agreement.spearman(scores[:, sets], people[sets], orders) for sets in others]
    return np.nanargmax(found, axis=1)


def choose_on_other_tasks(
    orders: Sequence[float], responses: Responses, scores: np.ndarray, task: str
) -> int | None:
    """The configuration that is best on the other tasks, where they have other contexts."""
    own = np.unique(responses.context[responses.task == task])
    means = []
    for other in dict.fromkeys(responses.task.tolist()):
        sets = (responses.task == other) & ~np.isin(responses.context, own)
        if other != task and np.sum(sets) > 2:
            people = responses.labels["people"][sets]
            means.append(agreement.spearman(scores[:, sets], people, orders))
    return int(np.nanargmax(np.mean(means, axis=0))) if means else None


def draw_pools(
    sets: np.ndarray, context: np.ndarray, count: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """`count` times the sets `[h]` in a random order, one of each context that there is."""
    orders = [generator.permutation(sets) for _ in range(count)]
    return [o[np.sort(np.unique(context[o], return_index=True)[1])] for o in orders]


@functools.partial(jax.jit, static_argnames="contexts")
def _scores_of_pools(
    outputs: jax.Array,
    prompts: jax.Array,
    rows: jax.Array,
    kernels: Mapping[str, Any],
    *,
    contexts: int,
) -> jax.Array:
    """The logarithms of `SCORES` of some pools `[p, n]` of rows, `[p, SCORES]`."""
    ids = np.repeat(np.arange(contexts), rows.shape[1] // contexts)

    def of_one(chosen: jax.Array) -> jax.Array:
        points: dict[str, Any] = {"outputs": outputs[chosen], "prompts": prompts[chosen], **kernels}
        found = spectra.compute(Pairs(**points), _POOLED, spectra.Exact())
        logs = log_scores(*jnp.stack([jnp.stack(computed.values) for computed in found]).T)
        again = Pairs(**points, prompt_ids=ids)
        unbiased = cv.decompose(again, order=2, unbiased=True).log_scores
        each = [jnp.stack([of.conditional, of.vendi], axis=-1) for of in (logs, unbiased)]
        return jnp.concatenate([of.reshape(-1) for of in each])

    return jax.lax.map(of_one, rows)


def tell_pools(
    pairs: PairedEmbeddings,
    sets: Responses,
    scales: Sequence[Bandwidths],
    contexts: Sequence[int],
    draws: int,
    generator: np.random.Generator,
    say: Callable[[str], None],
) -> np.ndarray:
    """How often the more diverse of two pools scores higher, `[designs, scales, SCORES, contexts]`.

    The pools are of the sets above and below the median of the people's scores, one set a context.
    NaN where there are too few contexts, or their number in the other pool is not asked for.
    """
    people, size = sets.labels["people"], min(map(len, sets.members))
    rows = np.stack([members[:size] for members in sets.members])
    middle = np.median(people)
    above, below = (
        draw_pools(np.flatnonzero(part), sets.context, draws, generator)
        for part in (people > middle, people < middle)
    )
    outputs, prompts = jnp.asarray(pairs.outputs), jnp.asarray(pairs.prompts)

    def scores(pools: list[np.ndarray], count: int, kernels: Mapping[str, Any]) -> np.ndarray:
        """`[draws, SCORES]` of the first `count` contexts; NaN where there are fewer."""
        if not pools or min(map(len, pools)) < count:
            return np.full((draws, len(SCORES)), np.nan)
        chosen = np.stack([rows[pool[:count]].reshape(-1) for pool in pools])
        logs = _scores_of_pools(outputs, prompts, chosen, kernels, contexts=count)
        return np.asarray(logs, np.float64)

    shape = len(DESIGNS), len(scales), len(SCORES), len(contexts)
    right = np.full(shape, np.nan)
    for b, bandwidths in enumerate(scales):
        kernels = bandwidths.kernels
        say(f"pools, bandwidth {bandwidths}")
        more, less = (
            {count: scores(pools, count, kernels) for count in contexts} for pools in (above, below)
        )
        for (d, factor), (p, m) in itertools.product(
            enumerate(DESIGNS.values()), enumerate(contexts)
        ):
            if factor * m in less:
                gain = more[m] - less[factor * m]
                shares = np.where(np.isnan(gain), np.nan, (np.sign(gain) + 1) / 2)
                right[d, b, :, p] = shares.mean(axis=0)
    return right


def enough(right: np.ndarray, contexts: Sequence[int]) -> int | None:
    """From how many contexts on the more diverse pool scores higher 95 times in 100.

    From how often it is right at each number of them, NaN where there are too few.
    """
    fine = np.array(contexts)[np.isfinite(right)]
    wrong = np.array(contexts)[right < _ENOUGH]
    above = fine[fine > wrong.max(initial=0)]
    return int(above[0]) if above.size else None
