"""The conditional scores of k = 1, 2, ... different outputs of every prompt."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from scipy import special
from scipy.spatial import distance

import condvendi_jax as cv
from condvendi_jax import inference, spectra
from condvendi_jax.base import checks
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import figures, models, style, tables

ORDERS = (1.0, 2.0, math.inf)
ENOUGH = 100  # Prompts that a score is of.
DISTANCE = 6.0  # Bandwidths between the nearest two prompts, told apart: a kernel of exp(-18).

BLENDED, APART = "rule", "apart"
_WORDS = {BLENDED: "prompts by the rule", APART: "prompts told apart"}
# At one n: the more outputs a prompt, the fewer prompts.
NAMES = ("Conditional-Vendi", "Conditional-RKE", "Conditional-Vendi, order inf")
UNBIASED = "Conditional-RKE, unbiased"  # With any number of outputs a prompt.
# On all prompts, whose n grows with k; the means of the scores of a prompt's own outputs.
WHOLE, VENDI, RKE = "Conditional-RKE, all prompts", "mean Vendi of a prompt", "mean RKE of a prompt"
_LOOKS = (style.BLUE, style.VERMILION, style.VERMILION, style.ORANGE, style.BLACK)
_COLOURS = dict(zip((*NAMES[:2], UNBIASED, WHOLE, RKE), _LOOKS, strict=True))


class Designs(lab.Study):
    """Do conditional scores count the different designs of an emoji?"""

    control = "k designs of each name are scored, so n grows with k; order 2 is also unbiased."
    grows = ("k",)
    version = 2
    needs = ("prompt",)
    takes = ("models",)

    bandwidths: lab.Scales = lab.Scales()
    most: int | None = lab.flag(
        help="The largest number of outputs a prompt; prompts that have fewer take no part. As "
        f"many as {ENOUGH} prompts have if unset.",
        at_least=2,
    )
    draws: int = lab.flag(
        5, "Random choices of the models (or outputs) and of the prompts.", at_least=1
    )
    prompts: int = lab.resolved(0)
    apart: float | None = lab.resolved()
    models: tuple[str, ...] = lab.resolved(())

    def prepare(self, load, seed):
        loaded = load()
        prompt = prompts_of(loaded)
        counts = np.bincount(prompt)
        most = most_of(counts) if self.most is None else self.most
        kept = np.flatnonzero(counts >= most)
        if len(kept) < 2 * most:
            few = f"{len(kept)} prompts have so many outputs"
            raise ValueError(f"--most={most}: {few}, expected at least {2 * most}.")
        pairs = loaded.rows(np.isin(prompt, kept))
        distinct = np.unique(pairs.prompts, axis=0).astype(np.float64)
        names, of_each = [], np.zeros(1)
        if "models" in pairs.labels:
            names, of_each = models.count_rows(pairs, least=1)
        least, cosine = distance.pdist(distinct).min(), self.bandwidths.kernel == "cosine"
        return self.ready(
            loaded,
            state=pairs,
            bandwidths=self.bandwidths.resolve(pairs, seed),
            most=most,
            prompts=len(kept),
            apart=None if cosine else float(least) / DISTANCE,
            models=tuple(names) if (of_each == 1).all() else (),
        )

    def axes(self):
        kinds = (BLENDED,) if self.apart is None else (BLENDED, APART)
        return {"scale": self.bandwidths.axis, "prompts": kinds, "draw": range(self.draws)}

    def compute(self, state, context, *, scale, prompts, draw):
        """The scores by `curve` and `k`, outputs a prompt, with errors by the jackknife at order 2.

        `alike` is the mean squared kernel of two models' outputs of a prompt, where every model has
        one output of each. WHOLE is there in the first draw only.
        """
        pairs, most = state, self.most or 0
        generator = np.random.default_rng((int(jax.random.bits(context.shared_key)), draw))
        designs = in_random_order(pairs, generator)[:, :most]
        if prompts == APART:
            scale = dataclasses.replace(scale, prompts=self.apart)
        kernel = jax.vmap(jax.vmap(scale.kernels["output_kernel"], (None, 0)), (0, None))
        own = jnp.asarray(pairs.outputs[designs])  # The outputs of each prompt.
        grams = np.asarray(jax.lax.map(lambda of: kernel(of, of), own), np.float64)
        curves, sizes = [*NAMES, UNBIASED, WHOLE, VENDI, RKE], []
        axes = {"curve": curves, "k": np.arange(1, most + 1)}
        value, error = (xr.DataArray(np.nan, axes, tuple(axes)) for _ in range(2))
        for k in range(1, most + 1):
            context.say(f"{k} outputs a prompt")
            few, every = designs[: self.prompts // k, :k], designs[:, :k]
            points = points_of(pairs, few, scale)
            sizes.append(points.n)
            whole = spectra.compute(points, [cv.Entropy(order=o) for o in ORDERS], cv.Exact())
            logs = [of.values.joint - of.values.prompts for of in whole]
            value.loc[list(NAMES), k] = np.exp(logs)
            error.loc[NAMES[1], k] = order_two(points, few, context.shared_key)[1]
            if k > 1 or prompts == BLENDED:  # Else no two rows have one prompt.
                value.loc[UNBIASED, k] = cv.conditional_rke(points, unbiased=True)
            if draw == 0:
                points = points_of(pairs, every, scale)
                of_two = order_two(points, every, context.shared_key)
                value.loc[WHOLE, k], error.loc[WHOLE, k] = of_two
            values = np.linalg.eigvalsh(grams[:, :k, :k] / k)
            vendi = np.exp(np.sum(special.entr(np.maximum(values, 0)), axis=1))
            value.loc[[VENDI, RKE], k] = [vendi.mean(), np.mean(1 / np.sum(values**2, axis=1))]
        found = xr.Dataset({"value": value, "error": error, "n": (("k",), sizes)})
        if not self.models:
            return found
        names = pairs.labels["models"][designs[0]].astype(str)
        alike = xr.DataArray(np.mean(grams**2, axis=0), [("model", names), ("other", names)])
        return found.assign(alike=alike.sortby(["model", "other"]))

    def tables(self, run):
        """How much of the known counts each score finds, ± the deviation over the draws."""
        means = over_draws(run.found).sel(k=sorted({2, self.most or 2}))
        yield tables.table(means, rows=("scale", "prompts", "curve"), columns="k", error="error")

    @classmethod
    def figures(cls, runs):
        drawn = {k: of for run in runs for k, of in _counts(run).items()}
        with_models = [run for run in runs if run.study.models]
        return drawn | {f"{run.folder.name}_pairs": _pairs(run) for run in with_models}

    @classmethod
    def facts(cls, runs):
        (run,) = runs
        means = over_draws(run.found)
        means["error"] = means.error.where(means.error > 1e-9)  # Of all designers there is none.
        nine, two = means.isel(k=-1), _of_two(run).sel(scale=1)
        apart = nine.value.sel(prompts=APART)

        def at(curve, scale, prompts, k=0, what="value"):
            return means[what].sel(curve=curve, scale=scale, prompts=prompts).isel(k=k - 1)

        shown, rows = nine.drop_sel(curve=[NAMES[2], WHOLE, VENDI]), ("prompts", "curve")
        return {
            **dict(zip("VCIUW", (*NAMES, UNBIASED, WHOLE), strict=True)),
            "at": at,
            "shown": tables.table(shown, rows=rows, columns="scale", error="error", digits=3),
            "infinite": apart.sel(curve=NAMES[2]).max(),
            "below": 1 - (apart.sel(curve=NAMES[1]) / apart.sel(curve=RKE)).min(),
            "two": two,
            "two_mean": two.where(two.model != two.other).mean(),
        }


def prompts_of(pairs: PairedEmbeddings) -> np.ndarray:
    """The number of every pair's prompt, `[n]`; labels and embeddings must agree on it."""
    label = pairs.prompt_numbers
    count, embedded = checks.distinct_rows(pairs.prompts)
    if not len(np.unique(label * count + embedded)) == count == label.max() + 1:
        found = f"{label.max() + 1} labels for {count} different rows of the prompts"
        raise ValueError(f"--prompt: {found}; pairs of one prompt have one label and equal rows.")
    return label


