"""RKE-MC and RRKE beside six other scores, of generators with known faults: RKE table 1.

Five kinds of GAN learn a ring or a grid of Gaussians. A diffusion model of clothes is sampled as it
should be, and in four ways that spoil its samples.
"""

import itertools
import pathlib
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.flatten_util import ravel_pytree
from scipy import optimize, special
from scipy.spatial import distance

import condvendi_jax as cv
from condvendi_jax.data import bandwidth
from experiments import lab
from experiments.generators import benches, diffusion, fitting, mixture_gan
from experiments.lab import Cell, agreement, dots, figures, style, tables
from experiments.rke import coverage

SCORES = ("IS", "FID", "Precision", "Recall", "Density", "Coverage", "RRKE", "RKE-MC")
_SIGNS = np.where(np.isin(SCORES, ("FID", "RRKE")), -1, 1)  # These two are better where lower.
_TOML = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text("utf-8"))
PRINTED = {name: np.array(list(rows.values())) for name, rows in _TOML["printed"].items()}
REAL, FASHION = "the data", "fashion"
DATA = (*mixture_gan.MIXTURES, FASHION)
_GANS = {of.label: kind for kind, of in mixture_gan.KINDS.items()}
# draw(generator or REAL, repeat, key, n); logits of points; number of modes; trained parameters.
Source = tuple[Callable[..., Any], Callable[[jax.Array], jax.Array], int, Mapping[str, Any]]


def of_mixture(name: str) -> Source:
    """A mixture and the GANs of it; each repeat is a training. The classifier is Bayes'."""
    law, networks = mixture_gan.MIXTURES[name], {}
    for kind, of in mixture_gan.KINDS.items():
        training = mixture_gan.Training(name, kind, of.steps)
        networks[kind] = mixture_gan.trained(training, fitting.Places())["generator"]

    def draw(generator, repeat, key, n):
        if generator == REAL:
            return law.sample(key, n)
        return mixture_gan.sample(mixture_gan.one(networks[_GANS[generator]], repeat), key, n)

    def logits(points):
        away = jnp.square(points[:, None] - jnp.asarray(law.centres)[None])
        return -jnp.sum(away, axis=-1) / (2 * law.scale**2)

    return draw, logits, len(law.centres), networks


def of_pictures(name: str) -> Source:
    """Features of held-out pictures and of a diffusion model's; each repeat is other samples."""
    bench = benches.load(name)
    model, real = bench.model, bench.real.outputs

    sample = jax.jit(diffusion.sample, static_argnames=("shape", "steps", "solver"))

    def draw(generator, _, key, n):
        if generator == REAL:
            return real[np.asarray(jax.random.permutation(key, len(real))[:n])]
        steps, scale, kinds = _TOML["samplers"][generator]
        prompts = jnp.asarray(bench.prompts[np.arange(n) % kinds, 0])
        latents, denoise = jax.random.normal(key, (n, *model.shape)), model.denoise
        if scale != 1:
            denoise = diffusion.guided(denoise, model.unconditional, scale)
        if steps:
            options = {"shape": model.shape, "steps": steps, "solver": "dpm2"}
            latents, _ = sample(denoise, key, prompts, **options)
        return bench.features(model.decode(latents))

    return draw, bench.logits, len(bench.names), {**bench.params, "": real}


def inception_score(logits: jax.Array) -> float:
    """exp(I(X; Y)) of a classifier's logits `[n, modes]` (RKE section 6)."""
    shares = np.asarray(jax.nn.softmax(logits), np.float64)
    return float(np.exp(np.mean(np.sum(special.rel_entr(shares, shares.mean(0)), axis=1))))


def frechet(x: np.ndarray, y: np.ndarray) -> float:
    """The squared Frechet distance of the Gaussians of two samples (FID)."""
    roots = [np.linalg.qr(of - of.mean(0), mode="r") / np.sqrt(len(of) - 1) for of in (x, y)]
    apart = np.sum((x.mean(0) - y.mean(0)) ** 2) + sum(np.sum(root**2) for root in roots)
    return float(apart - 2 * np.linalg.norm(roots[0] @ roots[1].T, "nuc"))


