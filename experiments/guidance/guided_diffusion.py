"""Guidance of a text-conditioned diffusion model that was trained here: CV tables 1 and 3."""

import dataclasses
import itertools
import math
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jax.flatten_util import ravel_pytree
from scipy.spatial import distance

import condvendi_jax as cv
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.data.sets import SEED
from experiments.generators import benches, diffusion, pictures
from experiments.lab import figures, papers, style, tables

REAL, NONE = "real pictures", "none"
OF_FEATURES = "Vendi of features"
METHODS = ("Vendi", "RKE", "Conditional-Vendi", "Conditional-RKE", OF_FEATURES)
CALIBRATION = 0xCA1B  # Folded into the seed for the samples that weights are chosen on.
# Where methods are compared: what guidance has cost, and how much of it.
COSTS = {
    "2 points of alignment": ("alignment", -2.0),
    "kernel distance + 2": ("kernel distance", 2.0),
}
_DIGITS = 3  # Of chosen numbers: what another machine's rounding does not change.
_SHOWN = 6, 4  # Kinds, and samples of each, whose pictures are kept; fewer if there are.
_GRID = 4  # Kinds that are drawn with every guide.
_STRIPS = 5, 4  # Kinds that are drawn without a guide: in a row, and rows.
_COLOURS = {method: style.score_colour(method) for method in METHODS} | {OF_FEATURES: style.SKY}
_MODELS = {"fashion": "clothing", "emoji": "emoji", "mixture": "mixture"}
# What guidance costs, with its unit.
_ACROSS = {"alignment": "alignment, %", "kernel distance": "kernel distance x 100"}
_OF_CV = ["alignment", "kernel distance", "Conditional-Vendi", "Vendi", "similarity"]


