"""The modes of the prompts and the diversity of the outputs in each: CV figures 6, 13-15.

An eigendirection v of the prompts' Gram weights the outputs: their Gram becomes K_X o v v^T.
"""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy import stats

import condvendi_jax as cv
from condvendi_jax.base import checks
from experiments import lab
from experiments.lab import figures, style, tables

_SHOWN = 6  # Prompts of a mode.
_WIDE = 20  # Scores further apart than so many times are drawn on a logarithmic axis.
SCORES = ("Vendi", "RKE")


def whole_prompts(prompts: np.ndarray, largest: int, seed: int) -> np.ndarray:
    """The rows of prompts drawn at random until the next one would be too many."""
    _, kind = checks.distinct_rows(prompts)
    often = np.bincount(kind)
    order = np.random.default_rng(seed).permutation(len(often))
    drawn = order[np.cumsum(often[order]) <= largest]
    return np.flatnonzero(np.isin(kind, drawn))


class PromptModes(lab.Study):
    """What are the main modes of the prompts, and how diverse are the outputs in each?"""

    grows = ("mode",)
    version = 3
    control = (
        "All modes weight the same outputs; but a mode that more prompts carry counts more outputs."
    )
    runs = ((), *((f"--data={data}",) for data in ("captions", "t2i", "t2i_second")))

    bandwidths: lab.Scales = lab.Scales()
    modes: int = lab.flag(4, "How many prompt modes.", at_least=1)
    largest: int = lab.flag(1500, "Whole prompts are drawn up to so many pairs.", at_least=20)
    n: int = lab.resolved(0)
    names: tuple[str, ...] = lab.resolved(())

    def prepare(self, load, seed):
        """Draws prompts with all of their outputs."""
        pairs = load()
        chosen = pairs.rows(whole_prompts(pairs.prompts, self.largest, seed))
        kinds, kind = checks.distinct_rows(chosen.prompts)
        if self.modes > kinds:
            raise ValueError(f"--modes: expected at most the {kinds} prompts, got {self.modes}.")
        labels = {"types": np.full(len(chosen), "prompt"), "prompt": kind, **chosen.labels}
        numbered = zip(labels["types"], labels["prompt"], strict=True)
        texts = labels.get("prompt_texts", np.array([f"{of} {n}" for of, n in numbered]))
        return self.ready(
            pairs,
            state=chosen,
            arrays={"outputs": pairs.outputs, "prompts": pairs.prompts},
            bandwidths=self.bandwidths.resolve(pairs, seed),
            n=len(chosen),
            names=tuple(texts[np.unique(kind, return_index=True)[1]].tolist()),
        )

    def axes(self):
        return {"scale": self.bandwidths.axis}

    def compute(self, pairs, context, *, scale):
        """The modes at one bandwidth, by falling eigenvalue.

        Of each `mode`: `share`, the eigenvalue; `size`, how many pairs carry it, effectively;
        `value` of a score of the outputs that it weights; `prompts`, the numbers of those that
        carry it most. `covariance` is that of the scores' logarithms between modes, over prompts.
        """
        arrays = pairs.outputs, pairs.prompts
        modes = cv.clusters.prompt_modes(*arrays, **scale.kernels, count=self.modes)
        count, kind = checks.distinct_rows(pairs.prompts)
        effects = []  # How the entropies of both orders move with the weight of each prompt.
        for mode in modes:
            of = {"kernel": scale.kernels["output_kernel"], "weights": mode.weights}
            orders = [cv.contributions(pairs.outputs, order=order, **of) for order in (1, 2)]
            moves = [[one.vendi for one in order.by(kind).values()] for order in orders]
            effects.append(np.array(moves) / [[float(o.decomposition.vendi)] for o in orders])
        of_prompt = np.array([np.bincount(kind, mode.weights) for mode in modes])
        prompts = np.argsort(-of_prompt, axis=1, kind="stable")[:, :_SHOWN]
        covariance = np.einsum("aop,bop->oab", effects, effects) * count / (count - 1)
        numbers = np.arange(1, self.modes + 1)
        found = {
            "share": ("mode", [mode.share for mode in modes]),
            "size": ("mode", [mode.size for mode in modes]),
            "value": (("score", "mode"), [[m.vendi for m in modes], [m.rke for m in modes]]),
            "covariance": (("score", "mode", "other"), covariance),
            "prompts": (("mode", "place"), prompts),
        }
        return xr.Dataset(found, {"score": list(SCORES), "mode": numbers, "other": numbers})

    def tables(self, run):
        """Each mode: its scores, share, size and prompts; how far apart every two modes are."""
        found, rows = told(run.found), ("scale", "mode")
        yield tables.table(found, rows=rows, columns="score", error="error")
        of_pairs = {"columns": "other", "value": "apart", "digits": 2}
        yield tables.table(found, rows=("scale", "score", "mode"), **of_pairs)
        carried = xr.Dataset({"value": found[["share", "size"]].to_array("of")})
        yield tables.table(carried, rows=rows, columns="of")
        words = found.prompts.copy(data=np.array(self.names)[found.prompts])
        named = xr.Dataset({"prompt": words.isel(place=slice(3))})
        yield tables.table(named, rows=rows, columns="place", value="prompt")

    @classmethod
    def facts(cls, runs):
        emoji, captions, t2i, second = (told(run.found) for run in runs)
        look = {"rows": ("mode",), "columns": "score", "error": "error", "digits": 3}
        scores = tables.table(emoji.sel(scale=1), **look)
        facts = {"emoji": emoji, "captions": captions, "scores": scores}
        return facts | {"t2i": t2i, "second": second}

    @classmethod
    def figures(cls, runs):
        drawn = {}
        for run in runs:
            name, widths = run.folder.name.replace("-", "_"), run.study.bandwidths
            others = [scale for scale in widths.scales if scale != widths.shown]
            parts = {name: [widths.shown], f"{name}_bandwidths": others}
            drawn |= {part: _figure(run, of) for part, of in parts.items() if of}
        return drawn


