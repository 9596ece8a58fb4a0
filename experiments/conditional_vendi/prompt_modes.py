"""The modes of the prompts and the diversity of the outputs in each: CV figures 6, 13-15, 24.

An eigendirection v of the prompts' Gram weights the outputs: their Gram becomes K_X o v v^T.
"""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import condvendi_jax as cv
from condvendi_jax.base import checks
from condvendi_jax.encoders.items import decode_image, list_images
from experiments import lab
from experiments.data import SETS, PairedEmbeddings
from experiments.lab import figures, style, tables

_SIDE = 40  # Pixels of a picture in the figure.


def whole_prompts(prompts: np.ndarray, largest: int, seed: int) -> np.ndarray:
    """The rows of prompts drawn at random until the next one would be too many."""
    _, kind = checks.distinct_rows(prompts)
    often = np.bincount(kind)
    order = np.random.default_rng(seed).permutation(len(often))
    drawn = order[np.cumsum(often[order]) <= largest]
    return np.flatnonzero(np.isin(kind, drawn))


def names_of(pairs: PairedEmbeddings, first: np.ndarray) -> tuple[str, ...]:
    """What the prompts of some rows are called: their words or number in the set, if it knows."""
    for role, form in {"prompt_texts": "{}", "prompt": "prompt {}"}.items():
        if role in pairs.labels:
            return tuple(form.format(name) for name in pairs.labels[role][first].tolist())
    return tuple(f"prompt {number}" for number in range(len(first)))


def read_pictures(folder: str | None, n: int, rows: np.ndarray) -> np.ndarray:
    """The pictures of some of n outputs, uint8 `[rows, side, side, 3]`; none without a folder."""
    if folder is None:
        return np.zeros((0, _SIDE, _SIDE, 3), np.uint8)
    paths = list_images(folder)
    if len(paths) != n:
        raise ValueError(
            f"--pictures: expected one for each of {n:,} outputs, found {len(paths):,}."
        )
    chosen = [paths[row] for row in rows]
    return np.stack([decode_image(p.read_bytes(), name=str(p), side=_SIDE) for p in chosen])


