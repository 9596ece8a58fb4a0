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
from experiments import lab
from experiments.generators import benches, diffusion, fitting, mixture_gan
from experiments.lab import Cell, agreement, figures, style, tables
from experiments.rke import coverage

SCORES = ("IS", "FID", "Precision", "Recall", "Density", "Coverage", "RRKE", "RKE-MC")
_SIGNS = np.where(np.isin(SCORES, ("FID", "RRKE")), -1, 1)  # These two are better where lower.
_TOML = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text("utf-8"))
_TABLE, _LEVEL = ("bandwidth", "data", "generator"), 0.05
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

    control = "The data themselves are a row, scored as every generator is."
    data = None

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
        ruled = coverage.width_by_rule(points, key)

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
        scores = tables.t_intervals(run.found.value, "repeat")
        yield tables.table(scores, rows=_TABLE, columns="score", error="error")
        ranks = correlations(run.found)
        yield tables.table(ranks, rows=("data", "bandwidth"), columns="score", digits=2)
        names = {"value": "p"}
        yield tables.table(
            ranks, rows=("data", "bandwidth", "score"), value="p", names=names, digits=2
        )

    @classmethod
    def figures(cls, runs):
        run, ranks = runs[-1], correlations(runs[-1].found)
        names = {"count": "counts modes", "std": "RKE's rule"}
        ranks = ranks.assign_coords(bandwidth=[names[of] for of in ranks.bandwidth.values])
        told, count = int((ranks.p < _LEVEL).sum()), int(ranks.p.notnull().sum())
        drawn = figures.dots(
            ranks, row="score", hue="bandwidth", column="data",
            x_label="rank correlation with RKE-MC",
            headline=f"Five generators and the data tell {told} of {count} rank correlations with "
            f"RKE-MC from chance (p < {_LEVEL}, uncorrected)",
            each=lambda panel, _: panel.axvline(0, color=style.BLACK, linewidth=0.8),
        )  # fmt: skip
        drawn.axes[0].legend([], frameon=False)  # The last panel has room for it.
        drawn.axes[-1].legend(*drawn.axes[-1].get_legend_handles_labels(), loc="center left")
        n = f"n = {run.study.samples:,}; signs of FID and RRKE changed"
        bars = f"smallest and largest of {run.study.repeats} repeats"
        return {"generator_scores": figures.caption(drawn, run, n=n, bars=bars)}

    @classmethod
    def facts(cls, runs):
        run = runs[0].found
        found, ranks = tables.t_intervals(run.value, "repeat"), correlations(run)
        known: dict[str, Any] = {"ranks": ranks, "five": correlations(run, left_out=REAL)}
        shown = found.sel(bandwidth="count", score=["IS", *SCORES[3:]])
        known["table"] = tables.table(shown, rows=_TABLE[1:], columns="score", digits=3)
        ranks, words = ranks.sel(bandwidth="count", drop=True), "{:.2f} ({:.2f})".format
        said = xr.apply_ufunc(words, ranks.value, ranks.p, vectorize=True)
        known["p"] = tables.table(said.to_dataset(name="value"), rows=("data",), columns="score")
        return known | {
            "scores": found.assign_coords(generator=found.generator.str.replace(" ", "_"))
        }


def correlations(found: xr.Dataset, left_out: str = "") -> xr.Dataset:
    """Spearman's correlations of RKE-MC with the other scores over the generators and the data.

    Better is higher. `value` is the mean over the repeats, `ends` the smallest and the largest.
    `p`: in how many of all exchanges of generators, the same in all repeats, it is as far from 0.
    """
    signs = xr.DataArray(_SIGNS, {"score": list(SCORES)})
    kept = found.value.sel(generator=found.generator != left_out) * signs

    def of_place(rows: np.ndarray) -> np.ndarray:
        rows = rows[..., np.isfinite(rows).all(axis=(0, 1))]
        orders = np.array([*itertools.permutations(range(rows.shape[-1]))])
        # Of mean 0 and norm 1: their products are rank correlations.
        ranks = np.array([[agreement.ranks(row) for row in of] for of in rows])
        ranks -= ranks.mean(axis=2, keepdims=True)
        ranks /= np.linalg.norm(ranks, axis=2, keepdims=True)
        each = np.array([of[:-1] @ of[-1] for of in ranks])
        shuffled = np.mean([of[:-1] @ of[-1][orders].T for of in ranks], axis=0)
        mean = each.mean(axis=0)
        p = np.mean(abs(shuffled) >= abs(mean)[:, None] - 1e-9, axis=1)
        return np.stack([mean, p, each.min(axis=0), each.max(axis=0)], axis=-1)

    dims: Any = {"input_core_dims": [["repeat", "score", "generator"]]}
    dims |= {"output_core_dims": [["score", "of"]], "exclude_dims": {"score"}}
    parts = xr.apply_ufunc(of_place, kept, vectorize=True, **dims)
    parts = parts.assign_coords(score=list(SCORES[:-1]))
    ends = parts.isel(of=[2, 3]).rename(of="end").assign_coords(end=["low", "high"])
    return xr.Dataset({"value": parts.isel(of=0), "p": parts.isel(of=1), "ends": ends})
