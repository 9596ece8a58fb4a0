"""How diverse captions of photographs are: CV figure 20, with captioners of known diversity."""

import functools
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import condvendi_jax as cv
from condvendi_jax import inference
from condvendi_jax.base import checks
from condvendi_jax.data.pairs import Pairs
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import figures, style, tables
from experiments.lab.models import rows_by_cell

OTHER, ALL = "other", "all"


class Answers(NamedTuple):
    """Who says what of some photographs."""

    captions: dict[str, np.ndarray]  # By captioner, rows of the pairs `[photographs, k]`.
    photographs: np.ndarray  # A row of each photograph.
    groups: np.ndarray  # Of the jackknife, of each photograph.


def by_photograph(pairs: PairedEmbeddings) -> tuple[list[str], np.ndarray]:
    """The captioners, and the rows of their captions `[captioners, photographs, captions]`.

    Every captioner has the same photographs and as many captions of each: those that all have.
    """
    prompt = pairs.labels["prompt"]
    _, first, photograph = np.unique(prompt, return_index=True, return_inverse=True)
    strangers = np.flatnonzero((pairs.prompts != pairs.prompts[first[photograph]]).any(axis=1))
    for row in strangers[:1]:
        raise ValueError(
            f"--prompt: expected rows of one photograph to be equal, received others in the rows "
            f"{first[photograph[row]]} and {row} of {prompt[row]}."
        )
    models, who = np.unique(pairs.labels.get("models", np.zeros(len(prompt))), return_inverse=True)
    rows = rows_by_cell(photograph, who)
    if not rows.size:
        raise ValueError("--models: expected photographs that all of them captioned, found none.")
    return [str(m) for m in models], rows.swapaxes(0, 1)


def kinds_of(pairs: PairedEmbeddings, rows: np.ndarray) -> dict[str, np.ndarray]:
    """The photographs of each kind but `OTHER`, by their numbers; `rows` has one of each."""
    kinds = pairs.labels.get("pictures", np.full(len(pairs), ALL))[rows].astype(str)
    names = [kind for kind in np.unique(kinds).tolist() if kind != OTHER]
    if not names:
        raise ValueError(f"--pictures: expected kinds of pictures, received '{OTHER}' for all.")
    return {kind: np.flatnonzero(kinds == kind) for kind in names}


def answers(
    pairs: PairedEmbeddings, said: dict[str, np.ndarray], groups: int, rng: np.random.Generator
) -> Answers:
    """What each captioner says of some photographs; `said` has rows `[photographs, K]`.

    One captioner stands for several: its first k captions of each photograph for k = 1 ... K (to
    repeat all pairs changes no score); `swapped`, all K captions of another photograph; `shuffled`,
    K captions of K others; and `one for all`, the caption that is nearest to all the others.
    """
    own = next(iter(said.values()))
    count, each = own.shape
    group = rng.permutation(count) % groups
    if len(said) == 1:
        said = {f"k = {k}": own[:, :k] for k in range(1, each + 1)}
        # Another photograph for each: the one before it in a random order.
        orders = [rng.permutation(count) for _ in range(each + 1)]
        others = [np.roll(order, 1)[np.argsort(order)] for order in orders]
        said["swapped"] = own[others[0]]
        said["shuffled"] = np.stack([own[others[k + 1], k] for k in range(each)], axis=1)
        embedded = pairs.outputs[own.ravel()]
        nearest = own.ravel()[np.argmax(embedded @ embedded.sum(axis=0))]
        said["one for all"] = np.full((count, 1), nearest)
    return Answers(said, own[:, 0], group)


SCORES = ("vendi", "conditional", "information")
_FAMILIES = {1.0: "Vendi", 2.0: "RKE"}
CAPTIONERS = ("BLIP-2", "GIT", "GPT4o-mini")  # Of which CV figure 20 prints these.
PRINTED = {
    "Conditional-Vendi": ("4.09", "10.9", "13.10"),
    "Information-Vendi": ("2.28", "3.28", "3.98"),
    "Conditional-RKE": ("2.53", "6.47", "7.82"),
    "Information-RKE": ("1.80", "2.41", "2.93"),
}