class GuidedDiffusion(lab.Study):
    """How much diversity does guidance add to generated pictures, and at what cost?"""

    control = "Every guide has the same noise and prompts; gains are compared at equal cost."
    unrepeated = "seconds", "pictures"
    # Strong guidance of features amplifies rounding; the other guides' scores agree to 1e-5.
    tolerance = 2e-2
    data = None
    runs = ((), ("--model=emoji",))

    # Of the scores, chosen on real pictures.
    bandwidths: lab.Scales = lab.Scales()
    model: str = lab.flag("fashion", "What draws; a mixture is exact.", choices=benches.NAMES)
    methods: tuple[str, ...] = lab.flag(METHODS, "What ", choices=METHODS)
    strengths: tuple[float, ...] = lab.flag(
        (0.1, 0.3, 1.0, 3.0, 10.0),
        "How far a guide would move a sample, in norms of its latents; weights follow.",
        above=0,
    )
    seeds: int = lab.flag(5, "Repetitions with other noise and prompts.", at_least=2)
    samples: int = lab.flag(150, "Samples of each seed.", at_least=2)
    kinds: int = lab.flag(50, "Kinds of thing in each seed; all if fewer.", at_least=1)
    batch: int = lab.flag(50, "Samples that are drawn and guided together.", at_least=2)
    steps: int = lab.flag(20, "Calls of the model a sample, by DPM-Solver++(2M).", at_least=1)
    scale: float = lab.flag(2.0, "Of classifier-free guidance.", above=0)
    every: int = lab.flag(4, "Guidance acts at every so many steps.", at_least=1)
    at: str = lab.flag("clean", "Where it is evaluated.", choices=diffusion.PLACES)
    window: int = lab.flag(300, "Finished pairs that a guide remembers.", at_least=0)
    truncation: int = lab.flag(100, "Eigenvalues that Conditional-Vendi keeps.", at_least=1)
    references: int = lab.flag(1000, "Real pictures of distances and bandwidths.", at_least=40)
    # Bandwidths of the guides, and the weights of each method at each strength, CV eq. 14.
    latents: float = lab.resolved(1.0)
    features: float = lab.resolved(1.0)
    prompts: float = lab.resolved(1.0)
    weights: dict[str, tuple[float, ...]] = lab.resolved()
    best: int = lab.resolved(1)
    judged: str = lab.resolved("")

    def prepare(self, load, seed):
        """Reads the models, and chooses bandwidths and weights before anything is guided."""
        if self.samples % self.batch or self.samples < 2 * self.batch:
            words = f"a multiple of --batch={self.batch}, two batches at least"
            raise ValueError(f"--samples: expected {words}, received {self.samples}.")
        bench = benches.load(self.model)
        spare = len(bench.real) - self.samples
        if self.references > spare:
            words = f"at most {spare} of {len(bench.real)} real outputs beside --samples"
            raise ValueError(f"--references: expected {words}, received {self.references}.")
        order = np.random.default_rng(SEED).permutation(len(bench.real))
        reference = bench.real.rows(order[: self.references])
        # Guides have Gaussian kernels, whatever the kernel of the scores.
        gaussian = dataclasses.replace(self.bandwidths, kernel="gaussian").resolve(reference, seed)
        assert gaussian.prompt_bandwidth is not None
        study = dataclasses.replace(
            self,
            description=bench.words,
            bandwidths=self.bandwidths.resolve(reference, seed),
            kinds=min(self.kinds, len(bench.names)),
            prompts=rounded(gaussian.prompt_bandwidth * gaussian.shown),
            best=bench.best,
            judged=bench.judged,
        )
        study = study.calibrated(bench, seed)
        arrays = {of: np.asarray(ravel_pytree(tree)[0]) for of, tree in bench.params.items()}
        arrays |= {"prompts of kinds": bench.prompts, **bench.real.arrays}
        samplers = {name: study.sampler(name, bench) for name in (NONE, *self.methods)}
        return study.ready(state=(bench, samplers, order), arrays=arrays)

    def asked(self, bench, key):
        """What a seed asks for: kinds `[samples]` and prompts `[samples, p]`, in random order.

        Each of some random kinds as often, in random wordings.
        """
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        chosen = rng.permutation(len(bench.names))[: self.kinds]
        each = rng.permutation(np.resize(chosen, self.samples))
        words = rng.integers(bench.prompts.shape[1], size=self.samples)
        return each, bench.prompts[each, words].astype(np.float32)

    def guide_of(self, method, bench, weight) -> tuple:
        """The guide of a method, and how it remembers finished latents: them, or their features."""
        if method == NONE:
            return None, None
        of_features = method == OF_FEATURES

        def features(latents):
            return bench.features(bench.model.decode(latents)) if of_features else latents

        def remember(state, latents, prompts):
            return cv.guidance.remember(state, features(latents), prompts)

        guide = diffusion.weighted(
            "vendi" if of_features else method.lower().replace("-", "_"),
            weight,
            output_kernel=cv.Gaussian(self.features if of_features else self.latents),
            prompt_kernel=cv.Gaussian(self.prompts),
            prompt_size=bench.prompts.shape[-1],
            window=self.window,
            truncation=self.truncation,
        )
        made = diffusion.pulled_back(guide, features)
        acts = optax.conditionally_mask(made, lambda step, **_: jnp.asarray(step) % self.every == 0)
        return acts, remember

    def sampler(self, method, bench):
        """A compiled `(denoise, key, prompts [n, p], weight) -> latents [n, ...], skipped`."""

        @jax.jit
        def draw(denoise, key, prompts, weight):
            guide, remember = self.guide_of(method, bench, weight)
            latents, state = diffusion.sample_batches(
                diffusion.guided(denoise, bench.model.unconditional, self.scale),
                key,
                prompts.reshape(-1, self.batch, prompts.shape[1]),
                shape=bench.model.shape,
                steps=self.steps,
                solver="dpm2",
                guide=guide,
                remember=remember,
                at=self.at,
            )
            skipped = 0 if guide is None else optax.tree_utils.tree_get(state, "skipped")
            return latents.reshape(-1, *bench.model.shape), jnp.asarray(skipped)

        return draw

    def calibrated(self, bench, seed):
        """With bandwidths of the guides and weights of the methods, by samples of another seed.

        Bandwidths are median distances of latents and of features of one kind, without guidance.
        At strength 1 a method's weight would move a sample by the norm of its latents in all, if at
        each step its gradient was that at a finished batch with the batches before in memory.
        """
        key = jax.random.fold_in(jax.random.key(seed), CALIBRATION)
        kinds, embedded = self.asked(bench, key)
        prompts = jnp.asarray(embedded)
        latents, _ = self.sampler(NONE, bench)(bench.model.denoise, key, prompts, jnp.zeros(()))
        features = np.asarray(bench.features(bench.model.decode(latents)))
        flat = np.asarray(latents).reshape(len(latents), -1)
        widths = [rounded(distance_within(rows, kinds)) for rows in (flat, features)]
        study = dataclasses.replace(self, latents=widths[0], features=widths[1])
        actions, weights = math.ceil(study.steps / study.every), {}
        finished = latents[: -self.batch], prompts[: -self.batch]
        last, asked = latents[-self.batch :], prompts[-self.batch :]
        for method in study.methods:
            guide, remember = study.guide_of(method, bench, 1.0)
            state = remember(guide.init(last), *finished)
            norm = _norm(guide.update(jnp.zeros_like(last), state, last, prompts=asked)[0])
            if not 0 < norm < np.inf:
                raise ValueError(
                    f"{method}: its gradients at samples without guidance are no guide."
                )
            whole = _norm(latents) / (actions * norm)
            weights[method] = tuple(rounded(whole * strength) for strength in study.strengths)
        return dataclasses.replace(study, weights=weights)

    def cells(self):
        """Real pictures, samples without guidance, and every method at every strength."""
        swept = [(method, strength) for method in self.methods for strength in self.strengths]
        return [
            lab.Cell((("guide", method), ("strength", strength)))
            for method, strength in [(REAL, 0.0), (NONE, 0.0), *swept]
        ]

    def compute(self, state, context, *, guide, strength):
        """What the judge says of a method's samples, the same noise and prompts in every cell."""
        bench, samplers, order = state
        chosen, others = np.split(order, [self.references])
        reference = bench.real.outputs[chosen]
        values, seconds, skipped, kept = [], [], 0, xr.Dataset()
        for index in range(self.seeds):
            context.say(f"seed {index + 1} of {self.seeds}")
            key = jax.random.fold_in(context.shared_key, index)
            if guide == REAL:
                rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
                samples = bench.real.rows(rng.choice(others, self.samples, replace=False))
                seconds.append(0.0)
            else:
                kinds, prompts = self.asked(bench, key)
                weights = dict(zip(self.strengths, self.weights.get(guide, ()), strict=False))
                weight = jnp.asarray(weights.get(strength, 0.0))
                started = time.perf_counter()
                latents, left = jax.block_until_ready(
                    samplers[guide](bench.model.denoise, key, jnp.asarray(prompts), weight)
                )
                seconds.append(time.perf_counter() - started)
                skipped += int(left)
                outputs = bench.model.decode(latents)
                features = np.asarray(bench.features(outputs))
                samples = PairedEmbeddings(guide, features, prompts, "", {"kind": kinds})
                if index == 0:
                    rows = self.kinds if guide == NONE else _SHOWN[0]
                    kept = _shown(np.asarray(outputs), kinds, rows, _SHOWN[1])
            values.append(bench.measured(samples, reference, self.bandwidths))
        axes = ("seed", "scale", "measure")
        kept = kept.assign(value=(axes, values), seconds=(("seed",), seconds), skipped=skipped)
        scales = [scale.coordinate for scale in self.bandwidths.axis]
        return kept.assign_coords(scale=scales, measure=list(benches.MEASURES))

    def tables(self, run):
        """Means, paired differences to no guidance, and those where methods cost as much."""
        found, axes = run.found, ("guide", "strength")
        values = found.value.sel(scale=self.bandwidths.shown)
        minus = gained(values)
        less = tables.means(minus.sel(strength=minus.strength > 0), "seed")
        for part, rows, names in (
            (tables.means(values, "seed"), axes, {}),
            (less, axes, {"guide": "less no guidance"}),
            (at_costs(minus), ("cost", "guide"), {"cost": "where it has cost"}),
        ):
            yield tables.table(part, rows=rows, columns="measure", error="error", names=names)
        costs = found[["skipped"]].assign(seconds=found.seconds.median("seed"))
        costs = costs.to_array("column").to_dataset(name="value")
        yield tables.table(costs, rows=axes, columns="column")

    @classmethod
    def facts(cls, runs):
        models = xr.IndexVariable("model", [_MODELS[run.study.model] for run in runs])
        values: list[xr.DataArray] = [run.found.value for run in runs]
        at = xr.concat(values, models, join="outer").sel(scale=1.0)
        first, second = (at.sel(guide=of, strength=1.0) for of in ("Conditional-Vendi", "Vendi"))
        minus = xr.concat([gained(of) for of in values], models)
        gains = at_costs(minus).sel(measure="Conditional-Vendi")
        look: dict = {"columns": "guide", "error": "error", "digits": 2}
        return {
            "at": at.mean("seed"),
            "gains": gains,
            "less": tables.t_intervals(first - second, "seed"),
            "lost": -minus.sel(scale=1.0, measure="alignment").mean("seed"),
            "beside": _beside(at.mean("seed")),
            "at_costs": tables.table(gains.sel(scale=1.0), rows=("model", "cost"), **look),
            "seconds": runs[-1].found.seconds.median("seed"),
        }

    @classmethod
    def figures(cls, runs):
        drawn = {"guided_diffusion": _gains(runs), "guided_diffusion_curves": _curves(runs)}
        for run in runs:
            cells = {tuple(cell.values.values()): found for cell, found in run.results.items()}
            if "pictures" in cells[NONE, 0.0]:
                drawn[f"guided_diffusion_{run.study.model}"] = _grid(run, cells)
                drawn[f"guided_diffusion_samples_{run.study.model}"] = _samples(run, cells)
        return drawn

    def variant(self):
        return self.model


