"""A comparison as one page of HTML that needs no network: scores, prompts and their outputs."""

import base64
import collections
import functools
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from condvendi_jax import __version__
from condvendi_jax.base import checks, files, tables
from condvendi_jax.base.result import encoded
from condvendi_jax.records.answers import doubted
from condvendi_jax.report import behind as outputs_behind
from condvendi_jax.report import paper
from condvendi_jax.report.behind import Behind, Items
from condvendi_jax.results.comparison import Comparison
from condvendi_jax.results.estimate import undominated
from condvendi_jax.results.evaluation import not_computed, warning_lines

_PROMPTS = 200  # That a page shows at once: a browser takes seconds to lay out thousands.


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
        outputs = outputs_behind.check_texts(outputs, comparison.pairs, "outputs")
    if prompts is not None:
        prompts = outputs_behind.check_texts(prompts, comparison.pairs, "prompts")
    from condvendi_jax.results import plots  # Matplotlib is slow to import.

    over, rated, failed = comparison.profile, comparison.qualities, dict(comparison.failed)
    behind = drawn = plane = copies = None
    with checks.optional("outputs behind the scores", failed):
        behind = outputs_behind.of_pairs(comparison.pairs)
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
