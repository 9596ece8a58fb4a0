"""Guidance of a text-conditioned diffusion model that was trained here: CV tables 1 and 3.

Batch after batch is drawn from the same noise without guidance, guided in the space of the latents
by Vendi, RKE, truncated Conditional-Vendi and Conditional-RKE, and by Vendi in the space of an
encoder's features. Every guide is swept over its strength, so that methods are compared where they
cost the same alignment with the prompts, not at one weight each. An encoder that was trained on
real pictures judges, and held-out real pictures are what generated ones are held against.

    python -m experiments.guided_diffusion --model=fashion
"""

from __future__ import annotations

import dataclasses
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from experiments import diffusion_guides as guides
from experiments import lab
from experiments import picture_judging as judging
from experiments.data import pictures
from experiments.diffusion_guides import METHODS, NONE, OF_FEATURES
from experiments.generators import benches, diffusion
from experiments.lab import figures, style, tables

REAL = "real pictures"
_SHOWN = 6, 4  # Kinds, and samples of each, whose pictures are kept; fewer if there are.
_COLUMNS = 4  # Kinds that are drawn with every guide.
_STRIPS = 5, 4  # Kinds that are drawn without a guide: in a row, and rows.
_COLOURS = {method: style.score_colour(method) for method in METHODS} | {OF_FEATURES: style.SKY}
# What guidance costs, and where its gain is read: beside the panel's ends, seen from no guidance.
_ACROSS = {
    "alignment": ("2 points of alignment", (-12.0, 3.0)),
    "kernel distance": ("kernel distance + 2", (-4.0, 16.0)),
}
_LABELS = {"alignment": "alignment, %", "kernel distance": "kernel distance x 100"}
_COSTS = {"2 points of alignment": style.GREY, "kernel distance + 2": style.ORANGE}


