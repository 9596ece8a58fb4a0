"""Which text-to-video model is more diverse: CV figures 8 and 22, CV-early figures 6 and 24."""

import dataclasses
import functools

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import condvendi_jax as cv
from experiments import lab
from experiments.data import PairedEmbeddings
from experiments.lab import figures, models, style, tables


@dataclasses.dataclass(frozen=True)
class Part:
    """What is compared with each other: the clips of one source.

    Attributes:
      models: in the order in which they occur.
      prompts: how many different prompts they have.
      clips: the least number of clips of a prompt that a model has.
      bandwidths: chosen on all clips of the source together.
    """

    models: tuple[str, ...]
    prompts: int
    clips: int
    bandwidths: lab.Scales


def by_source(pairs: PairedEmbeddings) -> dict[str, PairedEmbeddings]:
    """The clips of each source, in their order; of one called 'all' where there is no label."""
    sources = models.rows_by_model(pairs.labels.get("source", np.full(len(pairs), "all")))
    return {name: pairs.rows(rows) for name, rows in sources.items()}


def part_of(pairs: PairedEmbeddings, bandwidths: lab.Scales, seed: int) -> Part:
    """What the clips of a source have in common.

    Raises:
      ValueError: its models have other prompts or numbers of clips, or no three prompts.
    """
    counts = models.check_shared(pairs, least=1)
    if len(counts) < 3:
        raise ValueError(
            f"--prompts: expected at least 3 different prompts, received {len(counts)}."
        )
    names = tuple(models.rows_by_model(pairs.labels["models"]))
    return Part(names, len(counts), int(counts.min()), bandwidths.resolve(pairs, seed))


def fewer_clips(
    outputs: np.ndarray, prompts: np.ndarray, clips: int, bandwidths: lab.Bandwidths
) -> np.ndarray:
    """All scores of one model with k of the first K clips of every prompt, `[scores, K, K]`.

    By score of `models.SCORES`, k = 1 ... K, and with which of the K clips the k begin.
    """
    _, which = np.unique(prompts, axis=0, return_inverse=True)
    of_prompt = np.stack(
        [np.flatnonzero(which == number)[:clips] for number in range(which.max() + 1)]
    )
    found = np.zeros((len(models.SCORES), clips, clips))
    for count in range(1, clips + 1):
        for start in range(clips if count < clips else 1):
            taken = np.roll(of_prompt, -start, axis=1)[:, :count].ravel()
            by_order = {
                order: cv.decompose(
                    outputs[taken], prompts[taken], order=order, **bandwidths.kernels
                ).scores
                for order in (1.0, 2.0)
            }
            # All of a prompt's clips are the same wherever they begin.
            places = start if count < clips else slice(None)
            for row, (score, order) in enumerate(models.SCORES):
                found[row, count - 1, places] = float(getattr(by_order[order], score))
    return found


CLIPS = "clips"
_NAMES = {
    CLIPS: "mean and spread (with letters)",
    "means": "mean only",
    "stills": "one frame, standing still",
}
_COLOURS = dict(zip(_NAMES, (style.BLUE, style.ORANGE, style.GREEN), strict=True))
# The papers' two scores, at both orders.
_SHOWN = ["Conditional-Vendi", "Information-Vendi", "Conditional-RKE", "Information-RKE"]
_INTERVALS = (
    "95%, over groups of prompts. Models that share a letter cannot be told apart "
    f"(Holm, {models.LEVEL:g})"
)


