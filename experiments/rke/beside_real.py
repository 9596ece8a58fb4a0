"""Generated outputs beside real ones of the same prompts: RKE table 2, with table 1's columns."""

import numpy as np
import xarray as xr
from scipy import stats
from scipy.spatial.distance import cdist

from experiments import lab
from experiments.lab import figures, models, style, tables
from experiments.rke.coverage import neighbourly

METRICS = ("RKE-MC", "RRKE", "Precision", "Recall", "Density", "Coverage")
OUTPUTS = "outputs"


def score(gram: np.ndarray, distances: np.ndarray, k: int) -> np.ndarray:
    """`METRICS` of n outputs, first, against n real ones: by kernel and distances `[2 n, 2 n]`."""
    n = len(gram) // 2
    rke = 1 / np.mean(gram[:n, :n] ** 2)
    rrke = -2 * np.log(max(np.linalg.norm(gram[n:, :n], "nuc") / n, 1e-300))
    parts = distances[n:, :n], distances[:n, :n], distances[n:, n:]
    return np.array([rke, rrke, *neighbourly(*parts, k)])


class BesideReal(lab.Study):
    """How near are generated outputs to real ones, and how diverse beside them?"""

    control = "Real clips of half of the prompts are scored against those of the other half."
    data = "video"
    needs = ("models",)
    takes = ("prompt",)
    further = ("means", "stills")

    bandwidths: lab.Scales = lab.Scales()
    reference: str = lab.flag("real clips", "Which of the models is the reference.")
    neighbours: int = lab.flag(5, "Nearest neighbours of precision to coverage.", at_least=1)
    halves: int = lab.flag(500, "Random halves of the prompts, for the errors.", at_least=10)
    models: tuple[str, ...] = lab.resolved()
    prompts: int = lab.resolved()
    embeddings: tuple[str, ...] = lab.resolved()

    def prepare(self, load, seed):
        pairs = load()
        if not len(real := pairs.prompt_numbers[pairs.labels["models"] == self.reference]):
            raise ValueError(f"--reference: expected one of the models, received {self.reference}.")
        # What was made for other prompts has no reference.
        pairs = pairs.rows(np.isin(pairs.prompt_numbers, real))
        if (prompts := len(models.check_shared(pairs))) // 2 <= self.neighbours:
            raise ValueError(f"--neighbours: expected fewer than half of the {prompts} prompts.")
        return self.ready(
            pairs,
            state=pairs,
            bandwidths=self.bandwidths.resolve(pairs, seed),
            models=tuple(models.rows_by_model(pairs.labels["models"])),
            prompts=prompts,
            embeddings=(OUTPUTS, *(role for role in self.further if role in pairs.further)),
        )

    def axes(self):
        return {"embedding": self.embeddings, "scale": self.bandwidths.axis}

    def compute(self, state, context, *, embedding, scale):
        """The metrics of each model, `value`, against the reference on the same prompts.

        Of one output of each. Errors are standard deviations over random halves of the prompts, the
        jackknife that leaves out half. `apart`: means over halves, against the reference on others.
        """
        outputs = state.outputs if embedding == OUTPUTS else state.further[embedding]
        rows = models.shared_rows(state, self.models, 1, None)[..., 0]
        kernel, distances = scale.kernels["output_kernel"], cdist(outputs, outputs)
        gram = np.asarray(kernel.cross(*2 * [kernel.prepare(outputs)]), float)
        reference, every = self.models.index(self.reference), np.arange(self.prompts)

        def scores(of, against):
            both = [np.r_[m[of], rows[reference, against]] for m in rows]
            pairs = ((gram[np.ix_(b, b)], distances[np.ix_(b, b)]) for b in both)
            return np.array([score(*pair, self.neighbours) for pair in pairs])

        generator, half = np.random.default_rng(context.shared_seed), self.prompts // 2
        orders = [generator.permutation(every) for _ in range(self.halves)]
        value, drawn = scores(every, every), np.array([scores(o[:half], o[:half]) for o in orders])
        apart = np.mean([scores(order[:half], order[-half:]) for order in orders], axis=0)
        value[reference, 1:] = drawn[:, reference, 1:] = np.nan
        one, two, names = ("model", "metric"), ("model", "other", "metric"), list(self.models)
        errors = (drawn[:, :, None] - drawn[:, None]).std(axis=0)
        fields = {"value": (one, value), "error": (one, drawn.std(axis=0)), "apart": (one, apart)}
        fields |= {"difference": (two, value[:, None] - value), "difference_error": (two, errors)}
        return xr.Dataset(fields, {"model": names, "other": names, "metric": list(METRICS)})

    def tables(self, run):
        """The metrics; against the reference on other prompts; differences (Bonferroni, 0.05)."""
        found, rows = run.found, ("embedding", "scale", "model")
        of = {"columns": "metric", "digits": 3}
        yield tables.table(found, rows=rows, error="error", **of)
        yield tables.table(found, rows=rows, value="apart", **of)
        limit = stats.norm.isf(models.LEVEL / found.model.size / (found.model.size - 1))
        told = found.where(found.difference > limit * found.difference_error)
        of |= {"value": "difference", "error": "difference_error"}
        yield tables.table(told, rows=(*rows, "other"), **of)

    @classmethod
    def figures(cls, runs):
        scale = runs[0].study.bandwidths.shown
        found = runs[0].found.sel(scale=scale, metric=list(METRICS[:4]))
        ends = found.value + 1.96 * found.error * xr.DataArray([-1, 1], dims="end")
        scores = found.metric.isin(METRICS[:2])  # The others are shares, not above 1.
        ends = ends.where(scores, ends.clip(0, 1))
        drawn = figures.facets(
            found.assign(ends=ends), x="model", hue="embedding", column="metric", x_label="",
            across=2, kind="points", error="ends", sharey="none", size=(3.5, 2.0), y_label="",
        )  # fmt: skip
        value = found.value.drop_sel(model=runs[0].study.reference)
        most = value.sel(metric="RKE-MC").idxmax("model").values
        both = " or ".join({*most, *value.sel(metric="Precision").idxmin("model").values})
        finding = f"{both} has the highest RKE-MC and the lowest precision"
        style.headline(drawn, f"{finding} of the models")
        bars = "95%, from random halves of the prompts"
        return {"beside_real": figures.caption(drawn, runs, bars=bars, scale=scale)}
