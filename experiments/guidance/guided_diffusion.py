"""Guidance of a text-conditioned diffusion model that was trained here: CV tables 1 and 3.

Methods are compared where they cost the same alignment with the prompts, not at one weight each.
"""

import dataclasses
import itertools
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from experiments import lab
from experiments.generators import benches, diffusion, pictures
from experiments.guidance import diffusion_guides as guides
from experiments.guidance import picture_judging as judging
from experiments.guidance.diffusion_guides import METHODS, NONE, OF_FEATURES
from experiments.lab import figures, style, tables

REAL = "real pictures"
_SHOWN = 6, 4  # Kinds, and samples of each, whose pictures are kept; fewer if there are.
_COLUMNS = 4  # Kinds that are drawn with every guide.
_STRIPS = 5, 4  # Kinds that are drawn without a guide: in a row, and rows.
_COLOURS = {method: style.score_colour(method) for method in METHODS} | {OF_FEATURES: style.SKY}
# What guidance costs: its label, where gains are read, and the panel's ends from no guidance.
_ACROSS = {
    "alignment": ("alignment, %", "2 points of alignment", (-12.0, 3.0)),
    "kernel distance": ("kernel distance x 100", "kernel distance + 2", (-4.0, 16.0)),
}
_COSTS = {"2 points of alignment": style.GREY, "kernel distance + 2": style.ORANGE}


