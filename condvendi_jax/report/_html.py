"""A comparison as one page of HTML that needs no network: scores, prompts and their outputs."""

from __future__ import annotations

import base64
import html
import io
import itertools
import math
import os
import pathlib
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from condvendi_jax import __version__, _extras
from condvendi_jax.report import _render

if TYPE_CHECKING:  # The results themselves import this module.
    from condvendi_jax.inference._behind import Behind
    from condvendi_jax.inference._profile import Profile
    from condvendi_jax.inference._results import Comparison

_LISTED = 10
# Bytes of all texts, of a prompt, and of all pictures of a page.
_TEXT_BYTES, _PROMPT_BYTES, _PICTURE_BYTES = 900_000, 4_000, 1_300_000
# Pictures by their side in pixels, and how many of each prompt and model: the first that fits.
_PICTURES = ((96, 50), (64, 50), (48, 50), (40, 50), *((40, k) for k in (8, 6, 4, 3, 2, 1)))
_POINTS = 6_000
_WIDTH, _HEIGHT = 640, 300


def page(
    found: Comparison,
    behind: Behind,
    *,
    outputs: Mapping[str, Sequence[Any]] | None,
    prompts: Mapping[str, Sequence[Any]] | None,
    encoder: str | None,
    command: str | None,
) -> str:
    """The page; outputs and prompts are of each model, in the order of its rows."""
    shown = _Shown(behind, outputs, prompts)
    heat, measure = _heat(found, behind, shown)
    folder = pathlib.Path(__file__).parent
    template, style, script = (
        (folder / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js")
    )
    answer, certainty = answered(found)
    notes = _render.notes_on_comparison(found)
    differences = _render.differences(found)
    return string.Template(template).substitute(
        style=style,
        script=script,
        title=text("Diversity of " + _render.listed(found.models)),
        answer=text(answer),
        certainty=text(certainty),
        scores=_table(*_render.scores_by_model(found)),
        rankings=_list(f"{r.name}: {_render.ranking_in_words(r)}" for r in found.rankings),
        differences=_details("Every two models", _table(*differences)) if differences[1] else "",
        scored=_scored(found, encoder, command),
        notes=_list(notes),
        profile=_profile(found),
        measure=measure,
        heat=heat,
        panels="".join(_panel(behind, shown, number) for number in range(len(behind.first))),
        extremes=_extremes(behind, shown),
        redundant=_redundant(behind, shown),
        shared=_shared(behind, shown),
        between=_between(found),
        spectrum=_spectrum(behind),
        map=_map(behind),
        lengths=_lengths(behind, outputs),
        cut=text(shown.note),
    )


def text(value: object) -> str:
    """A text for HTML: escaped, without characters that HTML does not have."""
    words = str(value).encode("utf-8", "replace").decode()
    words = "".join(
        c if c.isprintable() or ord(c) > 0x9F or c in "\n\r\t" else "\ufffd" for c in words
    )
    return html.escape(words)


def _table(heading: Sequence[str], rows: _render.Rows) -> str:
    """A table of texts; its first column names the rows."""
    head = "".join(f'<th scope="col">{text(cell)}</th>' for cell in heading)
    body = "".join(
        f'<tr><th scope="row">{text(first)}</th>'
        + "".join(f"<td>{text(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return _framed("", head, body)


def _framed(name: str, head: str, body: str) -> str:
    """A table in a frame that scrolls where the page is narrow."""
    table = f"<table{name}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{text(line)}</li>" for line in lines) + "</ul>"


def _details(summary: str, content: str) -> str:
    return f"<details><summary>{summary}</summary>{content}</details>"


def answered(found: Comparison) -> tuple[str, str]:
    """Which model is the most diverse over the bandwidths, and how certain that is."""
    over = found.profile
    given = " given the prompts" if len(found.first.names) > 1 else ""
    if len(found.models) == 1:
        (ranking, *_) = found.rankings
        (value,) = ranking.values.values()
        return (
            f"{ranking.name} of {found.models[0]}: {value:.4g}.",
            "One model: nothing to compare.",
        )
    if over is None or over.untested is not None:
        main = "conditional" if given else "vendi"
        ranking = max(found.rankings, key=lambda r: (r.score == main, r.order == 2))
        why = found.untested or (over.untested if over else "no profile was computed")
        words = f"{ranking.name}{given}, at one bandwidth: {_render.ranking_in_words(ranking)}."
        return words, f"Over the bandwidths nothing was tested: {why}."
    heading, _ = _render.over_bandwidths(over)
    return _leader(over, given), f"{heading} {_render.joint_confidence(over)}."


def _leader(over: Profile, given: str) -> str:
    """Which model is more diverse than every other and never less, or which are in front."""
    names = over.models
    pairs = {a: [over.pair(a, b, over.main) for b in names if b != a] for a in names}
    untested = [name for name in names if all(None not in pair.untested for pair in pairs[name])]
    never = [name for name in names if all((pair.signs >= 0).all() for pair in pairs[name])]
    front = [name for name in never if name not in untested]
    for leader in front:
        wins: Any = np.array([pair.signs > 0 for pair in pairs[leader]])
        if wins.any(axis=1).all():
            whom = "every other model" if len(wins) > 1 else pairs[leader][0].second
            places = _render.where(wins.all(axis=0).tolist(), True, over.bandwidths.tolist())
            return (
                f"{leader} leads in diversity{given}: it is more diverse than {whom} "
                f"{places or 'at some bandwidth'}, and never less diverse where they were tested."
            )
    words = f"No model leads in diversity{given}."
    if len(untested) == len(names):
        return f"No difference in diversity{given} was tested."
    if len(never) == len(names):
        words = f"No significant difference in diversity{given} at any tested bandwidth."
    elif front:
        words += f" In front: {_render.listed(front)}, never less diverse where tested."
    own = [pair for pair in over.pairs if pair.score == over.main and pair.depends]
    if turning := [f"{pair.first} - {pair.second}" for pair in own]:
        words += f" The order depends on the bandwidth: {_render.listed(turning)}."
    return words + (f" Not tested: {_render.listed(untested)}." if untested else "")


def _scored(found: Comparison, encoder: str | None, command: str | None) -> str:
    """What was scored, and how, as a list of terms."""
    n = dict.fromkeys(found.n.values())
    each = f"{next(iter(n)):,} of each model" if len(n) == 1 else ""
    outputs = each or ", ".join(f"{name} {count:,}" for name, count in found.n.items())
    terms = {"Outputs": outputs}
    distinct = {e.distinct_prompts for e in found.evaluations.values()} - {None}
    if distinct:
        terms["Prompts"] = " or ".join(f"{count:,}" for count in sorted(distinct))  # pyright: ignore
    terms["Encoder"] = encoder or "not named"
    for name, (width, rule, _) in found.bandwidths.items():
        terms[f"Bandwidth of {name}"] = (f"{width:.4g}, " if width else "") + rule
    terms["Orders"] = ", ".join(f"{o.decomposition.order:g}" for o in found.first.orders)
    terms["Seed"] = f"{found.first.seed}"
    terms["Command"] = command or "called from Python"
    terms["Version"] = f"condvendi_jax {__version__}, {found.first.dtype}"
    rows = (f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in terms.items())
    return "<dl>" + "".join(rows) + "</dl>"


class _Shown:
    """The texts and pictures of a page, each cut to what the page has room for."""

    def __init__(
        self,
        behind: Behind,
        outputs: Mapping[str, Sequence[Any]] | None,
        prompts: Mapping[str, Sequence[Any]] | None,
    ):
        self.behind, self.outputs, self.prompts = behind, outputs, prompts
        self.note, self.limit = "", _TEXT_BYTES
        self.pictures: dict[tuple[str, int], str] = {}
        self.side = 0
        if outputs is None:
            self.note = "No texts or pictures were given: outputs are shown by their row."
            return
        compared = [
            (name, position)
            for name, own in behind.models.items()
            for position in np.flatnonzero(own.group >= 0).tolist()
        ]
        items = {key: self.item(*key) for key in compared}
        sizes = sorted(
            len(item.encode("utf-8", "replace")) for item in items.values() if isinstance(item, str)
        )
        left = _TEXT_BYTES
        for index, size in enumerate(sizes):  # The longest texts share what the others leave.
            self.limit = max(left // (len(sizes) - index), 40)
            left -= min(size, self.limit)
        cut = sum(size > self.limit for size in sizes)
        if cut:
            self.note = f"{cut:,} long texts are cut to {self.limit:,} bytes."
        paths = {key: item for key, item in items.items() if not isinstance(item, str)}
        if paths:
            self._draw(paths)

    def item(self, model: str, position: int) -> Any:
        """The text or the path of an output; None where there are none."""
        if self.outputs is None:
            return None
        return self.outputs[model][self.behind.models[model].rows[position]]

    def _draw(self, paths: Mapping[tuple[str, int], Any]) -> None:
        """Small pictures of as many outputs as the page has room for."""
        sample = list(paths)[:: max(1, len(paths) // 20)]
        rank: dict[tuple[str, int], int] = {}
        for name, own in self.behind.models.items():
            for number in np.unique(own.prompt).tolist():
                positions = np.flatnonzero((own.prompt == number) & (own.group >= 0))
                rank |= {(name, p): k for k, p in enumerate(positions.tolist())}
        for side, count in _PICTURES:
            self.side, wanted = side, [key for key in paths if rank[key] < count]
            mean = np.mean([len(_thumbnail(paths[key], side)) for key in sample])
            if mean * len(wanted) <= _PICTURE_BYTES:
                break
        self.pictures = {key: _thumbnail(paths[key], self.side) for key in wanted}
        if len(wanted) < len(paths):
            self.note = f"{len(paths) - len(wanted):,} of {len(paths):,} pictures are left out."

    def output(self, model: str, position: int, limit: int | None = None) -> str:
        """An output as HTML."""
        item, row = self.item(model, position), self.behind.models[model].rows[position]
        if item is None:
            return f'<span class="t">row {row}</span>'
        if isinstance(item, str):
            return _cut(item, min(limit or self.limit, self.limit))
        name = text(pathlib.Path(item).name)
        if (model, position) not in self.pictures:
            return f'<span class="t">{name}</span>'
        data = self.pictures[model, position]
        source = f"data:image/webp;base64,{data}"
        return f'<img alt="{name}" title="{name}" width="{self.side}" src="{source}">'

    def prompt(self, number: int, width: int | None = None) -> str:
        """A prompt as HTML; in one line of a width, if there is one."""
        name = self.name_of(number)
        return _cut(name if width is None else _render.shortened(name, width), _PROMPT_BYTES)

    def name_of(self, number: int) -> str:
        """A prompt as a text; its row where there is none."""
        model, position = self.behind.first[number]
        row = self.behind.models[model].rows[position]
        if self.prompts is None:
            return f"prompt of row {row}" if self.behind.main == "conditional" else "all outputs"
        return str(self.prompts[model][row])


def _cut(words: str, limit: int) -> str:
    """A text as HTML, without what is beyond a number of bytes, and how much that is."""
    kept = words.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")
    rest = len(words) - len(kept)
    more = f" <small>[{rest:,} more characters]</small>" if rest > 0 else ""
    return f'<span class="t" dir="auto">{text(kept)}</span>{more}'


def _thumbnail(path: str | os.PathLike[str], side: int) -> str:
    """A picture of at most side x side pixels as WebP, in base64."""
    with _extras.needed("embed", package="Pillow", purpose="showing pictures"):
        from PIL import Image, ImageOps
    try:
        with Image.open(path) as opened:
            opened.draft("RGB", (2 * side, 2 * side))
            picture = ImageOps.exif_transpose(opened).convert("RGBA")
    except (OSError, ValueError, SyntaxError) as error:
        raise ValueError(f"{path}: expected a picture that Pillow can read ({error}).") from error
    picture.thumbnail((side, side))
    white = Image.new("RGBA", picture.size, "white")
    stream = io.BytesIO()
    Image.alpha_composite(white, picture).convert("RGB").save(stream, "WEBP", quality=50, method=6)
    return base64.b64encode(stream.getvalue()).decode()


def _link(number: int, words: str) -> str:
    return f'<a href="#p{number}">{words}</a>'


def _heat(found: Comparison, behind: Behind, shown: _Shown) -> tuple[str, str]:
    """The table of prompts by models, and what its cells are."""
    tables = {name: own.prompts for name, own in behind.models.items()}
    several = any(s.n > 1 for table in tables.values() for s in table.values())
    if several:
        measure = (
            "the similarity of two outputs of one model to one prompt: how often they count as the "
            "same; darker where less often"
        )
    else:
        measure = "what the prompt contributes to the score; there is one output of each prompt"

    def of(model: str, number: int) -> tuple[float, float]:
        """The value of a cell and that of its colour."""
        scored = tables[model].get(number)
        if scored is None:
            return math.nan, math.nan
        contribution = getattr(scored.contributions, behind.main)
        similarity = scored.similarity
        return (similarity, -similarity) if several else (contribution, contribution)

    cells = np.array([[of(m, p) for m in tables] for p in range(len(behind.first))])
    values, colours = cells[..., 0], cells[..., 1]
    known = colours[np.isfinite(colours)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
    rows = []
    for number in range(len(values)):
        own = values[number][np.isfinite(values[number])]
        summary = [own.mean(), np.ptp(own)] if own.size else [math.nan, math.nan]
        row = [
            _cell(value, (colour - low) / (high - low) if high > low else 0)
            for value, colour in zip(values[number], colours[number], strict=True)
        ]
        row += [_cell(value) for value in (summary if len(tables) > 1 else summary[:1])]
        name = _link(number, shown.prompt(number, 90))
        rows.append(f'<tr><th scope="row" data-v="{number}">{name}</th>{"".join(row)}</tr>')
    heading = ["prompt", *tables, "mean", *(["spread"] if len(tables) > 1 else [])]
    head = "".join(f'<th scope="col">{text(cell)}</th>' for cell in heading)
    table = _framed(' class="heat"', head, "".join(rows))
    label = 'class="wide tall" tabindex="0" role="region" aria-label="prompts by models"'
    return table.replace('class="wide"', label, 1), measure


def _cell(value: float, shade: float = math.nan) -> str:
    if math.isnan(value):
        return '<td data-v="">-</td>'
    style = "" if math.isnan(shade) else f' style="--s:{max(shade, 0):.2f}"'
    return f'<td data-v="{value:.6g}"{style}>{value:.3g}</td>'


def _panel(behind: Behind, shown: _Shown, number: int) -> str:
    """The outputs of all models to a prompt, side by side."""
    owners: dict[int, list[str]] = {}
    for name, own in behind.models.items():
        for group in own.grouped(number):
            owners.setdefault(group, []).append(name)
    columns = []
    for index, (name, own) in enumerate(behind.models.items()):
        if number not in own.prompts:
            continue
        scored, items = own.prompts[number], []
        for group, positions in own.grouped(number).items():
            also = [other for other in owners[group] if other != name]
            items.append(_group(behind, shown, index, name, positions, also))
        listed = int(np.sum((own.prompt == number) & (own.group >= 0)))
        rest = int(np.sum(own.prompt == number)) - listed
        more = f"<p><small>{rest:,} more outputs are not shown.</small></p>" if rest else ""
        columns.append(
            f'<section><h4>{text(name)}</h4><p class="n">{scored.score:.3g} of {scored.n:,} count '
            f'as different</p><ul class="outputs">{"".join(items)}</ul>{more}</section>'
        )
    short = shown.prompt(number, 120)
    return (
        f'<details class="prompt"><summary>{short}</summary><div id="p{number}" tabindex="-1">'
        f'<h3>{shown.prompt(number)}</h3><div class="models">{"".join(columns)}</div></div>'
        "</details>"
    )


def _group(
    behind: Behind, shown: _Shown, index: int, model: str, positions: np.ndarray, also: list[str]
) -> str:
    """Near-duplicates: the first in full, the others folded."""
    own = behind.models[model]

    def one(position: int, told: str) -> str:
        value = own.influence[position]
        sign = "up" if value > 0 else "down"
        return f'<b class="{sign}">{_signed(value)}</b>{told}'

    first, *others = positions.tolist()
    content = one(first, shown.output(model, first))
    if also:
        content += f" <i>also {text(_render.listed(also))}</i>"
    if others:
        told = "".join(
            f'<li id="o{index}-{k}">'
            + one(k, "the same" if _same(shown, model, first, k) else shown.output(model, k))
            + "</li>"
            for k in others
        )
        content += _details(f"{len(others)} more like it", f"<ul>{told}</ul>")
    return f'<li id="o{index}-{first}">{content}</li>'


def _same(shown: _Shown, model: str, one: int, two: int) -> bool:
    item = shown.item(model, one)
    return isinstance(item, str) and item == shown.item(model, two)


def _signed(value: float) -> str:
    return f"{value:+.2g}".replace("-", "−")


def _extremes(behind: Behind, shown: _Shown) -> str:
    """The prompts with the least and the most diverse outputs, by the mean similarity of models."""
    similarity = {
        number: float(np.mean(own))
        for number in range(len(behind.first))
        if (
            own := [
                m.prompts[number].similarity for m in behind.models.values() if number in m.prompts
            ]
        )
        and not np.isnan(own).any()
    }
    if not similarity:
        return "<p>No prompt has two outputs of each model: nothing is similar or different.</p>"
    ordered = sorted(similarity, key=lambda number: -similarity[number])
    halves = []
    for heading, chosen in (("Least diverse", ordered), ("Most diverse", ordered[::-1])):
        items = "".join(
            f"<li>{_link(number, shown.prompt(number, 160))} <small>similarity "
            f"{similarity[number]:.3f}</small></li>"
            for number in chosen[:_LISTED]
        )
        halves.append(f"<section><h3>{heading}</h3><ol>{items}</ol></section>")
    return f'<div class="models">{"".join(halves)}</div>'


def _redundant(behind: Behind, shown: _Shown) -> str:
    items = []
    for name, positions, influence in behind.redundant(_LISTED):
        number = int(behind.models[name].prompt[positions[0]])
        count = f"{len(positions):,} alike" if len(positions) > 1 else _signed(influence)
        items.append(
            f'<li><b class="down">{count}</b>{shown.output(name, int(positions[0]), 300)} '
            f"<small>{text(name)}; {_link(number, shown.prompt(number, 80))}</small></li>"
        )
    return f'<ol class="outputs">{"".join(items)}</ol>'


def _shared(behind: Behind, shown: _Shown) -> str:
    groups = behind.shared(_LISTED)
    if not groups:
        near = "" if math.isnan(behind.nearest) else f" The nearest two have {behind.nearest:.3f}."
        return f"<p>No two models have outputs of one prompt that are so alike.{near}</p>"
    items = []
    for group in groups:
        model, positions = next(iter(group.positions.items()))
        counts = ", ".join(f"{name} × {len(p):,}" for name, p in group.positions.items())
        items.append(
            f"<li>{shown.output(model, int(positions[0]), 300)} <small>{text(counts)}; "
            f"{_link(group.prompt, shown.prompt(group.prompt, 80))}</small></li>"
        )
    return f'<ol class="outputs">{"".join(items)}</ol>'


def _between(found: Comparison) -> str:
    if found.between is None:
        return ""
    between = found.between
    words = _render.different_models(between)
    return (
        f"<p>{text(words[0].upper() + words[1:])}.</p>{_table(*_render.overlaps(between))}"
        f"{_list(_render.notes_on_between(between))}"
    )


def _profile(found: Comparison) -> str:
    """The main score over the bandwidths: a chart, a table with a row each, and who leads."""
    over = found.profile
    if over is None:
        return "<p>The scores over the bandwidths were not computed.</p>"
    widths = over.bandwidths
    values, bands, saturated = over.curves(over.main)
    chart, places = _chart(over.models, widths, values, bands, f"bandwidth of {over.axis}")
    rows = []
    chosen = int(np.argmin(np.abs(np.log(over.multiples))))
    for k, width in enumerate(widths):
        cells = []
        for value, (low, high), full in zip(
            values[:, k], bands[:, k], saturated[:, k], strict=True
        ):
            band = "at a limit" if full else "" if math.isnan(low) else f"{low:.3g} to {high:.3g}"
            cells.append(f"<td>{value:.4g} <small>{band}</small></td>")
        order = _order_at(over, k)
        rows.append(
            f'<tr data-x="{places[k]:.1f}" data-w="{text(order)}"><th scope="row">{width:.3g}</th>'
            f"<td>{over.multiples[k]:.3g}</td>{''.join(cells)}</tr>"
        )
    head = "".join(f'<th scope="col">{text(c)}</th>' for c in ("bandwidth", "times", *over.models))
    slider = (
        '<p class="slider" hidden><label>Bandwidth <input type="range" id="slider" min="0" '
        f'max="{len(widths) - 1}" value="{chosen}"></label> <output for="slider"></output></p>'
    )
    heading, sentences = _render.over_bandwidths(over)
    table = _framed(' id="ladder"', head, "".join(rows))
    every = _details("All bandwidths", table)
    return f"<p>{text(heading)}</p>{_list(sentences)}{slider}{chart}{every}"


def _order_at(over: Profile, k: int) -> str:
    """The order of the models at one bandwidth: 'A > B >= C'."""
    places = np.argsort(-getattr(over.values, over.main)[:, k], kind="stable")
    names, states = [over.models[place] for place in places], {}
    for one, two in itertools.combinations(names, 2):
        state = over.pair(one, two, over.main).states[k]
        states[one, two] = math.nan if isinstance(state, str) else state
    return _render.order_in_words(names, states)


def _chart(
    names: Sequence[str], xs: np.ndarray, values: np.ndarray, bands: Any, axis: str
) -> tuple[str, np.ndarray]:
    """Curves on logarithmic axes as SVG, `[names, m]`, and the places of `xs`, `[m]`."""
    left, bottom, logs = 48, 36, np.log(xs)
    shown = np.concatenate([values.ravel(), *([] if bands is None else [np.ravel(bands)])])
    shown = np.log(shown[np.isfinite(shown) & (shown > 0)])
    low, high = shown.min(), max(shown.max(), shown.min() + 0.01)
    across = left + (logs - logs[0]) / (logs[-1] - logs[0] or 1) * (_WIDTH - left - 12)

    def up(of: Any) -> np.ndarray:
        part = (np.log(np.maximum(of, 1e-300)) - low) / (high - low)
        return 8 + (1 - np.clip(part, 0, 1)) * (_HEIGHT - bottom - 8)

    parts = []
    for tick in _ticks(math.exp(low), math.exp(high)):
        y = float(up(tick))
        parts.append(f'<path class="grid" d="M{left} {y:.1f}H{_WIDTH - 12}"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" class="end">{tick:.3g}</text>')
    for index in range(0, len(xs), max(1, math.ceil(len(xs) / 7))):
        x, y = across[index], _HEIGHT - bottom + 16
        parts.append(f'<text x="{x:.1f}" y="{y}" class="mid">{xs[index]:.3g}</text>')
    parts.append(
        f'<text x="{(left + _WIDTH) / 2}" y="{_HEIGHT - 4}" class="mid">{text(axis)}</text>'
    )
    for index, own in enumerate(values):
        known = np.isfinite(own)
        if bands is not None:
            inside = np.isfinite(bands[index]).all(axis=1)
            ends = (
                np.stack([across, up(bands[index][:, 0])]),
                np.stack([across, up(bands[index][:, 1])]),
            )
            ring = np.concatenate([ends[0][:, inside], ends[1][:, inside][:, ::-1]], axis=1)
            parts.append(f'<path class="band m{index % 7}" d="{_line(ring)}"/>')
        line = _line(np.stack([across, up(own)])[:, known])
        dash = f" d{index // 7 % 4}" if index >= 7 else ""
        parts.append(f'<path class="curve m{index % 7}{dash}" d="{line}"/>')
    parts.append(f'<path class="cursor" d="M0 8V{_HEIGHT - bottom}"/>')
    legend = "".join(
        '<li><svg viewBox="0 0 30 10" aria-hidden="true">'
        f'<path class="curve m{k % 7} d{k // 7 % 4}" d="M0 5H30"/></svg>{text(name)}</li>'
        for k, name in enumerate(names)
    )
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{text(axis)}">'
        f'{"".join(parts)}</svg><ul class="legend">{legend}</ul></figure>'
    ), across


def _line(points: np.ndarray) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points.T) if points.size else ""


def _ticks(low: float, high: float) -> list[float]:
    """One to about eight round numbers between two positive ones."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7), np.arange(10, 100) / 10):
        found = [s * 10.0**e for e in decades for s in steps if low <= s * 10.0**e <= high]
        if len(found) >= 3:
            return found[:: math.ceil(len(found) / 8)]
    return [low, high]


def _spectrum(behind: Behind) -> str:
    count = min(own.eigenvalues.size for own in behind.models.values())
    values = np.array([own.eigenvalues[:count] for own in behind.models.values()])
    values = np.where(values > 1e-6, values, math.nan)
    return _chart([*behind.models], np.arange(1, count + 1), values, None, "number of the mode")[0]


def _map(behind: Behind) -> str:
    """A small map for each model: its outputs over those of all models."""
    step = math.ceil(sum(own.rows.size for own in behind.models.values()) / _POINTS)
    places = {name: own.places[::step] for name, own in behind.models.items()}
    everything = np.concatenate([*places.values()])
    low, size = everything.min(axis=0), max(float(np.ptp(everything, axis=0).max()), 1e-30)
    height = max(20, math.ceil(200 * float(np.ptp(everything[:, 1])) / size))

    def path(points: np.ndarray) -> str:
        placed = np.round(4 + 192 * (points - low) / size, 1)
        return "".join(f"M{x:g} {y:g}h0" for x, y in placed)

    behind_all = path(everything[:: max(1, len(everything) // 1500)])
    panels = [
        f'<figure><svg class="map" viewBox="0 0 200 {height + 8}" role="img" data-m="{index}" '
        f'data-step="{step}" aria-label="map of {text(name)}"><use href="#all"/>'
        f'<path class="points" d="{path(own)}"/></svg><figcaption>{text(name)}</figcaption>'
        "</figure>"
        for index, (name, own) in enumerate(places.items())
    ]
    return (
        f'<svg width="0" height="0" aria-hidden="true"><path id="all" class="rest" '
        f'd="{behind_all}"/></svg><div class="maps">{"".join(panels)}</div>'
    )


def _lengths(behind: Behind, outputs: Mapping[str, Sequence[Any]] | None) -> str:
    """How long the texts of each model are, and whether long ones contribute more."""
    if outputs is None or not all(isinstance(x, str) for own in outputs.values() for x in own):
        return "<p>The outputs are not shown as texts, so that they have no lengths.</p>"
    from scipy.stats import spearmanr  # Imported where it is used: it is slow to import.

    rows, medians = [], []
    for name, own in behind.models.items():
        lengths = np.array([len(outputs[name][row]) for row in own.rows])
        low, median, high = np.quantile(lengths, [0.1, 0.5, 0.9])
        medians.append(median)
        varies = np.ptp(lengths) > 0 and np.ptp(own.influence) > 0
        rank = float(spearmanr(lengths, own.influence)[0]) if varies else math.nan  # pyright: ignore
        cell = "-" if math.isnan(rank) else f"{rank:.2f}"
        rows.append([name, f"{median:,.0f}", f"{low:,.0f} to {high:,.0f}", cell])
    heading = ["model", "median characters", "10% to 90%", "rank correlation with contribution"]
    ratio = max(medians) / max(min(medians), 1)
    return (
        "<p>Long texts can look more different to an encoder than short ones. The median lengths "
        f"of the models differ by a factor of {ratio:.2g}. Before you conclude that a model is "
        f"more diverse, compare answers of one length.</p>{_table(heading, rows)}"
    )