def _norm(rows: jax.Array) -> float:
    """The root mean square of the norms of rows `[n, ...]`."""
    return float(np.linalg.norm(rows)) / math.sqrt(len(rows))


def distance_within(rows: np.ndarray, kinds: np.ndarray) -> float:
    """The median distance of two rows `[n, d]` of one kind."""
    found = [distance.pdist(rows[kinds == kind]) for kind in np.unique(kinds)]
    return float(np.median(np.concatenate(found)))


def rounded(value: float) -> float:
    """The value to so many digits as do not depend on the machine."""
    return float(f"{value:.{_DIGITS}g}")


def gained(values: xr.DataArray) -> xr.DataArray:
    """What each method differs by from no guidance, seed by seed; 0 at the strength 0."""
    methods = [method for method in values["guide"].values.tolist() if method in METHODS]
    plain = values.sel(guide=NONE, strength=0.0, drop=True)
    return values.sel(guide=methods).where(values.strength > 0, plain) - plain


def at_costs(minus: xr.DataArray) -> xr.Dataset:
    """What each method has gained (as of `gained`) where it costs so much, with errors: COSTS."""
    shares = [minus.sel(measure=name, drop=True) / cost for name, cost in COSTS.values()]
    costs, core = xr.concat(shares, xr.IndexVariable("cost", list(COSTS))), ["strength", "seed"]
    axes = {"input_core_dims": [core, core], "output_core_dims": [[], []]}
    value, error = xr.apply_ufunc(at_cost, costs, minus, vectorize=True, **axes)
    return xr.Dataset({"value": value, "error": error})


