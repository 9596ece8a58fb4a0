"""A comparison as one page of HTML that needs no network: scores, prompts and their outputs.

Behind the scores are the outputs: contributions, near-duplicates, and their texts or pictures.
"""

import base64
import collections
import dataclasses
import functools
import io
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from condvendi_jax import __version__
from condvendi_jax.base import checks, extras, files, tables
from condvendi_jax.base.result import encoded
from condvendi_jax.data.kernels import Kernel, of_all
from condvendi_jax.data.pairs import Pairs, of_each_model
from condvendi_jax.data.rows import prompts_by_model
from condvendi_jax.encoders import pictures
from condvendi_jax.entropies import Entropy
from condvendi_jax.inference import PromptScore, PromptTable, contributions, prompt_tables
from condvendi_jax.records.answers import doubted
from condvendi_jax.report import paper
from condvendi_jax.results.comparison import Comparison
from condvendi_jax.results.estimate import undominated
from condvendi_jax.results.evaluation import not_computed, warning_lines
from condvendi_jax.spectra import exact

_PROMPTS = 200  # That a page shows at once: a browser takes seconds to lay out thousands.
#: Outputs whose kernel is at least this are joined as near-duplicates.
ALIKE = 0.9
#: Of each model, this many outputs of a prompt are shown and compared.
SHOWN = 50
# Bytes of all texts, of a prompt, and of all pictures of a page.
_TEXT_BYTES, _PROMPT_BYTES, _PICTURE_BYTES = 900_000, 4_000, 1_300_000
_SIDES = (96, 64, 48, 40)  # Of pictures, in pixels: the first that fits, or the last.
_kernels = jax.jit(jax.vmap(of_all, in_axes=(None, 0)))  # Of points `[g, m, d]`, `[g, m, m]`.