def one_of_each(prompts: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """A row of each prompt, in turn the first, second, ... of those that it has."""
    rows = [[np.flatnonzero(kind == p) for p in of_mode] for of_mode in prompts]
    return np.array([[r[j % len(r)] for j, r in enumerate(of_mode)] for of_mode in rows])


_SHOWN = 6
_LETTERS = 30
# Scores further apart than so many times are drawn on a logarithmic axis.
_WIDE = 30
SCORES = ("Vendi", "RKE")


class PromptModes(lab.Study):
    """What are the main modes of the prompts, and how diverse are the outputs in each?"""

    name = "prompt_modes"
    version = 2
    reproduces = "CV figs 6, 13-15, 24"
    duration = "1 minute"
    runs = (("--pictures=emoji-pictures",), ("--data=captions",), ("--data=gallery",))
    drawings = ("prompt_modes", "prompt_modes_captions", "prompt_modes_gallery")

    bandwidths: lab.Scales = lab.Scales()
    modes: int = lab.flag(4, "How many prompt modes.", at_least=1)
    largest: int = lab.flag(1500, "Whole prompts are drawn up to so many pairs.", at_least=20)
    pictures: str | None = lab.flag(
        None, "A folder of the outputs as pictures, one a row in the order of their names."
    )
    n: int = lab.resolved(0)
    names: tuple[str, ...] = lab.resolved(())
    credit: str | None = lab.resolved()

    def prepare(self, load, seed):
        """Draws prompts with all of their outputs, and reads their pictures."""
        pairs = load()
        rows = whole_prompts(pairs.prompts, self.largest, seed)
        chosen = pairs.rows(rows)
        kinds, kind = checks.distinct_rows(chosen.prompts)
        if self.modes > kinds:
            raise ValueError(f"--modes: expected at most the {kinds} prompts, got {self.modes}.")
        first = np.unique(kind, return_index=True)[1]
        pictures = read_pictures(self.pictures, len(pairs), rows)
        source = SETS.get(pairs.name)
        return self.ready(
            pairs,
            state=(chosen, pictures),
            arrays={"outputs": pairs.outputs, "prompts": pairs.prompts, "pictures": pictures},
            bandwidths=self.bandwidths.resolve(pairs, seed),
            pictures=None,  # Their contents are hashed, wherever they are.
            n=len(rows),
            names=names_of(chosen, first),
            credit=source.licence if source and len(pictures) else None,
        )

    def axes(self):
        return {"scale": self.bandwidths.axis}

    def compute(self, state, context, *, scale):
        """The modes at one bandwidth, by falling eigenvalue.

        With the axes `mode`, `other` (mode), `score` and `place`: `share`, the eigenvalue; `size`,
        how many pairs carry it, effectively; `value` of a score of the outputs that it weights,
        and `covariance` of the scores' logarithms between modes, over prompts; `prompts`, the
        numbers of those that carry it most; `pictures`, an output of each, where there are any.
        """
        pairs, pictures = state
        modes = cv.clusters.prompt_modes(
            pairs.outputs, pairs.prompts, **scale.kernels, count=self.modes
        )
        count, kind = checks.distinct_rows(pairs.prompts)
        weights = [mode.weights for mode in modes]
        points = pairs.outputs, scale.kernels["output_kernel"]
        effects = np.array([_effects(*points, w, kind) for w in weights])
        of_prompt = np.array([np.bincount(kind, w) for w in weights])
        prompts = np.argsort(-of_prompt, axis=1, kind="stable")[:, :_SHOWN]
        covariance = np.einsum("aop,bop->oab", effects, effects) * count / (count - 1)
        numbers = np.arange(1, self.modes + 1)
        found = xr.Dataset(
            {
                "share": ("mode", [mode.share for mode in modes]),
                "size": ("mode", [mode.size for mode in modes]),
                "value": (("score", "mode"), [[m.vendi for m in modes], [m.rke for m in modes]]),
                "covariance": (("score", "mode", "other"), covariance),
                "prompts": (("mode", "place"), prompts),
            },
            {"score": list(SCORES), "mode": numbers, "other": numbers},
        )
        if not len(pictures):
            return found
        shown = pictures[one_of_each(prompts, kind)]
        return found.assign(pictures=(("mode", "place", "height", "width", "colour"), shown))

    def tables(self, run):
        """Each mode: its scores, share, size and prompts; how far apart every two modes are."""
        found, rows = run.found, ("scale", "mode")
        scores = found.assign(error=standard_errors(found), standard_errors=differences(found))
        yield tables.table(scores, rows=rows, columns="score", error="error")
        of_pairs = {"columns": "other", "value": "standard_errors", "digits": 2}
        yield tables.table(scores, rows=("scale", "score", "mode"), **of_pairs)
        carried = xr.Dataset({"value": found[["share", "size"]].to_array("of")})
        yield tables.table(carried, rows=rows, columns="of")
        words = xr.apply_ufunc(np.vectorize(lambda p: self.names[p]), found.prompts)
        named = xr.Dataset({"prompt": words.isel(place=slice(3))})
        yield tables.table(named, rows=rows, columns="place", value="prompt")

    @classmethod
    def figures(cls, runs):
        return {run.folder.name.replace("-", "_"): _figure(run) for run in runs}


def _effects(
    outputs: np.ndarray, kernel: cv.Gaussian | cv.Cosine, weights: np.ndarray, kind: np.ndarray
) -> np.ndarray:
    """How the entropies of orders 1 and 2 move with the weight of each prompt, `[2, prompts]`."""
    orders = [cv.contributions(outputs, kernel=kernel, weights=weights, order=o) for o in (1, 2)]
    return np.array(
        [[of.vendi / float(c.decomposition.vendi) for of in c.by(kind).values()] for c in orders]
    )


def standard_errors(found: xr.Dataset) -> xr.DataArray:
    """Of the scores, by score and mode."""
    return found.value * np.sqrt(_variances(found))


def differences(found: xr.Dataset) -> xr.DataArray:
    """The ratio of two modes' scores in their standard errors, by score, mode and other."""
    logs, variances = np.log(found.value), _variances(found)
    both = variances + variances.rename(mode="other") - 2 * found.covariance
    return (logs - logs.rename(mode="other")) / np.sqrt(both.where(found.mode != found.other, 1))


def _variances(found: xr.Dataset) -> xr.DataArray:
    """Of the scores' logarithms, by score and mode."""
    return found.covariance.where(found.mode == found.other, 0).sum("other")


def _figure(run: lab.Run) -> Figure:
    """A row a bandwidth: the prompts of each mode, a column each, and the scores of them all."""
    study, found = run.study, run.found.assign(error=standard_errors(run.found))
    columns = study.modes + 1
    height = 2.1 if study.credit is None else 2.6
    figure, axes = style.panels(columns * found.sizes["scale"], columns=columns, size=(2.0, height))
    for row, scale in enumerate(found.scale.values):
        *panels, last = axes[row * columns : (row + 1) * columns]
        part = found.sel(scale=scale)
        for mode, panel in enumerate(panels, start=1):
            _words(panel, study, part.sel(mode=mode))
        for shift, score, marker in zip((-0.07, 0.07), SCORES, style.MARKERS, strict=False):
            of, colour = part.sel(score=score), style.score_colour(score)
            x, bars = part.mode + shift, 1.96 * of.error
            last.errorbar(x, of.value, bars, ls="", marker=marker, color=colour, label=score)
        last.set_xticks(part.mode)
        if part.value.max() > _WIDE * part.value.min():
            last.set_yscale("log")
            style.log_numbers(last.yaxis)
        else:
            last.set_ylim(0, None)
        highest = int(part.value.sel(score="Vendi").idxmax("mode"))
        last.set(xlabel="prompt mode", title=f"mode {highest} is most diverse")
        panels[0].set_ylabel(f"bandwidths x {scale:g}")
    style.legend_above(figure, axes[study.modes])
    n = f"{study.n:,} pairs of {len(study.names):,} prompts"
    credit = "" if study.credit is None else f". Pictures: {study.credit}"
    return figures.caption(figure, run, n=n, bars=f"95% over prompts{credit}")


def _words(panel: Axes, study: PromptModes, found: xr.Dataset) -> None:
    """A panel of one mode: its scores, and the prompts that carry it, with pictures of them."""
    panel.set(xticks=[], yticks=[], title=f"mode {found.mode:d}: share {found.share:.2f}")
    lines = []
    for score in SCORES:
        of = found.sel(score=score)
        # Rounded to some digits first, so that thousands are not written as powers of ten.
        value, error = float(f"{of.value:.3g}"), float(f"{of.error:.2g}")
        lines.append(f"{score} {value:g} ± {error:g}")
    lines += [f"{found['size']:.0f} pairs carry it", ""]
    lines += [study.names[number][:_LETTERS] for number in found.prompts.values]
    panel.text(0.03, 0.97, "\n".join(lines), fontsize=6.5, va="top", transform=panel.transAxes)
    for index, picture in enumerate(found.pictures.values if "pictures" in found else ()):
        inset = panel.inset_axes((0.02 + index / _SHOWN, 0.02, 0.9 / _SHOWN, 0.2))
        inset.imshow(picture)
        inset.set_axis_off()