@dataclasses.dataclass(frozen=True)
class GuidedDiffusion(lab.Study):
    """What does guidance add to the diversity of generated pictures, at which cost?"""

    name = "guided_diffusion"
    reproduces = "CV tables 1, 3; figs 7, 9, 10"
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
        "How far a guide would move a sample in all, in norms of its latents, were its gradients "
        "those at samples without guidance; a weight for each method follows.",
        above=0,
    )
    seeds: int = lab.flag(
        5, "Repetitions with other noise and prompts; they are the units of errors.", at_least=2
    )
    samples: int = lab.flag(150, "Samples of each seed.", at_least=2)
    kinds: int = lab.flag(
        50, "Kinds of thing that are asked for in each seed; all if fewer.", at_least=1
    )
    batch: int = lab.flag(50, "Samples that are drawn and guided together.", at_least=2)
    steps: int = lab.flag(20, "Calls of the model a sample, by DPM-Solver++(2M).", at_least=1)
    scale: float = lab.flag(2.0, "Of classifier-free guidance.", above=0)
    every: int = lab.flag(4, "Guidance acts at every so many steps.", at_least=1)
    at: str = lab.flag("clean", "Where it is evaluated.", choices=diffusion.PLACES)
    window: int = lab.flag(300, "Finished pairs that a guide remembers.", at_least=0)
    truncation: int = lab.flag(
        100, "Eigenvalues that the guide Conditional-Vendi keeps.", at_least=1
    )
    references: int = lab.flag(
        1000, "Real pictures that distances and bandwidths are taken on.", at_least=40
    )
    mixture: str | None = lab.flag(
        None,
        "File .npz with centres [k, 2], spread [] and weights [m, k] of the mixture.",
        needs={"model": benches.MIXTURE},
    )
    # Bandwidths of the guides, and the weights of each method at each strength, CV eq. 14.
    latents: float = lab.resolved(1.0)
    features: float = lab.resolved(1.0)
    prompts: float = lab.resolved(1.0)
    weights: dict[str, tuple[float, ...]] = lab.resolved()
    best: int = lab.resolved(1)
    judged: str = lab.resolved("")

    @property
    def sampling(self) -> guides.Sampling:
        """How samples are drawn and guided."""
        fields = dataclasses.fields(guides.Sampling)
        return guides.Sampling(**{f.name: getattr(self, f.name) for f in fields})

    def prepare(self, load, seed):
        """Reads the models, and chooses bandwidths and weights before anything is guided."""
        self._check()
        bench = benches.load(self.model, self.mixture)
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
        kinds = min(self.kinds, len(bench.names))
        sampling, weights = guides.calibrated(
            dataclasses.replace(
                self.sampling, prompts=guides.rounded(widths.prompt_bandwidth * widths.shown)
            ),
            self.methods,
            self.strengths,
            bench,
            kinds=kinds,
            samples=self.samples,
            seed=seed,
        )
        arrays = {
            name: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
            for name, tree in bench.params.items()
        }
        samplers = {name: guides.sampler(name, sampling, bench) for name in (NONE, *self.methods)}
        return self.ready(
            state=(bench, samplers),
            arrays=arrays | {"prompts of kinds": bench.prompts, **bench.real.arrays},
            description=bench.words,
            bandwidths=bandwidths,
            kinds=kinds,
            mixture=None,
            latents=sampling.latents,
            features=sampling.features,
            prompts=sampling.prompts,
            weights=weights,
            best=bench.best,
            judged=bench.judged,
        )

    def _check(self):
        if self.samples % self.batch:
            raise ValueError(
                f"--samples: expected a multiple of --batch={self.batch}, received {self.samples}."
            )
        if self.samples < 2 * self.batch:
            raise ValueError(
                f"--samples: expected at least two batches of {self.batch}, received "
                f"{self.samples}."
            )

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
                at = None if guide == NONE else self.strengths.index(strength)
                weight = 0.0 if at is None else self.weights[guide][at]
                given = bench.model.denoise, key, jnp.asarray(prompts), jnp.asarray(weight)
                started = time.perf_counter()
                latents, left = jax.block_until_ready(samplers[guide](*given))
                seconds.append(time.perf_counter() - started)
                skipped += int(left)
                outputs = bench.model.decode(latents)
                features = np.asarray(bench.features(outputs))
                if index == 0:
                    rows = self.kinds if guide == NONE else _SHOWN[0]
                    kept = judging.pictures(np.asarray(outputs), kinds, rows, _SHOWN[1])
            reference = bench.real.outputs[chosen]
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
        found = run.found
        values = found.value.sel(scale=self.bandwidths.shown)
        minus = judging.gained(values)
        rows = ("guide", "strength")
        for part, names in (
            (tables.means(values, "seed"), {}),
            (tables.means(minus, "seed"), {"guide": "less no guidance"}),
        ):
            yield tables.table(part, rows=rows, columns="measure", error="error", names=names)
        equal, names = judging.at_costs(minus), {"cost": "where it has cost"}
        rows = ("cost", "guide")
        yield tables.table(equal, rows=rows, columns="measure", error="error", names=names)
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
        costs = xr.Dataset(columns).sel(guide=list(self.methods), strength=weights.strength)
        costs = costs.to_array("column").to_dataset(name="value")
        yield tables.table(costs, rows=("guide", "strength"), columns="column")

    @classmethod
    def figures(cls, runs):
        """Diversity against its costs, gains at equal costs, and pictures."""
        drawn = {"guided_diffusion": _curves(runs), "guided_diffusion_gains": _gains(runs)}
        for run in runs:
            cells = {tuple(cell.values.values()): found for cell, found in run.results.items()}
            if "pictures" in cells[NONE, 0.0]:
                drawn[f"guided_diffusion_{run.study.model}"] = _grid(run, cells)
                drawn[f"guided_diffusion_samples_{run.study.model}"] = _samples(run, cells)
        return drawn

    def variant(self):
        """The model."""
        return self.model


def _gains_of(run):
    """Percent more Conditional-Vendi than without guidance at each cost, with errors."""
    values = run.found.value
    found = judging.at_costs(judging.gained(values)).sel(measure="Conditional-Vendi", drop=True)
    plain = values.sel(guide=NONE, strength=0.0, measure="Conditional-Vendi", drop=True)
    return 100 * found / plain.mean("seed")


def _most(gains):
    """Which guide of latents gains most; that of features shares the judge."""
    gains = gains.where(gains["guide"] != OF_FEATURES).dropna("guide")
    if not gains.size:
        return "no guide of latents costs so much"
    return f"best guide of latents: {gains.idxmax('guide').item()}, {gains.max().item():.2g}%"


def _caption(figure, runs, bars, scale=None):
    study = runs[0].study
    n = f"{study.seeds} seeds of {study.samples} samples"
    return figures.caption(figure, runs, n=n, bars=bars, scale=scale)