@dataclasses.dataclass(frozen=True, eq=False)
class Behind:
    """The outputs behind a comparison, model by model; `[n]` each, without rows of weight zero."""

    models: list[str]
    model: np.ndarray  # By its number.
    row: np.ndarray  # In the arrays of the model, from 0.
    prompt: np.ndarray  # By a number that all models share.
    # The near-duplicates of one prompt by a number that all models share; -1 if not compared.
    group: np.ndarray
    influence: np.ndarray  # On the main score of order 2 of the model.
    scores: np.ndarray  # The main score of order 2 of each model, `[models]`.
    tables: list[PromptTable]  # For each model, with the numbers of prompts as labels.
    main: str  # 'conditional' or, without prompts, 'vendi'.

    @functools.cached_property
    def prompts(self) -> list[dict[int, PromptScore]]:
        """For each model, by the number of the prompt."""
        return [{int(scored.prompt): scored for scored in t.prompts} for t in self.tables]

    @functools.cached_property
    def typical(self) -> dict[str, tuple[int, int]]:
        """By model its number, and that of the prompt whose outputs are as alike as the median."""
        typical = {}
        for index, by in enumerate(self.prompts):
            ordered = sorted(by, key=lambda k: math.isnan(v := by[k].known) and math.inf or v)
            typical[self.models[index]] = index, ordered[len(ordered) // 2]
        return typical

    @functools.cached_property
    def first(self) -> list[int]:
        """The first output of each prompt, by the number of the prompt."""
        return np.unique(self.prompt, return_index=True)[1].tolist()

    @functools.cached_property
    def alike(self) -> dict[int, dict[int, list[int]]]:
        """The near-duplicates by their `group` and the number of the model, in their order."""
        groups = collections.defaultdict[int, dict[int, list[int]]](dict)
        for k in np.flatnonzero(self.group >= 0).tolist():
            groups[int(self.group[k])].setdefault(int(self.model[k]), []).append(k)
        return groups

    def shared(self, count: int) -> list[tuple[list[int], dict[str, int]]]:
        """Near-duplicates of several models, of most models first, and how many each model has."""
        shared = [of_models for of_models in self.alike.values() if len(of_models) > 1]
        shared.sort(key=lambda of_models: (-len(of_models), -sum(map(len, of_models.values()))))
        counts = [{self.models[m]: len(k) for m, k in one.items()} for one in shared[:count]]
        return [(sum(one.values(), []), n) for one, n in zip(shared, counts, strict=False)]

    def redundant(self, count: int) -> list[tuple[list[int], float]]:
        """The largest near-duplicates of one model, then single outputs, by influence.

        The mean influence relative to the score is 0 of a model that always repeats itself.
        """
        redundant = []
        for model, score in enumerate(self.scores):
            for alike in filter(None, (groups.get(model) for groups in self.alike.values())):
                influence = float(self.influence[alike].mean() / score)
                if len(alike) > 1 or influence < 0:
                    redundant.append((alike, influence))
        return sorted(redundant, key=lambda entry: (-len(entry[0]), entry[1]))[:count]


def outputs_behind(models: Mapping[str, Pairs]) -> Behind:
    """The outputs of models under the same kernels."""
    row = np.concatenate([np.flatnonzero(pairs.shares > 0) for pairs in models.values()])
    every = [pairs.supported() for pairs in models.values()]
    outputs = np.concatenate([np.asarray(pairs.arrays[0]) for pairs in every])
    _, prompts = prompts_by_model(every)
    prompt = np.concatenate(prompts)
    model = np.repeat(np.arange(len(every)), [pairs.n for pairs in every])
    kernel = every[0].kernels[0].suited_to(jnp.asarray(outputs))
    main = "conditional" if every[0].paired else "vendi"
    results = [contributions(pairs, order=2) for pairs in every]
    parts = zip(every, results, prompts, strict=True)
    by_prompt = [prompt_tables.tabulate(p, r, Entropy(2), kinds, kinds) for p, r, kinds in parts]
    group = _grouped(outputs, prompt, model, kernel, across=every[0].across_models)
    influence = np.concatenate([getattr(result.influences, main) for result in results])
    scores = np.array([float(getattr(r.decomposition.scores, main)) for r in results])
    return Behind([*models], model, row, prompt, group, influence, scores, by_prompt, main)


def _grouped(
    outputs: np.ndarray, prompt: np.ndarray, model: np.ndarray, kernel: Kernel, *, across: bool
) -> np.ndarray:
    """The `group` of each output, `[n]`: its first output; -1 beyond the first of a model."""
    groups, column = np.full(len(outputs), -1), prompt * (model.max() + 1) + model
    order, counts = np.argsort(column, kind="stable"), np.bincount(column)
    rank = np.arange(order.size) - (np.cumsum(counts) - counts)[column[order]]
    rows = order[rank < SHOWN]
    sizes = np.bincount(prompt[rows])
    for _, places, inside in exact.padded_sets(sizes, np.flatnonzero(sizes), outputs.shape[1]):
        members = rows[places]
        near = np.asarray(_kernels(kernel, outputs[members]), np.float64) >= ALIKE
        if not across:  # Similarities of outputs of different models are not known.
            near &= model[members][:, :, None] == model[members][:, None]
        near |= np.eye(near.shape[1], dtype=bool)
        group = np.where(inside, -1, -2)
        for place, first in enumerate(members.T):
            free = group == -1  # Who is free stands for all free ones that are near.
            group = np.where(free[:, [place]] & near[:, place] & free, first[:, None], group)
        groups[members[inside]] = group[inside]
    return groups


def check_texts(given: Any, models: Mapping[str, Pairs], what: str) -> dict[str, list[Any]]:
    """The texts, or paths of pictures, of each model, after a check that each row has one."""
    if what == "outputs" and not isinstance(given, Mapping):  # Models may share prompts alone.
        raise ValueError(f"{what}: expected those of {[*models]}, received {type(given).__name__}.")
    given = of_each_model(given, models, what)
    checked: dict[str, list[Any]] = {}
    for model, pairs in models.items():
        name, items = f"{what} of {model}", given[model]
        if isinstance(items, (str, bytes)) or len(items) != pairs.n:
            expected = f"expected a list of {pairs.n:,}, one for each row of the embeddings"
            received = f"received {type(items).__name__} of length {len(items):,}."
            raise ValueError(f"{name}: {expected} and in their order, {received}")
        checked[model] = what == "outputs" and pictures.checked(items, name) or list(items)
        for row, item in enumerate(checked[model]):
            if not isinstance(item, (str, os.PathLike, pictures.Content)):
                raise TypeError(f"{name}: expected texts or paths, received {item!r} in row {row}.")
    return checked


class Item(NamedTuple):
    """An output or a prompt as a page shows it."""

    text: str  # As far as there is room; or the name of a picture, or the number of a row.
    rest: int = 0  # How many more characters the text has.
    picture: str | None = None  # A small one in base64.


class Items:
    """The outputs and prompts of a page, by their texts or pictures, or else by their rows."""

    def __init__(self, behind: Behind, outputs: Any, prompts: Any):
        self.behind, self.prompts = behind, prompts
        self.note, self.limit, self.side = "", _TEXT_BYTES, 0
        if outputs is None:
            self.note = "No texts or pictures were given: outputs are shown by their row."
            self.outputs: list[Any] = [f"row {row}" for row in behind.row]
        else:
            places = zip(behind.model.tolist(), behind.row.tolist(), strict=True)
            self.outputs = [outputs[behind.models[model]][row] for model, row in places]
        shown = {k: self.outputs[k] for k in np.flatnonzero(behind.group >= 0).tolist()}
        sizes = [len(x.encode("utf-8", "replace")) for x in shown.values() if isinstance(x, str)]
        if sum(sizes) > _TEXT_BYTES:
            self.limit = max(_TEXT_BYTES // len(sizes), 40)
        if cut := sum(size > self.limit for size in sizes):
            self.note = f"{cut:,} long texts are cut to {self.limit:,} bytes."
        paths = {k: item for k, item in shown.items() if not isinstance(item, str)}
        sample = [*paths.values()][:: max(1, len(paths) // 20)]
        for self.side in _SIDES if paths else ():
            mean = np.mean([len(_thumbnail(path, self.side)) for path in sample])
            if mean * len(paths) <= _PICTURE_BYTES:
                break
        self.pictures = {k: _thumbnail(path, self.side) for k, path in paths.items()}

    def output(self, k: int, limit: int | None = None) -> Item:
        """An output; a text of at most `limit` bytes."""
        item = self.outputs[k]
        if isinstance(item, str):
            return _cut(item, min(limit or self.limit, self.limit))
        return Item(item.name, picture=self.pictures.get(k))

    def equal(self, one: int, two: int) -> bool:
        """Whether two outputs are the same text."""
        return isinstance(self.outputs[one], str) and self.outputs[one] == self.outputs[two]

    def prompt(self, number: int, width: int | None = None) -> Item:
        """A prompt, in one line of at most `width` characters if it is given."""
        first = self.behind.first[number]
        row = self.behind.row[first]
        name = f"prompt of row {row}" if self.behind.main == "conditional" else "all outputs"
        if self.prompts is not None:
            name = str(self.prompts[self.behind.models[self.behind.model[first]]][row])
        return _cut(name if width is None else tables.shortened(name, width), _PROMPT_BYTES)


def _cut(text: str, limit: int) -> Item:
    kept = text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")
    return Item(kept, len(text) - len(kept))


def _thumbnail(path: pathlib.Path | pictures.Content, side: int) -> str:
    """A picture of at most side x side pixels as WebP, in base64."""
    with extras.needed("embed", package="Pillow", purpose="showing pictures"):
        from PIL import Image
    try:
        with Image.open(io.BytesIO(path.read_bytes())) as opened:
            opened.draft("RGB", (2 * side, 2 * side))
            picture = pictures.as_viewed(opened)
    except (OSError, ValueError, SyntaxError) as error:
        raise ValueError(f"{path}: expected a picture that Pillow can read ({error}).") from error
    picture.thumbnail((side, side))
    stream = io.BytesIO()
    picture.save(stream, "WEBP", quality=50, method=6)
    return base64.b64encode(stream.getvalue()).decode()


def html(
    comparison: Comparison,
    path: str | os.PathLike[str],
    *,
    outputs: Mapping[str, Sequence[Any]] | None = None,
    prompts: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    encoder: str | None = None,
    command: str | None = None,
) -> None:
    """Writes one page of HTML, which needs no network: the scores and the outputs behind them.

    Args:
      comparison: what `compare` returns.
      path: the file, which is replaced once the page is complete.
      outputs: the texts or pictures (paths, or of Pillow) of each model by its name, in the order
        of its embeddings, `[n]`. Where None, the page shows rows by their numbers.
      prompts: their texts in the same order: `[n]` that all models share, or of each by its name.
      encoder: the name of the encoder of the embeddings.
      command: the command that was called, to be shown.

    Raises:
      TypeError, ValueError: the texts are not of these models or not as many as the rows.
      OSError: the file cannot be written, or a picture cannot be read.
    """
    files.check_writable(path)
    if outputs is not None:
        outputs = check_texts(outputs, comparison.pairs, "outputs")
    if prompts is not None:
        prompts = check_texts(prompts, comparison.pairs, "prompts")
    from condvendi_jax.results import plots  # Matplotlib is slow to import.

    over, rated, failed = comparison.profile, comparison.qualities, dict(comparison.failed)
    behind = drawn = plane = copies = None
    with checks.optional("outputs behind the scores", failed):
        behind = outputs_behind(comparison.pairs)
    with checks.optional("figures", failed):
        copies = _copies(comparison, encoder)
        drawn = over and encoded(over.plot())
        plane = rated and encoded(plots.qualities(rated, comparison.n.values(), comparison.first))
    things = comparison.first.noun
    if outputs:
        texts = all(isinstance(item, str) for items in outputs.values() for item in items)
        things = "answers" if texts else "pictures"
    shown: dict[str, Any] = {"comparison": comparison, "models": [*comparison.models]}
    shown |= {"failed": not_computed(failed), "warnings": warning_lines(comparison.advice)}
    shown |= {"bars": comparison.bars, "answered": answered(comparison), "copies": copies}
    shown |= {"things": things, "rows": _rows(comparison, outputs, things)}
    shown["kernels"] = comparison.first.kernels
    shown |= {"scored": _scored(comparison, encoder, command), "drawn": drawn, "plane": plane}
    shown |= {"best": undominated(rated), "shown": _PROMPTS}
    if behind:
        shown |= {"behind": behind, "items": Items(behind, outputs, prompts)}
        shown |= {"heat": _heat(behind), "panels": _panels(behind)}
        if outputs and things == "answers":
            shown["lengths"], shown["ratio"] = _lengths(behind, outputs)
    files.write_text(path, _template().render(shown))


@functools.cache
def _template() -> Any:
    import jinja2  # Imported where it is used: it is slow to import.

    how: Any = {"loader": jinja2.FileSystemLoader(pathlib.Path(__file__).parent)}
    pages = jinja2.Environment(**how, autoescape=True, trim_blocks=True, finalize=_printable)
    pages.filters |= {"signed": lambda value: f"{value:+.2g}".replace("-", "−"), "fmt": format}
    pages.filters |= {"listed": tables.listed, "capitalized": tables.capitalized}
    return pages.get_template("page.html")


def _printable(value: Any) -> Any:
    """A value without the characters that HTML does not have; markup stays as it is."""
    if hasattr(value, "__html__") or (text := str(value)).isprintable():
        return value
    text = text.encode("utf-8", "replace").decode()
    shown = (c.isprintable() or ord(c) > 0x9F or c in "\n\r\t" for c in text)
    return "".join(c if kept else "\ufffd" for c, kept in zip(text, shown, strict=True))


def answered(comparison: Comparison) -> tuple[str, str]:
    """What can be said of the models in a sentence, and more of the same ranking."""
    if len(comparison.models) == 1:
        return " ".join(comparison.headline()), "One model: nothing to compare."
    main = comparison.main[0]
    return comparison.verdict(), f"{main.name}: {main.in_full()}."


def _rows(comparison: Comparison, outputs: Any, things: str) -> list[str]:
    """How many outputs were scored, and which shares of them may be no answers of a model."""
    total, prompts = sum(comparison.n.values()), comparison.first.distinct_prompts
    asked = f" to {prompts:,} prompts" if prompts else ""
    lines = [comparison.read or f"{total:,} {things}{asked}"]
    if comparison.first.paired and outputs and things == "answers":
        counts: Any = collections.Counter()
        for model, pairs in comparison.pairs.items():
            kinds = doubted(outputs[model], pairs.prompt_kinds[1].tolist())
            counts.update({what: count for what, (count, _) in kinds.items()})
        odd = [f"{count / total:.1%} {what}" for what, count in counts.items()]
        lines.append(tables.listed(odd) if odd else "none looks like a refusal or an error")
    return lines


def _copies(comparison: Comparison, encoder: str | None) -> dict[str, tuple[str, str]]:
    """What a reader takes along, by its name: the type and the content in base64."""
    picture = comparison.plot()
    texts = {"LaTeX": ("text/plain", paper.latex(comparison, encoder=encoder).latex)}
    texts["CSV"] = "text/csv", comparison.comma_separated()
    coded = {k: (kind, base64.b64encode(t.encode()).decode()) for k, (kind, t) in texts.items()}
    drawn = {"PNG": ("image/png", encoded(picture, "png"))}
    return drawn | {"SVG": ("image/svg+xml", encoded(picture)), **coded}


def _scored(comparison: Comparison, encoder: str | None, command: str | None) -> dict[str, str]:
    first, n = comparison.first, comparison.n
    outputs = ", ".join(f"{name} {count:,}" for name, count in n.items())
    terms = {"Outputs": f"{first.n:,} of each model" if len({*n.values()}) == 1 else outputs}
    distinct = {e.distinct_prompts for e in comparison.evaluations.values() if e.distinct_prompts}
    if distinct:
        terms["Prompts"] = " or ".join(f"{count:,}" for count in sorted(distinct))
    if not first.bandwidths["outputs"].within_prompts:
        terms["Encoder"] = encoder or first.encoder_name or "not named"
    for name, chosen in comparison.bandwidths.items():
        kind = "Kernel" if chosen.bandwidth is None else "Bandwidth"
        width = f"{chosen.bandwidth:.4g}, " if chosen.bandwidth else ""
        terms[f"{kind} of {name}"] = width + chosen.rule
    terms["Orders"] = ", ".join(f"{o.decomposition.order:g}" for o in first.orders)
    terms |= {"Seed": f"{first.seed}", "Command": command or "called from Python"}
    return terms | {"Version": f"condvendi_jax {__version__}, {first.dtype}"}


def _heat(behind: Behind) -> tuple[bool, list[list[tuple[float | None, float | None]]]]:
    """Whether values are similarities; and by prompt those of each model, their mean and spread."""
    models = behind.prompts
    several = any(scored.n > 1 for prompts in models for scored in prompts.values())
    values = np.full((len(behind.first), len(models)), math.nan)
    for column, prompts in enumerate(models):
        for number, scored in prompts.items():
            alone = getattr(scored.contributions, behind.main)
            values[number, column] = scored.known if several else alone
    colours = -values if several else values
    known = colours[np.isfinite(colours)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
    shades = np.maximum(colours - low, 0) / (high - low if high > low else 1)
    rows = []
    for line, shade in zip(values, shades, strict=True):
        finite = line[np.isfinite(line)]
        row = [(None if math.isnan(v) else v, s) for v, s in zip(line, shade, strict=True)]
        ends = [finite.mean(), np.ptp(finite)] if finite.size else [None, None]
        rows.append(row + [(end, None) for end in ends[: len(models)]])
    return several, rows


def _panels(behind: Behind) -> list[list[tuple[int, list[Any], int]]]:
    """By prompt the numbers of models, near-duplicates with who shares them, and other outputs."""
    rest = np.zeros((len(behind.first), len(behind.models)), int)
    np.add.at(rest, (behind.prompt, behind.model), behind.group < 0)
    groups = collections.defaultdict[tuple[int, int], list[Any]](list)
    for models in behind.alike.values():
        for index, alike in models.items():
            others = [behind.models[k] for k in models if k != index]
            groups[int(behind.prompt[alike[0]]), index].append((alike, others))
    models, counts = [*enumerate(behind.prompts)], enumerate(rest.tolist())
    return [[(i, sorted(groups[k, i]), n[i]) for i, by in models if k in by] for k, n in counts]


def _lengths(behind: Behind, outputs: Any) -> tuple[tables.Table, float]:
    """The lengths of the texts of each model, and the largest median over the smallest one."""
    rows, medians = [], []
    for index, name in enumerate(behind.models):
        lengths = [len(outputs[name][row]) for row in behind.row[behind.model == index]]
        low, median, high = np.quantile(lengths, [0.1, 0.5, 0.9])
        medians.append(median)
        rows.append([name, f"{median:,.0f}", f"{low:,.0f} to {high:,.0f}"])
    ratio = max(medians) / max(min(medians), 1)
    return tables.Table(["model", "median characters", "10% to 90%"], rows), ratio