class GeneratorScores(lab.Study):
    """Do RKE-MC and RRKE tell good generators from bad ones, and agree with other scores?"""

    name = "generator_scores"
    control = "The data themselves are a row, scored as every generator is."
    data = None
    drawings = ("generator_scores", "generator_scores_rules")

    sources: tuple[str, ...] = lab.flag(DATA, "The data.", choices=DATA)
    samples: int = lab.flag(500, "Samples of a generator, and references.", at_least=20)
    neighbours: int = lab.flag(5, "Of precision, recall, density and coverage.", at_least=1)
    repeats: int = lab.flag(5, "Trainings of a GAN, or sets of samples.", at_least=2, below=6)
    bandwidths: dict[str, dict[str, float]] = lab.resolved()

    def prepare(self, load, seed):
        found = {of: of_pictures(of) if of == FASHION else of_mixture(of) for of in self.sources}
        trees = {f"{name} {k}".strip(): of for name, s in found.items() for k, of in s[3].items()}
        arrays = {name: np.asarray(ravel_pytree(tree)[0]) for name, tree in trees.items()}
        return self.ready(
            state=found,
            arrays=arrays,
            bandwidths={name: self._widths(of, jax.random.key(seed)) for name, of in found.items()},
            description="Gaussians on a ring or a grid, and GANs; clothes, and a diffusion model",
        )

    def _widths(self, source: Source, key: jax.Array) -> dict[str, float]:
        """The paper's rule, and the bandwidth at which the data count as their number of modes."""
        points = np.asarray(source[0](REAL, 0, key, 4 * self.samples))
        ruled = bandwidth.bandwidth_by_rule(points, "std", key=key, partitions=1).bandwidth or 0.0

        def beyond(width: float) -> float:
            score = cv.decompose(points, kernel=cv.Gaussian(width), order=2, unbiased=True)
            return float(score.vendi) - source[2]

        counting: Any = optimize.brentq(beyond, ruled / 30, ruled, xtol=1e-3)
        return {"count": float(counting), "std": ruled}

    def cells(self):
        """Every generator of every data, and the data themselves."""
        return [
            Cell((("data", name), ("generator", of)))
            for name in self.sources
            for of in (*(_TOML["samplers"] if name == FASHION else _GANS), REAL)
        ]

    def compute(self, state, context, *, data, generator):
        """The scores of each repeat; samples of the data are not among the references."""
        (draw, logits, *_), n, values = state[data], self.samples, []
        kernels = [cv.Gaussian(width) for width in self.bandwidths[data].values()]
        for repeat in range(self.repeats):
            context.say(f"{repeat + 1} of {self.repeats}")
            keys = jax.random.split(jax.random.fold_in(context.shared_key, repeat))
            references, points = np.split(np.asarray(draw(REAL, repeat, keys[0], 2 * n)), 2)
            if generator != REAL:
                points = np.asarray(draw(generator, repeat, keys[1], n))
            pair, score = (points, references), inception_score(logits(jnp.asarray(points)))
            across = distance.cdist(references, points)
            within = distance.cdist(points, points), distance.cdist(references, references)
            shares = coverage.neighbourly(across, *within, self.neighbours)
            others = [score, frechet(*pair), *shares]
            rrke = [float(cv.baselines.rrke(*pair, kernel=kernel)) for kernel in kernels]
            rke = [float(cv.rke(points, kernel=kernel)) for kernel in kernels]
            values.append([[*others, *both] for both in zip(rrke, rke, strict=True)])
        labels = {"bandwidth": list(self.bandwidths[data]), "score": list(SCORES)}
        return xr.Dataset({"value": (("repeat", *labels), values)}, labels)

    def tables(self, run):
        """The scores, and how RKE-MC ranks the generators beside each other score."""
        rows = ("bandwidth", "data", "generator")
        scores = tables.t_intervals(run.found.value, "repeat")
        yield tables.table(scores, rows=rows, columns="score", error="error")
        ranks = tables.intervals(correlations(run.found))
        yield tables.table(ranks, rows=("data", "bandwidth"), columns="score")

    @classmethod
    def figures(cls, runs):
        run, ranks = runs[-1], correlations(runs[-1].found)
        found = xr.Dataset({"value": ranks.isel(end=0), "error": ranks.isel(end=[1, 2])})
        names = {"count": "bandwidth that counts the data's modes", "std": "RKE's rule"}
        rules = figures.facets(
            found, x="score", hue="bandwidth", column="data", across=3, error="error",
            kind="points", names=names, x_label="score", y_label="correlation with RKE-MC",
            title=lambda _, of: f"{of}, {'printed' if of in PRINTED else 'ours'}", sharey=True,
            size=(2.4, 2.3),
        )  # fmt: skip
        apart = abs(found.value.diff("bandwidth")).mean("score").idxmax("data").item()
        style.headline(rules, f"The bandwidth changes the agreement most on {apart}")
        printed = found["data"].isin([*PRINTED])
        one = xr.where(printed, found.sel(bandwidth="std"), found.sel(bandwidth="count"))
        least = one.value.min("data")
        ends = [f"{least.sel(score=of):.2f} with {of}" for of in least.score[[0, 2]].values]
        count = {of: len(rows) for of, rows in PRINTED.items()}
        counts = [count.get(of, len(_GANS)) for of in found["data"].values]
        labels = [f"{k}: {n} generators" for k, n in zip(found["data"].values, counts, strict=True)]
        both = [one.where(printed == of).assign_coords(data=labels) for of in (False, True)]
        ranked = dots.facets(
            xr.concat(both, xr.IndexVariable("source", ["ours", "printed"])).rename(error="ends"),
            row="score", hue="data", column="source", x_label="rank correlation with RKE-MC",
            headline=f"Over {min(counts)} to {max(counts)} generators, RKE-MC's least agreement is "
            f"{ends[0]}, {ends[1]}", each=lambda panel, _: panel.set_xticks([-1, -0.5, 0, 0.5, 1]),
        )  # fmt: skip
        n = f"n = {run.study.samples:,}; FID and RRKE with their signs changed"
        look: Any = {"n": n, "bars": f"smallest and largest of {run.study.repeats} repeats"}
        drawn = {run.folder.name: ranked, f"{run.folder.name}_rules": rules}
        return {name: figures.caption(of, run, **look) for name, of in drawn.items()}

    @classmethod
    def facts(cls, runs):
        found = tables.t_intervals(runs[0].found.value, "repeat")
        shown = found.sel(bandwidth="count", score=["IS", *SCORES[3:]])
        table = tables.table(shown, rows=("data", "generator"), columns="score", digits=3)
        found = found.assign_coords(generator=found.generator.str.replace(" ", "_"))
        ranks, with_data = correlations(runs[0].found), correlations(runs[0].found, left_out="")
        return {"scores": found, "ranks": ranks, "with_data": with_data, "table": table}


def correlations(found: xr.Dataset, left_out: str = REAL) -> xr.DataArray:
    """Spearman's correlations of RKE-MC with the other scores over generators, better is higher.

    `end`: the mean over the repeats, the smallest and the largest; one table is printed.
    """
    data, widths = found["data"].values.tolist(), found.bandwidth.values.tolist()
    sets = {(name, "std"): scores[None] for name, scores in PRINTED.items()}
    ours = found.value.sel(generator=found.generator != left_out)
    ours = ours.transpose("repeat", "generator", "score", ...)
    for name, width in itertools.product(data, widths):
        sets[name, width] = ours.sel(data=name, bandwidth=width).dropna("generator").values
    labels = {"data": [*data, *PRINTED], "bandwidth": widths, "end": ["value", "low", "high"]}
    labels["score"] = list(SCORES[:-1])
    ranks = xr.DataArray(np.nan, labels, list(labels))
    for (name, width), scores in sets.items():
        each = [agreement.spearman(of[:, :-1].T, of[:, -1]) for of in _SIGNS * scores]
        ends = [getattr(np, of)(each, axis=0) for of in ("mean", "min", "max")]
        ranks.loc[{"data": name, "bandwidth": width}] = ends
    return ranks