def told(found: xr.Dataset) -> xr.Dataset:
    """The results with `error`, the standard errors of the scores, and how far modes are apart.

    `apart` is the ratio of two modes' scores in its standard errors; `among` is its largest size
    between modes other than the first.
    """
    logs, same = np.log(found.value), found.mode == found.other
    variances = found.covariance.where(same, 0).sum("other")
    both = variances + variances.rename(mode="other") - 2 * found.covariance
    apart = (logs - logs.rename(mode="other")) / np.sqrt(both.where(~same, 1))
    among = np.abs(apart).where((found.mode > 1) & (found.other > 1)).max(["mode", "other"])
    return found.assign(error=found.value * np.sqrt(variances), apart=apart, among=among)


def _figure(run: lab.Run, shown: list[float]) -> Figure:
    """The scores of every mode at some multiples of the bandwidths, a row each."""
    study, found = run.study, told(run.found).sel(scale=shown)
    found["error"] = stats.t.ppf(0.975, len(study.names) - 1) * found.error

    def look(panel, part):
        panel.set_xticks(part.mode)
        if part.value.max() > _WIDE * part.value.min():
            panel.set_yscale("log")
            style.log_numbers(panel.yaxis)

    drawn = figures.facets(
        found[["value", "error"]], x="mode", row="scale", column="score", kind="points",
        error="error", x_label="prompt mode", size=(3.45, 2.4), sharey=False, each=look,
    )  # fmt: skip
    first = (found.value.isel(mode=0, drop=True) >= found.value).all().item()
    words = f"odes 2 to {study.modes} differ by up to {found.among.max():.1f} standard errors"
    style.headline(drawn, f"Mode 1 is the most diverse; m{words}" if first else f"M{words}")
    n = f"{study.n:,} pairs"
    return figures.caption(drawn, run, n=n, bars="95%", scale=1.0)
