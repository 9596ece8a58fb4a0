"""Pairs of answers that people called the same or different, and the bandwidth that meets them."""

import jax
import numpy as np
import xarray as xr

import condvendi_jax as cv
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import agreement, figures, style, tables
from experiments.language_models import judged

# What says that two answers are the same: by degrees, or yes and no.
GRADED, BELOW, COSINE, EQUAL, CLASSES = (
    "effective number",
    "effective number below 1.5",
    "cosine above the best threshold",
    "equal texts",
    "the benchmark's class",
)
_LABELS = ("same", "different")
_PARTS = ("training", "validation")
_BINS = 8


class SameAnswers(lab.Study):
    """Do the scores agree with people on which answers are the same?"""

    control = "The bandwidth is chosen on pairs that do not judge it."
    version = 2
    data = "same_answers"
    paired = False
    needs = ("same", "train")
    takes = ("equal", "classes")
    further = ("second",)

    resamples: int = lab.flag(2000, "Resamples of the pairs for the intervals.", at_least=2)
    bandwidths: dict[str, float] = lab.resolved()
    threshold: float = lab.resolved()
    counts: dict[str, list[int]] = lab.resolved()

    def prepare(self, load, seed):
        """Chooses every bandwidth, and the threshold of the cosine, from the pairs for training."""
        pairs = load()
        labelled = judged.labelled(pairs)
        same, train = (labelled.labels[name] for name in ("same", "train"))
        both = np.concatenate([of[train] for of in (pairs.outputs, pairs.further["second"])])
        variance = cv.bandwidth_by_rule(both, "variance", key=jax.random.key(seed), partitions=1)
        own = judged.bandwidth_of(labelled)
        of_parts = dict(zip(_PARTS, (same[train], same[~train]), strict=True))
        return self.ready(
            pairs,
            state=labelled,
            bandwidths={
                "people": own,
                "people x 0.5": own / 2,
                "people x 2": own * 2,
                "likeliest": judged.bandwidth_of(labelled, share=False),
                "variance rule": variance.bandwidth,
            },
            threshold=best_threshold(_cosines(pairs)[train], same[train]),
            counts={name: [int(of.sum()), len(of)] for name, of in of_parts.items()},
        )

    def axes(self):
        return {"part": _PARTS}

    def compute(self, state, context, *, part):
        """How far each judge agrees with people, and what each bandwidth counts.

        `auc` over `judge` and `end` (the value and the ends of its 95% interval over the pairs):
        the probability that of a pair of either kind the one that people call the same is the one
        that is more alike, ties counting half; for yes and no it is the mean of the shares that are
        right of each kind. `judged`, the number of pairs that a judge knows. Over `width`:
        `number`, the mean effective number of pairs that are the `same` and that are `different`
        (the axis `label`); `counted`, 1 over the mean of k^2, an effective number of answers, whose
        value by the labels is `wanted`. Over `bin`: `alike`, the mean of k^2 of the pairs in it at
        the bandwidth from the judgements, and `share`, that of the pairs that people call the same,
        with `share_error`.
        """
        train = state.labels["train"]
        pairs = state.rows(train if part == _PARTS[0] else ~train)
        same, equal, classes = (pairs.labels[name] for name in ("same", "equal", "classes"))
        apart = pairs.outputs.astype(np.float64) - pairs.further["second"]
        apart = np.sum(apart**2, axis=1)
        squares = {name: np.exp(-apart / width**2) for name, width in self.bandwidths.items()}
        own = squares["people"]
        alike = {
            GRADED: own,
            BELOW: (2 / (1 + own) < 1.5).astype(float),
            COSINE: (_cosines(pairs) >= self.threshold).astype(float),
            EQUAL: equal.astype(float),
            CLASSES: np.where(classes < 0, np.nan, classes.astype(float)),
        }

        def with_interval(alike: np.ndarray) -> np.ndarray:
            known = np.isfinite(alike)
            of, labels = alike[known], same[known]
            generator = np.random.default_rng(context.shared_seed)
            draws = list(agreement.resampled(np.arange(len(of)), self.resamples, generator))
            return agreement.with_interval(
                lambda taken: np.array([area(of[taken], labels[taken])]), draws, len(of)
            )[0]

        auc = [with_interval(of) for of in alike.values()]
        numbers = [2 / (1 + of) for of in squares.values()]
        number = [[of[same].mean(), of[~same].mean()] for of in numbers]
        edges = np.array_split(np.argsort(own, kind="stable"), _BINS)
        share = np.array([same[of].mean() for of in edges])
        sizes = np.array([len(of) for of in edges])
        fields = {
            "auc": (("judge", "end"), auc),
            "judged": ("judge", [np.isfinite(of).sum() for of in alike.values()]),
            "bandwidth": ("width", list(self.bandwidths.values())),
            "number": (("width", "label"), number),
            "counted": ("width", [1 / of.mean() for of in squares.values()]),
            "wanted": 1 / same.mean(),
            "alike": ("bin", [own[of].mean() for of in edges]),
            "share": ("bin", share),
            "share_error": ("bin", np.sqrt(share * (1 - share) / sizes)),
        }
        labels = {"judge": list(alike), "width": list(squares), "label": list(_LABELS)}
        return xr.Dataset(fields, labels)

    def tables(self, run):
        """How far each judge agrees with people, and what each bandwidth counts."""
        found = run.found
        yield tables.table(tables.intervals(found.auc), rows=("judge",), columns="part")
        yield tables.table(found, rows=("width",), columns="part", value="counted")
        yield tables.table(found, rows=("part", "width"), columns="label", value="number")

    @classmethod
    def facts(cls, runs):
        (run,) = runs
        return {"agreement": next(run.study.tables(run))}

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        counts = run.study.counts.items()
        n = ", ".join(f"{count} of {name}, {same} the same" for name, (same, count) in counts)
        look = {"color": style.GREY, "lw": 0.8, "label": "the same on average"}
        figure = figures.facets(
            run.found, x="alike", hue="part", value="share", error="share_error",
            each=lambda panel, _: panel.plot([0, 1], [0, 1], **look), size=(5.8, 3.2),
            x_label="mean squared kernel of an eighth of the pairs",
            y_label="share that people call the same",
        )  # fmt: skip
        off = abs(run.found.share - run.found.alike).groupby("part").mean(...).to_series().items()
        words = " and ".join(f"{value:.2f} ({part})" for part, value in off)
        style.headline(figure, f"The squared kernel is off the share called the same by {words}")
        return {"same_answers": figures.caption(figure, run, n=n, bars="one error")}


def _cosines(pairs: PairedEmbeddings) -> np.ndarray:
    return np.einsum("ij,ij->i", pairs.outputs.astype(np.float64), pairs.further["second"])


def area(alike: np.ndarray, same: np.ndarray) -> float:
    """How often a pair that is the same is more alike than one that differs; ties count half.

    NaN where all pairs have one label. It is the area under the ROC curve.
    """
    count = int(same.sum())
    if count in (0, len(same)):
        return np.nan
    total = agreement.ranks(alike)[same].sum()
    return (total - count * (count + 1) / 2) / (count * (len(same) - count))


def best_threshold(alike: np.ndarray, same: np.ndarray) -> float:
    """The value from which on pairs are best called the same: most right of both kinds together.

    Halfway between two neighbouring values, so that rounding does not decide.
    """
    values = np.unique(alike)
    middles = (values[1:] + values[:-1]) / 2
    right = [(alike[same] >= m).mean() + (alike[~same] < m).mean() for m in middles]
    return float(middles[int(np.argmax(right))])
