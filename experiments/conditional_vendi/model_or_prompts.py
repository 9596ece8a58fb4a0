"""Diversity that prompts leave open, and diversity that they ask for: CV figure 1."""

from collections.abc import Iterator

import numpy as np
import xarray as xr

from experiments import lab
from experiments.conditional_vendi.prompt_clusters import SCORES, scores_of
from experiments.data import PairedEmbeddings, load
from experiments.lab import figures, style, tables

SETS = ("ten breeds, one wording", "one breed, ten wordings", "dogs in scenes, captions")
_SHOWN = ("Vendi", "Conditional-Vendi", "RKE", "Conditional-RKE")
_EACH = 10  # Photographs of a breed in the first set, and wordings in the second one.


class ModelOrPrompts(lab.Study):
    """Which is more diverse: ten breeds of dog for one prompt, or dogs for many prompts?"""

    control = "All sets have as many photographs; scenes name no breed, so they differ in both."
    data = None

    bandwidths: lab.Scales = lab.Scales()

    def prepare(self, load_pairs, seed):
        """Choose one pair of bandwidths, on all photographs and prompts together."""
        dogs, scenes = load("dogs"), load("captions")
        scenes = scenes.rows(scenes.labels["pictures"] == "dog")
        outputs = np.concatenate([dogs.outputs, scenes.outputs])
        prompts = np.concatenate([dogs.prompts, scenes.prompts])
        pooled = PairedEmbeddings("dogs", outputs, prompts, "")
        return self.ready(
            state=(dogs, scenes),
            arrays={"outputs": outputs, "prompts": prompts, **dogs.labels},
            description="Stanford Dogs, and photographs of dogs of Flickr8k with their captions; "
            "EfficientNet-Lite0 photographs, all-MiniLM-L6-v2 prompts",
            bandwidths=self.bandwidths.resolve(pooled, seed),
        )

    def axes(self):
        return {"scale": self.bandwidths.axis}

    def compute(self, state, context, *, scale):
        """The scores of the three sets of every draw."""
        dogs, scenes = state
        drawn = draws(dogs, scenes, context.shared_seed)
        values = [[scores_of(*pairs, scale) for pairs in sets] for sets in drawn]
        axes = {"draw": range(len(values)), "set": list(SETS), "score": list(SCORES)}
        return xr.Dataset({"value": (tuple(axes), values)}, axes)

    def tables(self, run):
        """The scores of each set, and their ratios to those of the first one."""
        levels, rows = tables.spreads(run.found.value, "draw"), ("scale", "score")
        yield tables.table(levels, rows=rows, columns="set", error="error")
        yield tables.table(tables.intervals(ratios(run.found.value)), rows=rows, columns="set")

    @classmethod
    def facts(cls, runs):
        value = runs[0].found.value
        scenes = ratios(value).sel(set=SETS[2], score=list(_SHOWN))
        table = tables.table(tables.intervals(scenes), rows=("score",), columns="scale")
        return {"mean": value.mean("draw"), "ratio": ratios(value), "scenes": table}

    @classmethod
    def figures(cls, runs):
        ratio = ratios(runs[-1].found.value).sel(score=list(_SHOWN))
        found = xr.Dataset({"value": ratio.isel(end=0, drop=True), "ends": ratio[{"end": [1, 2]}]})
        drawn = figures.facets(
            found, x="score", hue="set", column="scale", kind="points", error="ends", log_y=True,
            y_label="ratio to ten breeds", x_label="", size=(2.4, 2.8), sharey=True,
            each=lambda panel, _: panel.axhline(1, color="black", linewidth=0.8),
        )  # fmt: skip
        of = found.value.sel(set=SETS[-1], score=list(_SHOWN[:2])).transpose("score", ...).values
        vendi, within = (f"{v.min():.2g} to {v.max():.2g}" for v in of)
        finding = f"Dogs in scenes have {vendi} times the Vendi of ten breeds, and {within} times"
        style.headline(drawn, f"{finding} their Conditional-Vendi")
        bars = "95%, over ten draws without a common photograph"
        return {cls.name: figures.caption(drawn, runs[-1], n="sets of 100", bars=bars)}


def draws(
    dogs: PairedEmbeddings, scenes: PairedEmbeddings, seed: int
) -> Iterator[list[tuple[np.ndarray, np.ndarray]]]:
    """Outputs and prompts of the three sets, once for each breed that the second set can have.

    No photograph is twice in a draw, nor twice among the sets of one kind.
    """
    generator = np.random.default_rng(seed)
    names, breed = np.unique(dogs.labels["types"], return_inverse=True)
    wordings = np.unique(dogs.labels["wording"], return_index=True)[1]
    of_breeds = [generator.permutation(np.flatnonzero(breed == b)) for b in range(len(names))]
    n, of_scenes = _EACH * len(names), generator.permutation(len(scenes))
    for number, one in enumerate(of_breeds):
        block = slice(_EACH * number, _EACH * (number + 1))
        many = np.concatenate([rows[block] for rows in of_breeds])
        words = generator.choice(wordings, _EACH, replace=False)
        one, scene = np.delete(one, block)[:n], of_scenes[n * number : n * (number + 1)]
        yield [
            (dogs.outputs[many], dogs.prompts[np.resize(words[:1], n)]),
            (dogs.outputs[one], dogs.prompts[np.resize(words, n)]),
            (scenes.outputs[scene], scenes.prompts[scene]),
        ]


def ratios(value: xr.DataArray) -> xr.DataArray:
    """Scores over those of the first set: geometric means over draws, and Student's intervals."""
    ratio = value.sel(set=list(SETS[1:])) / value.sel(set=SETS[0], drop=True)
    found = tables.t_intervals(xr.apply_ufunc(np.log, ratio), "draw")
    sides = xr.DataArray([0, -1, 1], {"end": ["value", "low", "high"]})
    return np.exp(found.value + sides * found.error)