class Video(lab.Study):
    """Which text-to-video model is more diverse, and how much does motion matter?"""

    name = "video"
    reproduces = "CV figs 8, 22; CV-early figs 6, 24"
    duration = "1 minute"
    data = "video"
    needs = ("models",)
    takes = ("source",)
    further = ("means", "stills")
    drawings = ("video", "video_bandwidth", "video_clips")

    bandwidths: lab.Scales = lab.Scales()
    groups: int = lab.flag(20, "Groups of prompts that the jackknife leaves out.", at_least=2)
    parts: dict[str, Part] = lab.resolved()
    embeddings: tuple[str, ...] = lab.resolved()

    def prepare(self, load, seed):
        pairs = load()
        sources = by_source(pairs)
        return self.ready(
            pairs,
            state=sources,
            parts={name: part_of(own, self.bandwidths, seed) for name, own in sources.items()},
            embeddings=(CLIPS, *(role for role in _NAMES if role in pairs.further)),
        )

    def cells(self):
        """Every source, by every embedding, at every scale of its bandwidths."""
        return [
            lab.Cell((("source", source), ("embedding", embedding), ("scale", scale)))
            for source, part in self.parts.items()
            for embedding in self.embeddings
            for scale in part.bandwidths.axis
        ]

    def compute(self, state, context, *, source, embedding, scale):
        """The models' scores with errors, and those with fewer clips a prompt."""
        part, pairs = self.parts[source], state[source]
        embedded = pairs.outputs if embedding == CLIPS else pairs.further[embedding]
        outputs, prompts = (
            models.by_model(rows, pairs.labels["models"]) for rows in (embedded, pairs.prompts)
        )
        options = {"groups": min(self.groups, part.prompts), "seed": context.shared_seed}
        options |= {"method": cv.Exact(), "say": context.say, "unbiased": False}
        found = models.compare(outputs, prompts, scale, **options)
        fewer = [fewer_clips(outputs[m], prompts[m], part.clips, scale) for m in outputs]
        counts = np.arange(1, part.clips + 1)
        return found.assign(
            by_clips=(("score", "model", "clips", "start"), np.stack(fewer, axis=1))
        ).assign_coords(clips=counts, start=counts)

    def tables(self, run):
        """Every model by every score, embedding and scale; a letter in common: not told apart."""
        found = run.found
        rows = ("source", "embedding", "scale", "model")
        yield tables.table(found, rows=rows, columns="score", error="error", letters="letters")

    @classmethod
    def figures(cls, runs):
        (run,) = runs
        drawn: dict[str, Figure] = {}
        for source, part in run.study.parts.items():
            found = run.found.sel(source=source, model=list(part.models), other=list(part.models))
            # The kernels in the caption are those of the source.
            study = dataclasses.replace(run.study, bandwidths=part.bandwidths)
            caption = functools.partial(
                figures.caption,
                runs=dataclasses.replace(run, study=study),
                n=f"{source}, {part.prompts} prompts, {part.clips} of each a model",
            )
            own = {}
            if len(part.models) > 1:
                columns = _columns(found.sel(scale=part.bandwidths.shown))
                own["video"] = caption(columns, bars=_INTERVALS, scale=part.bandwidths.shown)
                own["video_bandwidth"] = caption(_bandwidths(found), bars=_INTERVALS)
            if part.clips > 1:
                bars = "the standard deviation over which of the clips are taken"
                own["video_clips"] = caption(_clips(found), bars=bars)
            for name, figure in own.items():
                drawn[f"{name}_{source}" if name in drawn else name] = figure
        return drawn


def _columns(found: xr.Dataset) -> Figure:
    """A column a model, as in the papers; a panel a score."""
    shown = found.sel(score=_SHOWN)
    letters = shown.letters.where(shown.embedding == CLIPS, "")
    return models.side_by_side(
        shown.assign(interval=1.96 * shown.error, letters=letters),
        hue="embedding", across=2, error="interval", colours=_COLOURS, names=_NAMES,
        y_label="effective number", size=(5.1, 2.3),
    )  # fmt: skip


def _bandwidths(found: xr.Dataset) -> Figure:
    """A row of panels a score, a panel a scale of the bandwidths."""
    shown = found.sel(score=_SHOWN[:2], embedding=CLIPS)
    shown = shown.assign(interval=1.96 * shown.error)
    return models.side_by_side(shown, error="interval", size=(3.4, 2.3))


def _clips(found: xr.Dataset) -> Figure:
    """Scores against the clips of each prompt, at every scale; a dashed line where they are k."""
    kept = found.by_clips.sel(score=_SHOWN[::2], embedding=CLIPS).dropna("clips", how="all")
    shown = xr.Dataset({"value": kept.mean("start"), "error": kept.std("start")})
    counts = shown.clips.values

    def title(model: str, scale: float) -> str:
        of = shown.value.sel(score=_SHOWN[0], model=model, scale=scale)
        rise = 100 * (of[-1] / of[0] - 1).item()
        return f"{model}, x {scale:g}: {_SHOWN[0]} rises by {rise:.0f}%"

    def bound(panel: Axes, _: xr.Dataset) -> None:
        panel.plot(counts, counts, "--", color=style.GREY, label="as many as the clips")
        panel.set_xticks(counts)

    return figures.facets(
        shown, x="clips", hue="score", row="model", column="scale", error="error", title=title,
        x_label="clips of each prompt", y_label="effective number", size=(3.4, 2.6), each=bound,
    )  # fmt: skip
