"""The conditional scores of k = 1, 2, ... different outputs of every prompt."""

import dataclasses

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import condvendi_jax as cv
from experiments import lab
from experiments.calibration import known_counts
from experiments.lab import figures, style, tables

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

    name = "designs"
    version = 2
    duration = "2 minutes"
    needs = ("prompt",)
    takes = ("models",)
    drawings = ("designs", "designs_pairs")

    bandwidths: lab.Scales = lab.Scales()
    most: int | None = lab.flag(
        None,
        "The largest number of outputs a prompt; prompts that have fewer take no part. As many as "
        f"{known_counts.ENOUGH} prompts have if unset.",
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
        prompt = known_counts.prompts_of(loaded)
        counts = np.bincount(prompt)
        most = known_counts.most_of(counts) if self.most is None else self.most
        kept = np.flatnonzero(counts >= most)
        if len(kept) < 2 * most:
            few = f"{len(kept)} prompts have so many outputs"
            raise ValueError(f"--most={most}: {few}, expected at least {2 * most}.")
        pairs = loaded.rows(np.isin(prompt, kept))
        cosine = self.bandwidths.kernel == "cosine"
        return self.ready(
            loaded,
            state=pairs,
            bandwidths=self.bandwidths.resolve(pairs, seed),
            most=most,
            prompts=len(kept),
            apart=None if cosine else known_counts.apart(pairs.prompts),
            models=known_counts.models_of(pairs),
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
        designs = known_counts.in_random_order(pairs, generator)[:, :most]
        if prompts == APART:
            scale = dataclasses.replace(scale, prompts=self.apart)
        grams = known_counts.grams_of(pairs.outputs[designs], scale.kernels["output_kernel"])
        curves, sizes = [*NAMES, UNBIASED, WHOLE, VENDI, RKE], []
        axes = {"curve": curves, "k": np.arange(1, most + 1)}
        value, error = (xr.DataArray(np.nan, axes, tuple(axes)) for _ in range(2))
        for k in range(1, most + 1):
            context.say(f"{k} outputs a prompt")
            few, every = designs[: self.prompts // k, :k], designs[:, :k]
            points = known_counts.points_of(pairs, few, scale)
            sizes.append(points.n)
            value.loc[list(NAMES), k] = known_counts.conditional(points)
            error.loc[NAMES[1], k] = known_counts.order_two(points, few, context.shared_key)[1]
            if k > 1 or prompts == BLENDED:  # Else no two rows have one prompt.
                value.loc[UNBIASED, k] = cv.conditional_rke(points, unbiased=True)
            if draw == 0:
                points = known_counts.points_of(pairs, every, scale)
                whole = known_counts.order_two(points, every, context.shared_key)
                value.loc[WHOLE, k], error.loc[WHOLE, k] = whole
            value.loc[[VENDI, RKE], k] = known_counts.means_within(grams[:, :k, :k])
        found = xr.Dataset({"value": value, "error": error, "n": (("k",), sizes)})
        if not self.models:
            return found
        models = pairs.labels["models"][designs[0]].astype(str)
        in_order = np.argsort(models)
        alike = np.mean(grams**2, axis=0)[np.ix_(in_order, in_order)]
        names = dict.fromkeys(("model", "other"), models[in_order])
        return found.assign_coords(names).assign(alike=(tuple(names), alike))

    def tables(self, run):
        """How much of the known counts each score finds, ± the deviation over the draws."""
        means = over_draws(run.found).sel(k=sorted({2, self.most or 2}))
        rows = ("scale", "prompts", "curve")
        yield tables.table(means, rows=rows, columns="k", error="error")

    @classmethod
    def figures(cls, runs):
        drawn = {}
        for run in runs:
            drawn[run.folder.name] = _counts(run)
            if run.study.models:
                drawn[f"{run.folder.name}_pairs"] = _pairs(run)
        return drawn

    @classmethod
    def facts(cls, runs):
        (run,) = runs
        means = over_draws(run.found)
        means["error"] = means.error.where(means.error > 1e-9)  # Of all designers there is none.
        nine, two = (
            means.isel(k=-1),
            2 / (1 + run.found.alike.isel(draw=0, prompts=-1).sel(scale=1)),
        )
        apart = nine.value.sel(prompts=APART)

        def at(curve, scale, prompts, k=0, what="value"):
            return means[what].sel(curve=curve, scale=scale, prompts=prompts).isel(k=k - 1)

        shown = nine.drop_sel(curve=[NAMES[2], WHOLE, VENDI])
        rows = ("prompts", "curve")
        return {
            **dict(zip("VCIUW", (*NAMES, UNBIASED, WHOLE), strict=True)),
            "at": at,
            "shown": tables.table(shown, rows=rows, columns="scale", error="error", digits=3),
            "infinite": apart.sel(curve=NAMES[2]).max(),
            "below": 1 - (apart.sel(curve=NAMES[1]) / apart.sel(curve=RKE)).min(),
            "two": two,
            "two_mean": two.where(two.model != two.other).mean(),
        }


def over_draws(found: xr.Dataset) -> xr.Dataset:
    """Means over the draws, and their standard deviation; of WHOLE, the jackknife's error."""
    first = found[["value", "error"]].isel(draw=0, drop=True)
    finite = found.value.where(np.isfinite(found.value))  # Unlike outputs are any number.
    return tables.spreads(finite, "draw").where(found.curve != WHOLE, first)


def _counts(run: lab.Run) -> Figure:
    """Prompt bandwidths in rows, scales in columns."""
    study, shown = run.study, over_draws(run.found).sel(curve=list(_COLOURS))

    def title(prompts, scale):
        said = shown.value.sel(prompts=prompts, scale=scale, k=study.most, curve=NAMES[0]).item()
        told = f"{_WORDS[prompts]}, outputs x {scale:g}:"
        return f"{told}\nConditional-Vendi finds {said:.1f} of {study.most}"

    def known(panel, part):
        panel.plot(part.k, part.k, color=style.GREY, linewidth=0.8, zorder=0)
        panel.set_xticks(part.k)

    drawn = figures.facets(
        shown, x="k", hue="curve", row="prompts", column="scale", error="error", colours=_COLOURS,
        title=title, each=known, log_y=True, x_label="outputs a prompt (grey: score = count)",
    )  # fmt: skip
    bars = f"deviation over {study.draws} choices of models and prompts; all prompts: jackknife"
    n = f"the {study.prompts:,} prompts with {study.most} outputs or more, n = {study.prompts:,}"
    return figures.caption(drawn, run, n=n, bars=bars)


def _pairs(run: lab.Run) -> Figure:
    """What two models' outputs of one prompt count for, where prompts are told apart."""
    study = run.study
    models, alike = study.models, run.found.alike.isel(draw=0, prompts=-1)
    figure, axes = style.panels(
        alike.sizes["scale"], columns=alike.sizes["scale"], size=(4.6, 4.2), sharey=True
    )
    for panel, scale in zip(axes, alike.scale.values, strict=True):
        score = 2 / (1 + alike.sel(scale=scale).values)
        words = [[f"{value:.2f}" for value in row] for row in score]
        style.matrix(panel, score, models, words, vmin=1, vmax=2, cmap="viridis")
        i, j = np.unravel_index(np.argmin(score + np.eye(len(models))), score.shape)
        words = f"{models[i]} and {models[j]}: {score[i, j]:.2f}"
        panel.set_title(f"outputs x {scale:g}: most alike are\n{words}")
    n = f"{study.prompts:,} prompts that all models answer, told apart"
    words = "Conditional-RKE of two models' outputs: 1 if they are the same, 2 if unlike"
    return figures.caption(figure, run, n=f"{n}. {words}")
