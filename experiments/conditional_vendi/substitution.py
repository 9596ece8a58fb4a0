"""What outputs of other prompts do to scores of relevance: CV figure 12, MID figure 1."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import condvendi_jax as cv
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import figures, style, tables

SAME, OTHER = "same prompt", "other prompts"
SATURATED = 0.9  # How much of its whole change has happened where a score is saturated.
_MOVES = 2.0  # Below so many standard deviations over the draws a metric is said not to move.
_ROUNDS = 1000


class Drawn(NamedTuple):
    """Rows of one draw: some are scored, others are what MID and the map are fitted to."""

    rows: np.ndarray  # That are scored, `[n]`.
    partners: np.ndarray  # Another output of each one's prompt, none twice, `[n]`.
    order: np.ndarray  # In which the outputs are replaced, `[n]`.
    reference: np.ndarray  # All rows of the other half of the prompts.


def draw_rows(prompt: np.ndarray, scored: int, generator: np.random.Generator) -> Drawn:
    """Half of the prompts to score, half to fit to; half of a prompt's outputs as partners."""
    order = generator.permutation(len(prompt))
    ends = np.cumsum(np.bincount(prompt))[:-1]
    of_prompt = np.split(order[np.argsort(prompt[order], kind="stable")], ends)
    several = [rows for rows in of_prompt if len(rows) > 1]
    shuffled = [several[k] for k in generator.permutation(len(several)).tolist()]
    half = len(shuffled) // 2
    rows = np.concatenate([found[: len(found) // 2] for found in shuffled[:half]])
    partners = np.concatenate([found[-(len(found) // 2) :] for found in shuffled[:half]])
    replaced, rest = generator.permutation(min(scored, len(rows))), np.concatenate(shuffled[half:])
    return Drawn(rows[:scored], partners[:scored], replaced, rest)


def by_partners(drawn: Drawn, replaced: int) -> np.ndarray:
    """The rows of the outputs, the first `replaced` of the order by their partners, `[n]`."""
    rows, chosen = drawn.rows.copy(), drawn.order[:replaced]
    rows[chosen] = drawn.partners[chosen]
    return rows


def by_others(
    drawn: Drawn, prompt: np.ndarray, replaced: int, generator: np.random.Generator
) -> np.ndarray:
    """The rows of the outputs, the first `replaced` of the order permuted among them, `[n]`.

    No output stays with its prompt, unless one prompt has most of those that are permuted.
    """
    rows, chosen = drawn.rows.copy(), drawn.order[:replaced]
    own, given = prompt[drawn.rows[chosen]], generator.permutation(drawn.rows[chosen])
    for _ in range(_ROUNDS):
        if not (stayed := np.flatnonzero(prompt[given] == own)).size:
            break
        swapped = [stayed[0], int(generator.integers(replaced))]
        given[swapped] = given[swapped[::-1]]
    rows[chosen] = given
    return rows


def alignment(
    pairs: PairedEmbeddings, drawn: Drawn, dimensions: int
) -> Callable[[np.ndarray], list[float]]:
    """MID (MID eq. 5) and the mean cosine of prompts and mapped outputs, as a function of outputs.

    The two embeddings share no space. Both are turned onto their leading directions in the
    reference, to which a least-squares map from outputs to prompts and MID's Gaussian are fitted.
    """
    fitted = pairs.rows(drawn.reference)
    turn_outputs, turn_prompts = (leading(x, dimensions) for x in (fitted.outputs, fitted.prompts))
    reference, targets = turn_outputs(fitted.outputs), turn_prompts(fitted.prompts)
    prompts, linear = (
        turn_prompts(pairs.prompts[drawn.rows]),
        np.linalg.lstsq(reference, targets)[0],
    )
    given = {"prompts": prompts, "reference_outputs": reference, "reference_prompts": targets}
    given = {role: points.astype(np.float32) for role, points in given.items()}

    def measure(outputs: np.ndarray) -> list[float]:
        turned = turn_outputs(outputs)
        mid = cv.baselines.mutual_information_divergence(turned.astype(np.float32), **given)
        mapped = turned @ linear
        norms = np.linalg.norm(mapped, axis=1) * np.linalg.norm(prompts, axis=1)
        return [float(mid), float(np.mean(np.sum(mapped * prompts, axis=1) / norms))]

    return measure


def leading(points: np.ndarray, dimensions: int) -> Callable[[np.ndarray], np.ndarray]:
    """Points, less the mean of these, on the leading principal directions of these."""
    mean = np.mean(points, axis=0, dtype=np.float64)
    directions = np.linalg.eigh((points - mean).T @ (points - mean))[1][:, ::-1][:, :dimensions]
    return lambda others: (others - mean) @ directions


def left(found: xr.Dataset) -> xr.DataArray:
    """How much is left of a metric's range in each draw; NaN where the range is within chance."""
    first, end = (found.value.sel(replaced=OTHER, share=x, drop=True) for x in (0, 1))
    span = first - end
    moves = abs(span.mean("repeat")) > _MOVES * span.std("repeat", ddof=1)
    return (found.value - end) / span.where(moves & (span != 0))


def saturates(curves: xr.DataArray) -> xr.DataArray:
    """The share from which on 90% of the change have happened for good, of each draw."""
    shares = curves.share.values

    def reached(left: np.ndarray) -> float:
        if np.isnan(left).any():
            return np.nan
        last = np.flatnonzero(1 - left < SATURATED)[-1]
        around = slice(last, last + 2)
        return np.interp(SATURATED, 1 - left[around], shares[around])

    return xr.apply_ufunc(reached, curves, input_core_dims=[["share"]], vectorize=True)


def summary(found: xr.Dataset) -> xr.Dataset:
    """Means and deviations over the draws of what `_NAMES` lists, as the axis `of`."""
    value, curves = found.value, left(found)
    none, other = (value.sel(replaced=OTHER, share=share, drop=True) for share in (0, 1))
    same, lost = (of.sel(replaced=SAME, share=1, drop=True) for of in (value, 1 - curves))
    reached = saturates(curves.sel(replaced=OTHER, drop=True))
    parts = xr.concat([none, same, other, none - other, lost, reached], "of")
    return tables.spreads(parts.assign_coords(of=list(_NAMES)), "repeat")


INFORMATION, FITTED = ("Information-Vendi", "Information-RKE"), ("MID", "cosine")
METRICS = (*INFORMATION, *FITTED)
_COLOURS = {"MID": style.VERMILION, "cosine": style.GREY}
_NAMES = {"none": "none replaced", "same": f"all, {SAME}", "other": f"all, {OTHER}"}
_NAMES |= {"fall": "falls by", "lost": f"of the range, {SAME}"}
_NAMES |= {"reached": f"{SATURATED:.0%} changed from"}
# A fitted Gaussian or map needs so many prompts for each of its dimensions.
_PROMPTS_A_DIMENSION, _FEWEST_PROMPTS, _DIMENSIONS = 4, 8, 32


class Substitution(lab.Study):
    """Which scores fall when outputs are replaced by those of other prompts, and how fast?"""

    control = "Outputs are also replaced by others of the same prompt."
    takes = ("prompt",)
    # The last with the gallery's number of directions, for MID depends on it.
    runs = ((), ("--data=gallery",), ("--dimensions=5", "--scales=1"))

    bandwidths: lab.Scales = lab.Scales()
    pairs: int = lab.flag(300, "Pairs that are scored, at most.", at_least=4)
    steps: int = lab.flag(10, "Steps from no output replaced to all of them.", at_least=1)
    dimensions: int = lab.flag(_DIMENSIONS, "Directions that MID and the map see.", at_least=1)
    repeats: int = lab.flag(5, "Draws of prompts, outputs and replacements.", at_least=2)
    data_name: str = lab.resolved("")
    scored: int = lab.resolved(0)

    def variant(self):
        return "" if self.dimensions == _DIMENSIONS else f"{self.dimensions}-directions"

    def prepare(self, load, seed):
        pairs = load()
        prompt = pairs.prompt_numbers
        several = np.sort([count for count in np.bincount(prompt) if count > 1])
        if len(several) < _FEWEST_PROMPTS:
            raise ValueError(
                f"--prompt: expected at least {_FEWEST_PROMPTS} prompts of several outputs each, "
                f"received {len(several)}."
            )
        half = len(several) // 2
        most = (len(several) - half) // _PROMPTS_A_DIMENSION
        return self.ready(
            pairs,
            state=pairs,
            arrays={"outputs": pairs.outputs, "prompts": pairs.prompts, "prompt": prompt},
            bandwidths=self.bandwidths.resolve(pairs, seed),
            dimensions=min(self.dimensions, most, pairs.outputs.shape[1], pairs.prompts.shape[1]),
            data_name=pairs.name,
            scored=min(self.pairs, int(np.sum(several[:half] // 2))),
        )

    def axes(self):
        return {"scale": self.bandwidths.axis, "repeat": range(self.repeats)}

    def compute(self, state, context, *, scale, repeat):
        """The metrics of one draw against the share that is replaced, by SAME and by OTHER."""
        prompt = state.prompt_numbers
        key = jax.random.fold_in(context.shared_key, repeat)
        generator = np.random.default_rng(np.asarray(jax.random.bits(key, (4,))))
        drawn = draw_rows(prompt, self.scored, generator)
        fitted = alignment(state, drawn, self.dimensions)
        kernels = {"method": cv.Exact(), **scale.kernels}

        def measure(rows):
            outputs, prompts = state.outputs[rows], state.prompts[drawn.rows]
            found = [cv.decompose(outputs, prompts, order=k, **kernels) for k in (1, 2)]
            return [*(float(of.information) for of in found), *fitted(outputs)]

        shares, values = [step / self.steps for step in range(self.steps + 1)], []
        for share in shares:
            replaced = round(share * self.scored)
            context.say(f"{replaced:,} of {self.scored:,} replaced")
            same = measure(by_partners(drawn, replaced))
            rows = by_others(drawn, prompt, replaced, generator)
            values.append([same, measure(rows) if replaced else same])
        axes = {"share": shares, "replaced": [SAME, OTHER], "metric": list(METRICS)}
        return xr.Dataset({"value": (tuple(axes), values)}, axes)

    def tables(self, run):
        """Each metric at both ends, how far it falls, and where it saturates."""
        options = {"columns": "of", "error": "error", "names": _NAMES}
        yield tables.table(summary(run.found), rows=("scale", "metric"), **options)

    @classmethod
    def facts(cls, runs):
        known = zip(("emoji", "few", "gallery"), (summary(r.found) for r in runs), strict=False)
        table = functools.partial(tables.table, columns="of", error="error", names=_NAMES)
        remaining = left(runs[0].found).sel(replaced=OTHER, scale=1).mean("repeat")
        return {"remaining": remaining, "table": table, **dict(known)}

    @classmethod
    def figures(cls, runs):
        scale = runs[0].study.bandwidths.shown
        names = [f"{r.study.data_name},\n{r.study.dimensions} directions" for r in runs]
        parts = [run.found.sel(scale=scale, drop=True) for run in runs]
        every: Any = xr.concat(parts, xr.IndexVariable("run", names))
        shares, values = left(every), every.value
        first = _facets(
            shares, hue="metric", column="run", colours=_COLOURS, size=(2.35, 2.6), sharey=True,
            y_label="share of the range left",
        )  # fmt: skip
        half = shares.sel(replaced=OTHER).mean("repeat").sel(share=0.5, method="nearest")
        few, many = (half.sel(metric=half.metric.isin(FITTED) == fitted) for fitted in (0, 1))
        few, many = (f"{of.min():.0%} to {of.max():.0%}" for of in (few, many))
        finding = f"With half replaced, Information scores keep {few} of their range"
        style.headline(first, f"{finding}, {' and '.join(FITTED)} {many}")
        second = _facets(
            values, hue="run", column="metric", across=2, size=(3.53, 2.2), sharey=False,
            names={"MID": "MID (nats)", "cosine": "mean cosine"}, y_label="score",
        )  # fmt: skip
        start, end = (values.sel(replaced=OTHER, share=share).mean("repeat") for share in (0, 1))
        mid, cosine = (
            ", ".join(f"{fall:.2g}" for fall in (start - end).sel(metric=metric).values)
            for metric in FITTED
        )
        finding = f"With all replaced, MID falls by {mid} nats, the cosine by {cosine}"
        style.headline(second, finding)
        n = ", ".join(str(run.study.scored) for run in runs) + " pairs"
        look = {"n": n, "bars": "one deviation", "scale": scale}
        drawn = {"substitution": first, "substitution_values": second}
        return {name: figures.caption(figure, runs, **look) for name, figure in drawn.items()}


def _facets(values: xr.DataArray, *, hue: str, **look: Any) -> Figure:
    """Means and deviations over the draws, by OTHER; dashed the means by SAME."""
    values = values.assign_coords(share=100 * values.share)
    same = values.sel(replaced=SAME, drop=True).mean("repeat")

    def dashed(panel: Axes, part: xr.Dataset) -> None:
        for bars, line in zip(panel.containers, part.same.transpose(hue, "share"), strict=True):
            panel.plot(part.share, line, "--", color=bars[0].get_color(), label="_")

    return figures.facets(
        tables.spreads(values.sel(replaced=OTHER, drop=True), "repeat").assign(same=same),
        x="share", hue=hue, error="error", each=dashed, x_label="share replaced, %", **look,
    )  # fmt: skip