def at_cost(costs: np.ndarray, gains: np.ndarray) -> tuple[float, float]:
    """The mean gain where the mean cost over the seeds first is 1, and its standard error.

    Both are `[strengths, seeds]`, from no guidance upwards, and interpolated between strengths. The
    error is the jackknife's over the seeds, all of it repeated. Both are NaN where it never costs
    so much; the error alone where that hangs on one seed.
    """

    def reached(kept: np.ndarray) -> float:
        cost, gain = costs[:, kept].mean(axis=1), gains[:, kept].mean(axis=1)
        if not (cost >= 1).any():
            return np.nan
        end = int(np.argmax(cost >= 1))
        pair = slice(max(end - 1, 0), end + 1)
        return float(np.interp(1.0, cost[pair], gain[pair]))

    seeds = np.arange(costs.shape[1])
    without = [reached(seeds != seed) for seed in seeds]
    return reached(seeds >= 0), float(np.sqrt((len(seeds) - 1) * np.var(without)))


def _shown(outputs: np.ndarray, kinds: np.ndarray, rows: int, columns: int) -> xr.Dataset:
    """The first samples of the first kinds that have so many, uint8; nothing of other outputs."""
    if outputs.ndim < 4:
        return xr.Dataset()
    found, counts = np.unique(kinds, return_counts=True)
    columns = min(columns, counts.max())
    chosen = found[counts >= columns][:rows]
    shown = np.stack([outputs[np.flatnonzero(kinds == kind)[:columns]] for kind in chosen])
    axes = ("kind", "sample", "row", "column", "channel")
    return xr.Dataset(
        {"pictures": (axes, np.round(255 * shown).astype(np.uint8))}, {"kind": chosen}
    )


