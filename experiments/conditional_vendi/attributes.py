"""How different eight text-to-image models' pictures of one prompt are, by category of prompts."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from scipy import stats

import condvendi_jax as cv
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.inference import asked_once
from experiments import lab
from experiments.conditional_vendi.type_draws import gram_of
from experiments.lab import figures, models, style, tables

# Of DrawBench: categories whose prompts fix the attribute that they are named by, and the others.
NAMED = ("colours", "counting", "positional")
UNNAMED = ("DALL-E", "Gary Marcus et al.", "Reddit", "conflicting", "descriptions")
_NAMES = {"outputs": "EfficientNet-Lite0", "second": "EfficientNet-Lite2"}


class Attributes(lab.Study):
    """On which prompt categories do text-to-image models differ most?"""

    data = "t2i"
    needs = ("models", "types", "prompt")
    further = ("second",)
    control = (
        "Every prompt has one picture by each of the same models and counts once; scores of an "
        "equal number of prompts a category stand beside."
    )

    bandwidths: lab.Scales = lab.Scales()
    equal: int = lab.flag(9, "Prompts of each category where all have as many.", at_least=2)
    encoders: dict[str, lab.Scales] = lab.resolved()
    models: tuple[str, ...] = lab.resolved(())

    def prepare(self, load, seed):
        """Orders pictures by prompt and model; each encoder has bandwidths by the rule."""
        pairs = load()
        names, counts = models.count_rows(pairs)
        if (counts != 1).any():
            raise ValueError("--models: expected one output of every prompt by every model.")
        rows = models.shared_rows(pairs, names, 1, None)[..., 0].T
        kinds = pairs.labels["types"][rows[:, 0]].astype(str)
        if (least := np.unique(kinds, return_counts=True)[1].min()) < self.equal:
            raise ValueError(f"--equal: expected at most the {least} prompts of a category.")
        encoded = {"outputs": pairs.outputs, **pairs.further}
        scales = {
            role: self.bandwidths.resolve(dataclasses.replace(pairs, outputs=outputs), seed)
            for role, outputs in encoded.items()
        }
        return self.ready(
            pairs,
            state=(kinds, pairs.prompts[rows[:, 0]], {r: x[rows] for r, x in encoded.items()}),
            bandwidths=scales["outputs"],
            encoders=scales,
            models=tuple(names),
        )

    def cells(self):
        """Every encoder, at the multiples of its bandwidths."""
        every = [(role, s) for role, scales in self.encoders.items() for s in scales.axis]
        return [lab.Cell((("encoder", role), ("scale", scale))) for role, scale in every]

    def compute(self, state, context, *, encoder, scale):
        """Different pictures by category: one over the mean similarity of two models' pictures.

        `value` is of pictures of one prompt, with `ends` by prompts; `other` of different prompts
        of the category; `equal` of as many prompts of every category. `apart` is 1 or -1 where a
        test separates two categories (Holm); `alike` the p-value that all are alike; `named` the
        ratio of `NAMED` to `UNNAMED`, with its interval. `at_most` bounds the pictures of one
        prompt by each model, of which there is one.
        """
        kinds, prompts, encoded = state
        p, k, _ = encoded[encoder].shape
        flat = jnp.asarray(encoded[encoder].reshape(p * k, -1))
        kernel = scale.kernels["output_kernel"].suited_to(flat)
        squares = gram_of(kernel, flat).reshape(p, k, p, k) ** 2
        # Of pictures by different models, of every two prompts.
        similar = (squares.sum((1, 3)) - np.einsum("piqi->pq", squares)) / (k * (k - 1))
        inside, generator = np.diag(similar), np.random.default_rng(context.shared_seed)
        names = np.unique(kinds).tolist()
        rows = [np.flatnonzero(kinds == name) for name in names]
        parts = [inside[of] for of in rows]
        logs, errors = np.array([log_number(part) for part in parts]).T
        half = stats.t.ppf(0.975, [len(part) - 1 for part in parts]) * errors
        across = [similar[np.ix_(of, of)][~np.eye(len(of), dtype=bool)].mean() for of in rows]
        equal = [generator.permutation(part)[: self.equal].mean() for part in parts]
        one, other = np.triu_indices(len(parts), 1)
        two = [(parts[i], parts[j]) for i, j in zip(one, other, strict=True)]
        tests: Any = [stats.ttest_ind(*of, equal_var=False) for of in two]
        adjusted = cv.inference.holm([test.pvalue for test in tests])
        apart = np.zeros([len(parts)] * 2)
        apart[one, other] = (np.array(adjusted) <= models.LEVEL) * np.sign(logs[one] - logs[other])
        (named, e), (unnamed, f) = (log_number(inside[np.isin(kinds, o)]) for o in (NAMED, UNNAMED))
        ratio, error = named - unnamed, stats.norm.ppf(0.975) * np.hypot(e, f)
        alone = [Pairs(x, prompts, **scale.kernels) for x in np.swapaxes(encoded[encoder], 0, 1)]
        axes = {"category": names, "than": names, "end": ["low", "high"], "at": range(3)}
        fields = {
            "value": ("category", np.exp(logs)),
            "ends": (("end", "category"), np.exp([logs - half, logs + half])),
            "other": ("category", 1 / np.array(across)),
            "equal": ("category", 1 / np.array(equal)),
            "apart": (("category", "than"), apart),
            "alike": stats.kruskal(*parts).pvalue,
            "named": ("at", np.exp([ratio, ratio - error, ratio + error])),
            "at_most": ("model", [asked_once.of_pairs(pairs).at_most for pairs in alone]),
        }
        return xr.Dataset(fields, axes | {"model": list(self.models)})

    def tables(self, run):
        """The numbers of each category; how encoders agree; named attributes; models alone."""
        found, rows = run.found, ("encoder", "scale")
        parts = xr.Dataset({"value": found[["value", "equal", "other"]].to_array("of")})
        yield tables.table(parts, rows=(*rows, "category"), columns="of", digits=3)
        yield tables.table(xr.Dataset({"value": agreement(found)}), rows=("scale",), columns="of")
        named = tables.intervals(found.named.rename(at="end"))
        yield tables.table(named, rows=("scale",), columns="encoder")
        yield tables.table(found, rows=rows, columns="model", value="at_most", digits=3)

    @classmethod
    def facts(cls, runs):
        found = runs[0].found
        few = found[["value", "equal"]].sel(scale=1, encoder="outputs").to_array().values
        return {"found": found, "agree": agreement(found), "equal_tau": stats.kendalltau(*few)[0]}

    @classmethod
    def figures(cls, runs):
        run, shown = runs[0], runs[0].study.bandwidths.shown
        found = run.found.sel(scale=shown)
        found = found.sortby(found.value.isel(encoder=0))
        names = dict(_NAMES)
        for role, of in run.study.encoders.items():
            if of.output_bandwidth is not None:
                names[role] += f", bandwidth {shown * of.output_bandwidth:.3g}"
        drawn = figures.facets(
            found[["value", "ends"]], x="category", hue="encoder", kind="points", error="ends",
            names=names, size=(7, 3), x_label="",
            y_label=f"different pictures to\na prompt, by {len(run.study.models)} models",
        )  # fmt: skip
        alike = ((found.named[:, 1] < 1) & (found.named[:, 2] > 1)).all().item()
        finding = f"Categories that name an attribute {'do not ' * alike}differ from the others"
        style.headline(drawn, f"{finding} (x {found.named.min():.2f} to {found.named.max():.2f})")
        words = f"{run.study.description.partition(';')[0]}. Bars: 95%, over prompts. Compared: "
        words += f"{', '.join(NAMED)} with {', '.join(UNNAMED)}. Seed {run.seed}."
        return {cls.name: style.caption(drawn, words)}


def log_number(similar: np.ndarray) -> tuple[float, float]:
    """The logarithm of one over a mean over prompts, with its standard error."""
    if len(similar) < 2:
        return np.nan, np.nan
    return -np.log(similar.mean()), stats.sem(similar) / similar.mean()


def agreement(found: xr.Dataset) -> xr.DataArray:
    """How many pairs of categories differ alike in both encoders, and in any; the ranks' tau."""
    pair, ends = ("category", "than"), (found.value.isel(encoder=at, drop=True) for at in (0, -1))
    both = (abs(found.apart.sum("encoder")) == found.encoder.size).sum(pair)
    any_of = (found.apart != 0).any("encoder").sum(pair)
    look = {"input_core_dims": [["category"]] * 2, "vectorize": True}
    tau = xr.apply_ufunc(lambda x, y: stats.kendalltau(x, y)[0], *ends, **look)
    parts = {"both": both, "any": any_of, "tau": tau}
    return xr.Dataset(parts).to_array("of")