class GuidedDiffusion(lab.Study):
    """How much diversity does guidance add to generated pictures, and at what cost?"""

    name = "guided_diffusion"
    duration = "5 minutes a model"
    data = None
    runs = ((), ("--model=emoji",))
    drawings = (
        "guided_diffusion",
        "guided_diffusion_gains",
        "guided_diffusion_fashion",
        "guided_diffusion_emoji",
        "guided_diffusion_samples_fashion",
        "guided_diffusion_samples_emoji",
    )

    # Of the scores, chosen on real pictures.
    bandwidths: lab.Scales = lab.Scales()
    model: str = lab.flag(
        "fashion",
        "What draws: a trained model of real pictures, or a mixture in closed form.",
        choices=benches.NAMES,
    )
    methods: tuple[str, ...] = lab.flag(METHODS, "What guides.", choices=METHODS)
    strengths: tuple[float, ...] = lab.flag(
        (0.1, 0.3, 1.0, 3.0, 10.0),
        "How far a guide would move a sample in all, in norms of its latents, by its gradients at "
        "samples without guidance; a weight for each method follows.",
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
            raise ValueError(
                f"--samples: expected a multiple of --batch={self.batch}, two batches at least, "
                f"received {self.samples}."
            )
        bench = benches.load(self.model)
        spare = len(bench.real) - self.samples
        if self.references > spare:
            raise ValueError(
                f"--references: expected at most {spare} of {len(bench.real)} real outputs beside "
                f"--samples={self.samples}, received {self.references}."
            )
        reference = bench.real.rows(judging.references(bench, self.references)[0])
        bandwidths = self.bandwidths.resolve(reference, seed)
        # Guides have Gaussian kernels, whatever the kernel of the scores.
        gaussian = dataclasses.replace(self.bandwidths, kernel="gaussian")
        widths = bandwidths if bandwidths.prompt_bandwidth else gaussian.resolve(reference, seed)
        assert widths.prompt_bandwidth is not None
        study = dataclasses.replace(
            self,
            description=bench.words,
            bandwidths=bandwidths,
            kinds=min(self.kinds, len(bench.names)),
            prompts=guides.rounded(widths.prompt_bandwidth * widths.shown),
            best=bench.best,
            judged=bench.judged,
        )
        study = guides.calibrated(study, bench, seed)
        arrays = {
            name: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
            for name, tree in bench.params.items()
        }
        arrays |= {"prompts of kinds": bench.prompts, **bench.real.arrays}
        samplers = {name: guides.sampler(name, study, bench) for name in (NONE, *self.methods)}
        return study.ready(state=(bench, samplers), arrays=arrays)

    def cells(self):
        """Real pictures, samples without guidance, and every method at every strength."""
        swept = [(method, strength) for method in self.methods for strength in self.strengths]
        return [
            lab.Cell((("guide", method), ("strength", strength)))
            for method, strength in [(REAL, 0.0), (NONE, 0.0), *swept]
        ]

    def compute(self, state, context, *, guide, strength):
        """What the judge says of a method's samples, the same noise and prompts in every cell."""
        bench, samplers = state
        chosen, others = judging.references(bench, self.references)
        reference = bench.real.outputs[chosen]
        values, seconds, skipped, kept = [], [], 0, xr.Dataset()
        for index in range(self.seeds):
            context.say(f"seed {index + 1} of {self.seeds}")
            key = jax.random.fold_in(context.shared_key, index)
            if guide == REAL:
                rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
                rows = rng.choice(others, self.samples, replace=False)
                features, prompts = bench.real.outputs[rows], bench.real.prompts[rows]
                kinds = bench.real.labels["kind"][rows]
                seconds.append(0.0)
            else:
                kinds, prompts = guides.asked(self.kinds, self.samples, bench, key)
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
                if index == 0:
                    rows = self.kinds if guide == NONE else _SHOWN[0]
                    kept = judging.pictures(np.asarray(outputs), kinds, rows, _SHOWN[1])
            values.append(
                judging.judged(features, prompts, kinds, reference, self.bandwidths, bench)
            )
        return kept.assign(
            value=(("seed", "scale", "measure"), values),
            seconds=(("seed",), seconds),
            skipped=skipped,
        ).assign_coords(
            scale=[scale.coordinate for scale in self.bandwidths.axis],
            measure=list(judging.MEASURES),
        )

    def tables(self, run):
        """Means, paired differences to no guidance, and those where methods cost as much."""
        found, axes = run.found, ("guide", "strength")
        values = found.value.sel(scale=self.bandwidths.shown)
        minus = guides.gained(values)
        less = tables.means(minus.sel(strength=minus.strength > 0), "seed")
        for part, rows, names in (
            (tables.means(values, "seed"), axes, {}),
            (less, axes, {"guide": "less no guidance"}),
            (guides.at_costs(minus), ("cost", "guide"), {"cost": "where it has cost"}),
        ):
            yield tables.table(part, rows=rows, columns="measure", error="error", names=names)
        seconds = found.seconds.median("seed")
        weights = xr.DataArray(
            [self.weights[method] for method in self.methods],
            {"guide": list(self.methods), "strength": list(self.strengths)},
        )
        columns = {
            "weight": weights,
            "time of no guidance's": seconds / seconds.sel(guide=NONE, strength=0.0, drop=True),
            "latents not moved": found.skipped,
        }
        costs = xr.Dataset(columns).reindex_like(weights).to_array("column")
        yield tables.table(costs.to_dataset(name="value"), rows=axes, columns="column")

    @classmethod
    def figures(cls, runs):
        drawn = {"guided_diffusion": _curves(runs), "guided_diffusion_gains": _gains(runs)}
        for run in runs:
            cells = {tuple(cell.values.values()): found for cell, found in run.results.items()}
            if "pictures" in cells[NONE, 0.0]:
                drawn[f"guided_diffusion_{run.study.model}"] = _grid(run, cells)
                drawn[f"guided_diffusion_samples_{run.study.model}"] = _samples(run, cells)
        return drawn

    def variant(self):
        return self.model


def _gains_of(run):
    """Percent more Conditional-Vendi than without guidance at each cost, with errors."""
    values = run.found.value
    found = guides.at_costs(guides.gained(values)).sel(measure="Conditional-Vendi", drop=True)
    plain = values.sel(guide=NONE, strength=0.0, measure="Conditional-Vendi", drop=True)
    return 100 * found / plain.mean("seed")


def _most(gains):
    """Which guide of latents gains most; that of features shares the judge."""
    gains = gains.where(gains["guide"] != OF_FEATURES).dropna("guide")
    if not gains.size:
        return "no guide of latents costs so much"
    return f"best guide of latents: {gains.idxmax('guide').item()}, {gains.max():.2g}%"


def _caption(figure, runs, bars, scale=None):
    study = runs[0].study
    n = f"{study.seeds} seeds of {study.samples} samples"
    return figures.caption(figure, runs, n=n, bars=bars, scale=scale)


def _curves(runs):
    """A row a model; Conditional-Vendi against what it costs, a line a method."""
    places = [(run, across) for run in runs for across in _ACROSS]
    figure, panels = style.panels(len(places), columns=len(_ACROSS), size=(4.8, 2.9))
    for panel, (run, across) in zip(panels, places, strict=True):
        label, cost, ends = _ACROSS[across]
        study, scale = run.study, run.study.bandwidths.shown
        values = run.found.value.sel(scale=scale, measure=[across, "Conditional-Vendi"])
        start = values.sel(guide=NONE, strength=0.0, drop=True).mean("seed")
        minus = tables.means(guides.gained(values), "seed")
        x, y = (start + minus.value).transpose("measure", ...)
        x_error, y_error = 2 * minus.error.transpose("measure", ...)
        for marker, method in zip(style.MARKERS, study.methods, strict=False):
            colour = _COLOURS[method]
            panel.errorbar(
                *(of.sel(guide=method) for of in (x, y, y_error, x_error)),
                color=colour,
                marker=marker,
                ecolor=(colour, 0.4),
                elinewidth=0.8,
                label=method,
            )
        look = {"color": style.BLACK, "markersize": 10, "zorder": 3, "label": "no guidance"}
        panel.plot(*start.values, "*", **look)
        low, high = (start.sel(measure=across).item() + end for end in ends)
        # The guide of features goes far beyond the others.
        shown = [method for method in study.methods if method != OF_FEATURES] or [OF_FEATURES]
        inside = y.where((x >= low) & (x <= high)).sel(guide=shown)
        room = 0.1 * float(inside.max() - inside.min())
        panel.set(xlim=(low, high), ylim=(inside.min() - room, inside.max() + room))
        panel.set(xlabel=label, ylabel="Conditional-Vendi")
        gains = _gains_of(run).value.sel(scale=scale, cost=cost)
        panel.set_title(f"{study.model}, for {cost}:\n{_most(gains)}")
    style.legend_above(figure, panels[0], columns=6)
    bars = "two standard errors of the differences to no guidance"
    return _caption(figure, runs, bars, scale)


def _gains(runs):
    """A row a model, a column a multiple of the bandwidths: what equal costs buy."""
    models = xr.IndexVariable("model", [run.study.model for run in runs])
    gains: list[xr.Dataset] = [_gains_of(run) for run in runs]
    found = xr.concat(gains, models, join="outer")
    found = found.assign(error=2 * found.error).sel(cost=list(_COSTS))

    def title(model, scale):
        gains = found.value.sel(model=model, scale=scale, cost="kernel distance + 2")
        return f"{model}, bandwidths x {scale:g}, distance + 2:\n{_most(gains)}"

    def each(panel, part):
        """Cuts the guide of features, which shares the judge, and writes its gain."""
        row = found.value.sel(model=part.model.item())
        top = 1.35 * row.where(row["guide"] != OF_FEATURES).fillna(0).max().item()
        panel.set_ylim(top=top or None)
        look = {"ha": "center", "va": "top", "fontsize": 7.5}
        for bar in panel.patches:
            if bar.get_height() > top > 0:
                place = bar.get_x() + bar.get_width() / 2
                panel.text(place, top, f"{bar.get_height():.0f}%", **look)

    drawn = figures.facets(
        found,
        x="guide",
        hue="cost",
        row="model",
        column="scale",
        kind="bars",
        error="error",
        colours=_COSTS,
        title=title,
        y_label="gain in Conditional-Vendi, %",
        size=(3.6, 2.6),
        each=each,
    )
    return _caption(drawn, runs, "two standard errors by the jackknife over the seeds")


def _strips(run, cells, kinds, columns, size):
    """Samples of one kind side by side: a panel for each kind of each cell, row by row."""
    names = pictures.COLLECTIONS[run.study.model].prompts().names[kinds]
    draws = cells[0].sizes["sample"]
    size = (size[0] * draws, size[1])
    figure, panels = style.panels(len(cells) * len(kinds), columns=columns, size=size)
    for panel, (cell, kind) in zip(panels, itertools.product(cells, kinds), strict=True):
        picture = np.concatenate(list(cell.pictures.sel(kind=kind).values), axis=1).squeeze()
        panel.imshow(picture, cmap="gray", vmin=0, vmax=255)
        panel.set(xticks=[], yticks=[])
        panel.grid(visible=False)
        panel.spines[:].set_visible(False)
    for panel, name in zip(panels, names, strict=False):  # No wider than their pictures.
        panel.set_title(textwrap.shorten(str(name), 9 * draws, placeholder=" ..."), fontsize=8)
    return figure, panels


def _grid(run, cells):
    """A row a method at one strength, a column a kind: the same noise and prompts in a column."""
    study = run.study
    middle = study.strengths[len(study.strengths) // 2]
    rows = {"no guidance": cells[NONE, 0.0]} | {of: cells[of, middle] for of in study.methods}
    kinds = cells[NONE, 0.0].kind.values[:_COLUMNS]
    figure, panels = _strips(run, list(rows.values()), kinds, len(kinds), (0.65, 0.75))
    for panel, (name, of) in zip(panels[:: len(kinds)], rows.items(), strict=True):
        aligned = of.value.isel(scale=0).sel(measure="alignment").mean()
        words = f"{name}\n{aligned:.0f}% aligned"
        panel.set_ylabel(words, rotation=0, ha="right", va="center", fontsize=8)
    style.caption(
        figure,
        f"{study.description}: the same prompts and noise in every row, guides at strength "
        f"{middle:g}. Alignment: {study.judged}, over {study.seeds} seeds. Seed {run.seed}.",
    )
    return figure


def _samples(run, cells):
    """What the model draws by itself: a strip a kind, its samples side by side."""
    study, plain = run.study, cells[NONE, 0.0]
    columns, rows = _STRIPS
    known = plain.kind.values
    kinds = known[np.linspace(0, len(known) - 1, min(len(known), columns * rows)).astype(int)]
    figure, _ = _strips(run, [plain], kinds, min(columns, len(kinds)), (0.6, 0.85))
    scores = plain.value.isel(scale=0).mean("seed")
    aligned, away = scores.sel(measure=["alignment", "kernel distance"]).values
    style.caption(
        figure,
        f"{study.description}: no guidance. {study.judged.capitalize()}: {aligned:.1f}%; kernel "
        f"distance x 100 to {study.references:,} real pictures: {away:.1f}. Seed {run.seed}.",
    )
    return figure