def _beside(means):
    """The printed columns of CV tables 1 and 3, and ours: with guides at strength 1."""
    rows = dict(papers.printed("CV", "table 1"))
    wanted = {"real pictures": (REAL, 0.0), "no guidance": (NONE, 0.0)}
    wanted |= {of: (of, 1.0) for of in ("Vendi", "Conditional-Vendi", OF_FEATURES)}
    for model, (name, (of, strength)) in itertools.product(means.model.values, wanted.items()):
        found = means.sel(model=model, guide=of, strength=strength, measure=_OF_CV)
        rows[f"{model}, {name}"] = found.values
    return [["", *_OF_CV], *([name, *map("{:.2f}".format, row)] for name, row in rows.items())]


def _gains(runs):
    """What every guide adds to Conditional-Vendi at a cost: a panel a cost, a mark a model."""
    minus = [gained(run.found.value.sel(scale=run.study.bandwidths.shown)) for run in runs]
    models = xr.IndexVariable("model", [_MODELS[run.study.model] for run in runs])
    gains = xr.concat(map(at_costs, minus), models).sel(measure="Conditional-Vendi")
    latent = gains.value.sel({"guide": gains["guide"] != OF_FEATURES})
    words = []
    for cost in gains.cost.values[::-1]:
        best, *others = {*gains.value.sel(cost=cost).idxmax("guide").values}
        inner, *more = {*latent.sel(cost=cost).idxmax("guide").values}
        said = f"{best} adds most, of guides of latents {inner}"
        words.append(f"at {cost}, {'models differ' if others or more else said}")
    figure = figures.dots(
        gains.assign(error=2 * gains.error), row="guide", hue="model", column="cost",
        x_label="gain in Conditional-Vendi at this cost", headline=f"A{'; '.join(words)[1:]}",
    )  # fmt: skip
    n = f"{runs[0].study.seeds} seeds of {runs[0].study.samples} samples"
    scale = runs[0].study.bandwidths.shown
    return figures.caption(figure, runs, n=n, bars="two standard errors", scale=scale)