def most_of(counts: np.ndarray) -> int:
    """The largest number of outputs that enough prompts have, or half of them where few are."""
    needed = min(ENOUGH, -(-len(counts) // 2))
    return int(np.sort(counts)[-needed])


def in_random_order(pairs: PairedEmbeddings, generator: np.random.Generator) -> np.ndarray:
    """The rows of every prompt, prompts and models in random orders, `[prompts, least count]`.

    Where outputs have models, their order is the same for every prompt.
    """
    prompt = pairs.prompt_numbers
    order = generator.permutation(prompt.max() + 1)
    names, model = np.unique(pairs.labels.get("models", np.zeros(len(pairs))), return_inverse=True)
    rank = generator.permutation(len(names))[model] + generator.uniform(size=len(pairs))
    return models.rows_by_cell(prompt, np.zeros_like(prompt), rank)[order, 0]


def points_of(pairs: PairedEmbeddings, designs: np.ndarray, scale: lab.Bandwidths) -> cv.Pairs:
    """The pairs of some designs `[prompts, k]`, prompt by prompt."""
    arrays = tuple(jnp.asarray(a[designs.ravel()]) for a in (pairs.outputs, pairs.prompts))
    kernels = zip(scale.kernels.values(), arrays, strict=True)
    # Without the checks, which warn of prompts that are told apart: here they are meant to be.
    return cv.Pairs.trusted(arrays, tuple(k.suited_to(a) for k, a in kernels), n=designs.size)


def order_two(points: cv.Pairs, designs: np.ndarray, key: jax.Array) -> tuple[float, float]:
    """Conditional-RKE and its error by the jackknife over at most 20 groups of prompts."""
    prompts, k = designs.shape
    membership = np.repeat(np.asarray(jax.random.permutation(key, prompts)) % min(20, prompts), k)
    groups = inference.Groups(membership, "prompts")
    found = inference.delete_groups(points, cv.Entropy(2), groups)
    assert found.standard_errors is not None
    return float(found.decomposition.conditional), found.standard_errors.conditional


def over_draws(found: xr.Dataset) -> xr.Dataset:
    """Means over the draws, and their standard deviation; of WHOLE, the jackknife's error."""
    first = found[["value", "error"]].isel(draw=0, drop=True)
    finite = found.value.where(np.isfinite(found.value))  # Unlike outputs are any number.
    return tables.spreads(finite, "draw").where(found.curve != WHOLE, first)


def _of_two(run):
    """What two models' outputs of one prompt count for, where prompts are told apart."""
    return 2 / (1 + run.found.alike.isel(draw=0, prompts=-1))


def _counts(run):
    """Conditional-Vendi by bandwidth; and all scores, prompt bandwidths in rows."""
    study, shown = run.study, over_draws(run.found)
    vendi, last = shown.sel(curve=NAMES[0]), shown.value.sel(k=study.most)

    def known(panel, part):
        panel.plot(part.k, part.k, color=style.BLACK, linestyle=":", zorder=0)
        panel.set_xticks(part.k)

    look = {"x": "k", "error": "error", "each": known, "x_label": "designs of an emoji"}
    scales = {x: f"x {x:g}" for x in shown.scale.values}
    first = figures.facets(
        vendi, hue="scale", column="prompts", names=scales | _WORDS, size=(3.5, 2.8), **look
    )
    parts = [(scales[x], last.sel(curve=NAMES[0], scale=x)) for x in scales]
    words = ", ".join(f"{of.min():.1f} to {of.max():.1f} (bandwidth {x})" for x, of in parts)
    style.headline(first, f"{study.most} designs count as {words}")
    every = figures.facets(
        shown.sel(curve=list(_COLOURS)), hue="curve", row="prompts", column="scale", log_y=True,
        colours=_COLOURS, title=lambda of, x: f"{_WORDS[of]}, {scales[x]}", size=(2.5, 2.3),
        sharey=True, **look,
    )  # fmt: skip
    ratio = (last.sel(curve=NAMES[1]) / last.sel(curve=RKE)).transpose("prompts", ...)
    spans = [f"{_WORDS[of.prompts.item()]} {of.min():.2f} to {of.max():.2f}" for of in ratio]
    style.headline(every, f"Conditional-RKE over the mean RKE of a prompt: {', '.join(spans)}")
    bars, drawn = f"deviation over {study.draws} choices", {"": first, "_scores": every}
    n = f"n = {study.prompts:,}; dotted: score = count"
    name = run.folder.name
    return {f"{name}{k}": figures.caption(of, run, n=n, bars=bars) for k, of in drawn.items()}


def _pairs(run):
    """`_of_two` at the scale that is shown."""
    study, of_two = run.study, _of_two(run)
    names, shown = study.models, study.bandwidths.shown
    figure, (panel,) = style.panels(1, size=(7.0, 5.2))
    score = of_two.sel(scale=shown).values
    words = [[f"{value:.2f}" for value in row] for row in score]
    style.matrix(panel, score, names, words, vmin=1, vmax=2, cmap="viridis")
    least = {np.argmin(of + np.eye(len(names))) for of in of_two.transpose("scale", ...).values}
    i, j = np.unravel_index(np.argmin(score + np.eye(len(names))), score.shape)
    where = "at every bandwidth" if len(least) == 1 else f"at {shown:g} of the bandwidth"
    style.headline(figure, f"{names[i]} and {names[j]} are most alike {where}")
    panel.set_title("Conditional-RKE of two: 1 if the same, 2 if unlike")
    n = f"{study.prompts:,} told apart"
    return figures.caption(figure, run, n=n, scale=shown)