class Captioning(lab.Study):
    """Do the scores count the different captions that a captioner gives for a photograph?"""

    name = "captioning"
    control = "The first k captions are scored, so n grows with k; controls exchange all captions."
    grows = ("kind", "captioner")
    version = 2
    data = "captioning"
    needs = ("prompt",)
    takes = ("models", "pictures")
    drawings = ("captioning", "captioning_information", "captioning_double")

    bandwidths: lab.Scales = lab.Scales()
    photographs: int = lab.flag(40, "Photographs of each kind at most, at random.", at_least=2)
    orders: tuple[float, ...] = lab.flag((1.0, 2.0), "Renyi orders of the scores.")
    groups: int = lab.flag(10, "Groups of photographs that the jackknife leaves out.", at_least=2)
    counts: dict[str, int] = lab.resolved()
    captioners: tuple[str, ...] = lab.resolved()

    def prepare(self, load, seed):
        pairs = load()
        models, rows = by_photograph(pairs)
        kinds = kinds_of(pairs, rows[0, :, 0])
        rng = np.random.default_rng(seed)
        drawn = {k: np.sort(rng.permutation(rows)[: self.photographs]) for k, rows in kinds.items()}
        if len(drawn) > 1:
            drawn[ALL] = np.concatenate(list(drawn.values()))
        said = {}
        for kind, numbers in drawn.items():
            if len(numbers) < self.groups:
                raise ValueError(
                    f"--groups: expected at most the {len(numbers)} photographs of {kind}, "
                    f"received {self.groups}."
                )
            of_all = dict(zip(models, rows[:, numbers], strict=True))
            said[kind] = answers(pairs, of_all, self.groups, rng)
        return self.ready(
            pairs,
            state=(pairs, said),
            bandwidths=self.bandwidths.resolve(pairs, seed),
            orders=tuple(map(checks.check_order, self.orders)),
            counts={kind: len(numbers) for kind, numbers in drawn.items()},
            captioners=tuple(next(iter(said.values())).captions),
        )

    def axes(self):
        return {"scale": self.bandwidths.axis, "kind": tuple(self.counts)}

    def compute(self, state, context, *, scale, kind):
        """Scores, each group's influence on them, and `unbiased` ones of order 2 with intervals."""
        pairs, said = state[0], state[1][kind]
        values, influences, unbiased = [], [], []
        for captioner, captions in said.captions.items():
            context.say(captioner)
            of_each = captions.shape[1]
            prompts = np.repeat(pairs.prompts[said.photographs], of_each, axis=0)
            points = Pairs(pairs.outputs[captions.ravel()], prompts, **scale.kernels)
            groups = inference.Groups(np.repeat(said.groups, of_each), "photographs")
            method = cv.Auto(context.key, rtol=0.005)
            delete = functools.partial(inference.delete_groups, groups=groups, method=method)
            found = [delete(points, cv.Entropy(order=order)) for order in self.orders]
            values.append([np.array(f.decomposition.scores) for f in found])
            influences.append([np.array(f.influences)[:, 0] for f in found])
            options = {"errors": len(np.unique(prompts, axis=0)) > 2, **scale.kernels}
            sampled = cv.evaluate(*points.arrays, orders=[2], **options).order(2).population
            assert sampled is not None  # Order 2 is computed from pairs.
            intervals = sampled.intervals or [(np.nan, np.nan)] * len(SCORES)
            unbiased.append([[v, *e] for v, e in zip(sampled.values, intervals, strict=True)])
        axes = {"captioner": [*self.captioners], "order": [*self.orders], "score": [*SCORES]}
        fields = {"value": (tuple(axes), values), "influence": ((*axes, "group"), influences)}
        return xr.Dataset(fields | {"unbiased": (("captioner", "score", "end"), unbiased)}, axes)

    def tables(self, run):
        """Every score with its error; those of order 2 with captions as a sample."""
        found, rows = with_errors(run.found), ("scale", "kind", "captioner", "order")
        yield tables.table(found, rows=rows, columns="score", error="error")
        yield tables.table(tables.intervals(found.unbiased), rows=rows[:3], columns="score")

    @classmethod
    def facts(cls, runs):
        found = with_errors(runs[0].found)
        said, whole = found.captioner.values, found.sel(kind=ALL)
        rule = by_name(whole).value.sel(scale=1, captioner=said[:5])
        printed = [["", *CAPTIONERS, *said[:5]]]
        for name, of_paper in PRINTED.items():
            printed.append([name, *of_paper, *(f"{v:.2f}" for v in rule.sel(row=name).values)])
        table = functools.partial(tables.table, columns="captioner")
        sampled = tables.intervals(whole.unbiased.sel(score=list(SCORES[1:])))
        known = {"all": found, "whole": whole, "said": said, "printed": printed, "table": table}
        return {**known, "sampled": sampled, "rule": runs[0].study.bandwidths.axis[1]}

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        found = by_name(with_errors(run.found))
        conditional = found.row.str.startswith("Conditional")
        parts = {
            "captioning": found.isel(row=conditional, scale=slice(2)),
            "captioning_information": found.isel(row=~conditional, scale=slice(2)),
            "captioning_double": found.isel(scale=slice(2, None)),
        }
        return {name: _figure(run, part) for name, part in parts.items() if part.value.size}