def _curves(runs):
    """A row a model; Conditional-Vendi against what it costs, a line a method."""
    places = [(run, across) for run in runs for across in _ACROSS]
    figure, panels = style.panels(len(places), columns=len(_ACROSS), size=(3.5, 2.4))
    for panel, (run, across) in zip(panels, places, strict=True):
        study, scale = run.study, run.study.bandwidths.shown
        values = run.found.value.sel(scale=scale, measure=[across, "Conditional-Vendi"])
        start = values.sel(guide=NONE, strength=0.0, drop=True).mean("seed")
        moved = tables.t_intervals(gained(values), "seed")
        x, y = (start + moved.value).transpose("measure", ...)
        x_error, y_error = moved.error.transpose("measure", ...)
        # The guide of features goes far beyond the others: it stands in the table alone.
        shown = [method for method in study.methods if method != OF_FEATURES] or [OF_FEATURES]
        for marker, method in zip(style.MARKERS, shown, strict=False):
            colour = _COLOURS[method]
            look = {"color": colour, "marker": marker, "ecolor": (colour, 0.4), "elinewidth": 0.8}
            path = (of.sel(guide=method) for of in (x, y, y_error, x_error))
            panel.errorbar(*path, **look, label=method)
        look = {"color": style.BLACK, "markersize": 10, "zorder": 3, "label": "no guidance"}
        panel.plot(*start.values, "*", **look)
        panel.set(xlabel=_ACROSS[across], ylabel="Conditional-Vendi")
        panel.set_title(f"{_MODELS[study.model]}: {across}")
    style.legend_above(figure, panels[0], columns=6)
    style.headline(figure, "Guides of latents gain diversity at different costs")
    study = runs[0].study
    n = f"{study.seeds} seeds of {study.samples} samples"
    return figures.caption(figure, runs, n=n, bars="95%", scale=study.bandwidths.shown)


def _strips(run, cells, kinds, columns, size):
    """Samples of one kind side by side: a panel for each kind of each cell, row by row."""
    names = pictures.COLLECTIONS[run.study.model].prompts().names[kinds]
    draws = cells[0].sizes["sample"]
    shown = [cell.pictures.sel(kind=kind).values for cell in cells for kind in kinds]
    figure, panels = pictures.strips(shown, columns, (size[0] * draws, size[1]))
    for panel, name in zip(panels, names, strict=False):  # No wider than their pictures.
        panel.set_title(textwrap.shorten(str(name), 9 * draws, placeholder=" ..."), fontsize=8)
    return figure, panels


def _grid(run, cells):
    """A row a method at one strength, a column a kind: the same noise and prompts in a column."""
    study = run.study
    middle = study.strengths[len(study.strengths) // 2]
    rows = {"no guidance": cells[NONE, 0.0]} | {of: cells[of, middle] for of in study.methods}
    kinds = cells[NONE, 0.0].kind.values[:_GRID]
    figure, panels = _strips(run, list(rows.values()), kinds, len(kinds), (0.65, 0.75))
    aligned = [of.value.isel(scale=0).sel(measure="alignment").mean() for of in rows.values()]
    for panel, name, share in zip(panels[:: len(kinds)], rows, aligned, strict=True):
        words = f"{name}\n{share:.0f}% aligned"
        panel.set_ylabel(words, rotation=0, ha="right", va="center", fontsize=8)
    words = f"{min(aligned[1:]):.0f}% to {max(aligned[1:]):.0f}%"
    style.headline(figure, f"With guides, {words} are aligned, without {aligned[0]:.0f}%")
    words = f"the same prompts and noise in every row, guides at strength {middle:g}. Alignment: "
    words += f"{study.judged}, over {study.seeds} seeds. Seed {run.seed}."
    return style.caption(figure, f"{study.description}: {words}")


def _samples(run, cells):
    """What the model draws by itself: a strip a kind, its samples side by side."""
    study, plain, (columns, rows) = run.study, cells[NONE, 0.0], _STRIPS
    known = plain.kind.values
    kinds = known[np.linspace(0, len(known) - 1, min(len(known), columns * rows)).astype(int)]
    figure, _ = _strips(run, [plain], kinds, min(columns, len(kinds)), (0.6, 0.85))
    aligned = plain.value.isel(scale=0).sel(measure="alignment").mean().item()
    style.headline(figure, f"Without guidance, {aligned:.0f}% of the pictures are aligned")
    words = f"{study.description}. Aligned: {study.judged}. Seed {run.seed}."
    return style.caption(figure, words)