def _curves(runs):
    """A row a model; Conditional-Vendi against what it costs, a line a method."""
    count = len(_ACROSS)
    figure, panels = style.panels(count * len(runs), columns=count, size=(4.8, 2.9))
    for index, panel in enumerate(panels):
        run = runs[index // count]
        across, (cost, ends) = list(_ACROSS.items())[index % count]
        study, scale = run.study, run.study.bandwidths.shown
        values = run.found.value.sel(scale=scale)
        plain = values.sel(guide=NONE, strength=0.0, drop=True)
        paths = values.sel(guide=list(study.methods)).where(values.strength > 0, plain)
        error = 2 * tables.means(paths - plain, "seed").error
        mean = paths.mean("seed")
        x, y = mean.sel(measure=across), mean.sel(measure="Conditional-Vendi")
        start = plain.mean("seed")
        low, high = (start.sel(measure=across).item() + end for end in ends)
        for number, method in enumerate(study.methods):
            panel.errorbar(
                x.sel(guide=method),
                y.sel(guide=method),
                error.sel(guide=method, measure="Conditional-Vendi"),
                error.sel(guide=method, measure=across),
                color=_COLOURS[method],
                marker=style.MARKERS[number],
                ecolor=(_COLOURS[method], 0.4),
                elinewidth=0.8,
                label=method,
            )
        panel.plot(
            start.sel(measure=across),
            start.sel(measure="Conditional-Vendi"),
            "*",
            color=style.BLACK,
            markersize=10,
            zorder=3,
            label="no guidance",
        )
        inside = y.where((x >= low) & (x <= high))
        if len(study.methods) > 1:  # That of features goes far beyond.
            inside = inside.where(inside["guide"] != OF_FEATURES)
        room = 0.1 * float(inside.max() - inside.min())
        panel.set(xlim=(low, high), ylim=(inside.min() - room, inside.max() + room))
        panel.set(xlabel=_LABELS[across], ylabel="Conditional-Vendi")
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
        for bar in panel.patches:
            if bar.get_height() > top > 0:
                place = bar.get_x() + bar.get_width() / 2
                panel.text(
                    place, top, f"{bar.get_height():.0f}%", ha="center", va="top", fontsize=7.5
                )

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
        x_label="",
        y_label="gain in Conditional-Vendi, %",
        size=(3.6, 2.6),
        each=each,
    )
    bars = "two standard errors by the jackknife over the seeds"
    return _caption(drawn, runs, bars)


def _strip(panel, samples):
    """Samples of one kind side by side."""
    picture = np.concatenate(list(samples.values), axis=1).squeeze()
    panel.imshow(picture, cmap="gray", vmin=0, vmax=255)
    panel.set(xticks=[], yticks=[])
    panel.grid(visible=False)
    panel.spines[:].set_visible(False)


def _names(run, kinds, width):
    """Of kinds of the model's collection, no wider than their pictures."""
    names = pictures.COLLECTIONS[run.study.model].prompts().names[kinds]
    return [textwrap.shorten(str(name), width, placeholder=" ...") for name in names]


def _grid(run, cells):
    """A row a method at one strength, a column a kind: the same noise and prompts in a column."""
    study = run.study
    middle = study.strengths[len(study.strengths) // 2]
    rows = [(NONE, 0.0), *((method, middle) for method in study.methods)]
    kinds = cells[NONE, 0.0].kind.values[:_COLUMNS]
    draws = cells[NONE, 0.0].sizes["sample"]
    size = (0.65 * draws, 0.75)
    figure, panels = style.panels(len(rows) * len(kinds), columns=len(kinds), size=size)
    for index, panel in enumerate(panels):
        cell, kind = rows[index // len(kinds)], kinds[index % len(kinds)]
        _strip(panel, cells[cell].pictures.sel(kind=kind))
        if index < len(kinds):
            panel.set_title(_names(run, kinds, 9 * draws)[index])
        if not index % len(kinds):
            scores = cells[cell].value.isel(scale=0).mean("seed")
            aligned = scores.sel(measure="alignment").item()
            words = f"{'no guidance' if cell[0] == NONE else cell[0]}\n{aligned:.0f}% aligned"
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
    draws = plain.sizes["sample"]
    columns = min(columns, len(kinds))
    figure, panels = style.panels(len(kinds), columns=columns, size=(0.6 * draws, 0.85))
    for panel, kind, name in zip(panels, kinds, _names(run, kinds, 9 * draws), strict=True):
        _strip(panel, plain.pictures.sel(kind=kind))
        panel.set_title(name, fontsize=8)
    scores = plain.value.isel(scale=0).mean("seed")
    aligned, away = (scores.sel(measure=m).item() for m in ("alignment", "kernel distance"))
    style.caption(
        figure,
        f"{study.description}: no guidance. {study.judged.capitalize()}: {aligned:.1f}%; kernel "
        f"distance x 100 to {study.references:,} real pictures: {away:.1f}. Seed {run.seed}.",
    )
    return figure


if __name__ == "__main__":
    lab.main(GuidedDiffusion)