def _figure(run: lab.Run, found: xr.Dataset) -> Figure:
    """The scores of some rows at some bandwidths, two panels abreast."""
    own = [name for name in found.captioner.values.tolist() if name.startswith("k = ")]

    def lines(panel, part):
        for bar in panel.containers:
            places, values = bar[0].get_data()
            panel.plot(places[: len(own)], values[: len(own)], color=bar[0].get_color())
        if own and part.row.item().startswith("Cond"):
            panel.plot(range(len(own)), range(1, len(own) + 1), color=style.GREY, zorder=0)
            style.above(panel, "score = k", (1.6, 1.35), 0)

    drawn = figures.facets(
        found, x="captioner", hue="kind", row="row", column="scale", across=2, kind="points",
        error="error", log_y=True, each=lines, x_label="captions k, and controls", sharey=True,
        size=(3.45, 2.2),
    )  # fmt: skip
    ends = own or found.captioner.values.tolist()
    alone, together = (found.value.isel(kind=-1).sel(captioner=end) for end in (ends[0], ends[-1]))
    times = (together / alone).transpose("row", "scale")
    said = (f"{of.row.item()} x {' and '.join(f'{v:.2g}' for v in of.values)}" for of in times)
    style.headline(drawn, f"From {ends[0]} to {ends[-1]}: {', '.join(said)}")
    n = f"{run.study.photographs} photographs of a kind"
    error = f"jackknife over {run.study.groups} groups"
    return figures.caption(drawn, run, n=n, bars=error, scale=1.0)


def with_errors(found: xr.Dataset) -> xr.Dataset:
    """With the jackknife's standard errors: the root mean squares of the groups' influences."""
    return found.assign(error=np.sqrt((found.influence**2).mean("group")))


def by_name(found: xr.Dataset) -> xr.Dataset:
    """Conditional and information scores of all orders as one axis `row` of names, the first."""
    rows = found[["value", "error"]].sel(score=list(SCORES[1:])).stack(row=("score", "order"))
    names = [f"{s.capitalize()}-{_FAMILIES.get(o, o)}" for s, o in rows.row.values]
    return rows.drop_vars(("row", "score", "order")).assign_coords(row=names)
