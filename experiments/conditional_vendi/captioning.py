"""How diverse captions of photographs are: CV figure 20; and whether scores count captions."""

import functools
from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy import stats

import condvendi_jax as cv
from condvendi_jax.base import checks
from condvendi_jax.data.pairs import Pairs
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import figures, style, tables
from experiments.lab.models import rows_by_cell

OTHER, ALL = "other", "all"
NUMBERS = (1, 2, 3, 4, 5, 10, 20, 50)  # Captions k of a photograph.


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


def answers(
    pairs: PairedEmbeddings, said: dict[str, np.ndarray], groups: int, rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What each captioner says of some photographs, and their groups; from rows `[photographs, K]`.

    One captioner stands for several: its first k captions of each photograph for `NUMBERS` up to K
    (to repeat all pairs changes no score); `swapped`, all K captions of another photograph;
    `shuffled`, K captions of K others; and `one for all`, the caption that is nearest to all the
    others. Several have the first one's captions `shuffled` beside them.
    """
    own = next(iter(said.values()))
    count, each = own.shape
    group = rng.permutation(count) % groups
    # Another photograph for each: the one before it in a random order.
    orders = [rng.permutation(count) for _ in range(each + 1)]
    others = [np.roll(order, 1)[np.argsort(order)] for order in orders]
    shuffled = np.stack([own[others[k + 1], k] for k in range(each)], axis=1)
    if len(said) == 1:
        said = {f"k = {k}": own[:, :k] for k in sorted({*NUMBERS, each}) if k <= each}
        said["swapped"] = own[others[0]]
        said["shuffled"] = shuffled
        embedded = pairs.outputs[own.ravel()]
        nearest = own.ravel()[np.argmax(embedded @ embedded.sum(axis=0))]
        said["one for all"] = np.full((count, 1), nearest)
    else:
        said = {**said, f"{next(iter(said))}, shuffled": shuffled}
    return said, group


SCORES = ("vendi", "conditional", "information")
_DRAWN = 0.5, 200  # The ends of intervals in a figure: unbiased ones may reach to infinity.
_FAMILIES = {1.0: "Vendi", 2.0: "RKE"}
CAPTIONED = "BLIP nucleus"  # Whose lead over the others the page says.
CAPTIONERS = ("BLIP-2", "GIT", "GPT4o-mini")  # Of which CV figure 20 prints these.
PRINTED = {
    "Conditional-Vendi": ("4.09", "10.9", "13.10"),
    "Information-Vendi": ("2.28", "3.28", "3.98"),
    "Conditional-RKE": ("2.53", "6.47", "7.82"),
    "Information-RKE": ("1.80", "2.41", "2.93"),
}


class Captioning(lab.Study):
    """Do the scores count the different captions that a captioner gives for a photograph?"""

    version = 2
    data = "captioning"
    needs = ("prompt",)
    takes = ("models", "pictures")
    runs = (
        (),
        ("--data=captioners", "--photographs=1000", "--scales=0.5,1"),
        ("--data=fifty_captions", "--photographs=60", "--orders=2", "--scales=0.5,1"),
        ("--data=ten_captions", "--photographs=60", "--orders=2", "--scales=0.5,1"),
    )
    control = "All captioners have the same photographs; swapped and shuffled captions fit none."
    grows = ("kind", "captioner")

    bandwidths: lab.Scales = lab.Scales()
    photographs: int = lab.flag(40, "Photographs of each kind at most, at random.", at_least=2)
    orders: tuple[float, ...] = lab.flag((1.0, 2.0), "Renyi orders of the scores.")
    groups: int = lab.flag(10, "Groups of photographs that the jackknife leaves out.", at_least=2)
    counts: dict[str, int] = lab.resolved()
    captioners: tuple[str, ...] = lab.resolved()

    def prepare(self, load, seed):
        pairs = load()
        models, rows = by_photograph(pairs)
        kinds = pairs.labels.get("pictures", np.full(len(pairs), ALL))[rows[0, :, 0]].astype(str)
        names = [kind for kind in np.unique(kinds).tolist() if kind != OTHER]
        if not names:
            raise ValueError(f"--pictures: expected kinds of pictures, received '{OTHER}' for all.")
        rng, drawn = np.random.default_rng(seed), {}
        for kind in names:
            numbers = rng.permutation(np.flatnonzero(kinds == kind))
            drawn[kind] = np.sort(numbers[: self.photographs])
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
            captioners=tuple(next(iter(said.values()))[0]),
        )

    def axes(self):
        return {"scale": self.bandwidths.axis, "kind": tuple(self.counts)}

    def compute(self, state, context, *, scale, kind):
        """Scores, each group's influence on them, and `unbiased` ones of order 2 with intervals."""
        pairs, (said, groups) = state[0], state[1][kind]
        photographs = next(iter(said.values()))[:, 0]  # A row of each.
        values, influences, unbiased = [], [], []
        for captioner, captions in said.items():
            context.say(captioner)
            of_each = captions.shape[1]
            prompts = np.repeat(pairs.prompts[photographs], of_each, axis=0)
            points = Pairs(pairs.outputs[captions.ravel()], prompts, **scale.kernels)
            of_rows = cv.inference.Groups(np.repeat(groups, of_each), "photographs")
            options = {"groups": of_rows, "method": cv.Auto(context.key, rtol=0.005)}
            delete = functools.partial(cv.inference.delete_groups, points, **options)
            found = [delete(cv.Entropy(order=order)) for order in self.orders]
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
        every = {run.data or cls.name: with_errors(run.found) for run in runs}
        found = every[cls.name]
        said, whole = found.captioner.values, found.sel(kind=ALL)
        side = every["captioners"].sel(scale=1).isel(kind=0)
        table = functools.partial(tables.table, columns="captioner")
        ours = table(by_name(side).sel(row=[*PRINTED]), rows=("row",), error="error", digits=3)
        rows = zip(*(column.cells for column in ours.columns), strict=True)
        printed = [["", *(f"{name}, printed" for name in CAPTIONERS), *side.captioner.values]]
        printed += [[name, *PRINTED[str(name)], *of] for name, *of in rows]
        sampled = tables.intervals(whole.unbiased.sel(score=list(SCORES[1:])))
        known = {"all": found, "whole": whole, "said": said, "printed": printed, "table": table}
        lead = [ahead(side, CAPTIONED, name) for name in ("BLIP beam", "BLIP-2")]
        known |= {"lead": xr.concat(lead, "other"), "ten": every["ten_captions"].isel(kind=0)}
        known |= {"fifty": every["fifty_captions"].isel(kind=0), "sampled": sampled}
        return known | {"rule": runs[0].study.bandwidths.axis[1]}

    @classmethod
    def figures(cls, runs):
        drawn, lines = {}, [run for run in runs if "k = 1" in run.study.captioners]
        lines = [run for run in lines if 2.0 in run.study.orders]
        if lines := [run for run in lines if run.data] or lines:  # With as many photographs.
            drawn[cls.name] = _numbers(lines)
        for run in runs:
            if "k = 1" not in run.study.captioners:
                drawn["_".join(filter(None, (cls.name, run.data)))] = _captioners(run)
        return drawn


def _numbers(runs: Sequence[lab.Run]) -> Figure:
    """Scores of order 2 of k captions, a line for each run, and beside it the unbiased ones."""
    parts = {}
    for run in runs:
        names = [name for name in run.study.captioners if name.startswith("k = ")]
        found = with_errors(run.found).isel(kind=-1, drop=True).sel(captioner=names)
        found = found.sel(score=list(SCORES[1:])).isel(scale=slice(2))
        found = found.assign_coords(captioner=[int(name[4:]) for name in names])
        plain, t = found.sel(order=2, drop=True), stats.t.ppf(0.975, run.study.groups - 1)
        who = run.study.description.partition(":")[0]
        ends = [plain.value, plain.value - t * plain.error, plain.value + t * plain.error]
        parts[who] = xr.concat(ends, "end")
        # One caption has no pair.
        parts[f"{who}, unbiased"] = found.unbiased.where(found.captioner > 1)
    every = xr.concat([*parts.values()], xr.IndexVariable("of", [*parts]), join="outer")
    ends = every.isel(end=slice(1, None)).clip(*_DRAWN)
    found = xr.Dataset({"value": every.isel(end=0), "ends": ends})

    def bound(panel, part):
        if part.score.item() == SCORES[1]:
            panel.plot([1, 10], [1, 10], color=style.GREY, linewidth=0.8, zorder=0)
            style.above(panel, "score = k", (10, 10), -8, "right")

    drawn = figures.facets(
        found, x="captioner", hue="of", row="score", column="scale", across=2, error="ends",
        log_x=True, log_y=True, each=bound, x_label="captions k of a photograph", size=(3.3, 2.3),
        sharey="none",
        title=lambda score, scale: f"{score.capitalize()}-RKE, bandwidths x {scale:g}",
    )  # fmt: skip
    who, scale = next(iter(parts)), float(found.scale[0])
    counted, sampled = (
        found.value.sel(of=of, score=SCORES[1], scale=scale).dropna("captioner")
        for of in (who, f"{who}, unbiased")
    )
    words = f"of {int(counted.captioner[-1])} captions {float(counted[-1]):.1f} differ"
    if sampled.size:
        words += f"; the unbiased score of {int(sampled.captioner[0])} says {float(sampled[0]):.1f}"
    style.headline(drawn, f"{who[0].upper()}{who[1:]}, bandwidths x {scale:g}: {words}")
    n = f"{min(max(run.study.counts.values()) for run in runs)} photographs of each"
    return figures.caption(drawn, runs, n=n, bars="95% by the jackknife over photographs")


def _captioners(run: lab.Run) -> Figure:
    """A point a captioner, by bandwidth, a panel a score."""
    found = by_name(with_errors(run.found)).isel(kind=-1, drop=True)
    found = found.assign(error=stats.t.ppf(0.975, run.study.groups - 1) * found.error)
    scale = run.study.bandwidths.shown
    drawn = figures.facets(
        found.sel(scale=scale), x="captioner", column="row", across=2, kind="points", error="error",
        sharey="none", x_label="", size=(3.4, 2.2),
    )  # fmt: skip
    most = found.value.sel(scale=scale).isel(captioner=slice(-1)).idxmax("captioner").to_series()
    style.headline(
        drawn,
        f"Highest of the captioners: {', '.join(f'{name} ({row})' for row, name in most.items())}",
    )
    n = f"{max(run.study.counts.values()):,} photographs, a caption of each by each captioner"
    return figures.caption(drawn, run, n=n, bars="95% by the jackknife", scale=scale)


def ahead(found: xr.Dataset, first: str, second: str) -> xr.Dataset:
    """By how much a captioner's scores are above another's, with the paired standard errors."""
    one, other = (found[["value", "influence"]].sel(captioner=name) for name in (first, second))
    return with_errors(one - other)


def with_errors(found: xr.Dataset) -> xr.Dataset:
    """With the jackknife's standard errors: the root mean squares of the groups' influences."""
    return found.assign(error=np.sqrt((found.influence**2).mean("group")))


def by_name(found: xr.Dataset) -> xr.Dataset:
    """Conditional and information scores of all orders as one axis `row` of names, the first."""
    rows = found[["value", "error"]].sel(score=list(SCORES[1:])).stack(row=("score", "order"))
    names = [f"{s.capitalize()}-{_FAMILIES.get(o, o)}" for s, o in rows.row.values]
    return rows.drop_vars(("row", "score", "order")).assign_coords(row=names)
