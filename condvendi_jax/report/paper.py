"""Results for a paper: a paragraph on what was computed, a table, and the works to cite."""

import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from condvendi_jax import __version__
from condvendi_jax.base.tables import Table, capitalized, span
from condvendi_jax.data.bandwidth import GIVEN
from condvendi_jax.results import evaluation
from condvendi_jax.results.comparison import Comparison
from condvendi_jax.results.one_prompt import Bars

_ESCAPES = {c: f"\\{c}" for c in "&%$#_{}"} | {"±": "$\\pm$"}
_ESCAPES |= {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
_ESCAPES |= {"<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}"}
_ESCAPES |= {"[": "{[}", "*": "{*}"}  # After the end of a row these would be its options.
_SOFTWARE, _WORDS = "condvendi-jax", 80  # Of a short paragraph, at most.
# Of one number and of two: the size, the letters of a name in a line, the width of longer names.
_SMALL = ("\\small", 28, 0.45), ("\\footnotesize\\setlength{\\tabcolsep}{3pt}", 14, 0.26)
_CITED = "\0"  # Where works are cited, until texts are escaped.
_CITATIONS = pathlib.Path(__file__).with_name("citations.bib")


class Report(NamedTuple):
    r"""A result for a paper, in LaTeX. `str` gives all three parts, as one file.

    Attributes:
      paragraph: what was scored and how, in at most 80 words; or, if long, every choice and test.
      latex: a table that fits a column, with a note; or, if long, that of all scores. Comments
        before it have the warnings.
      bibtex: the entries that the paragraph cites.
    """

    paragraph: str
    latex: str
    bibtex: str

    def __str__(self) -> str:
        end = "\\endinput % The rest is for the .bib file."
        return "\n\n".join([self.paragraph, self.latex, end, self.bibtex])


def latex(
    result: evaluation.Evaluation | Comparison, *, encoder: str | None = None, long: bool = False
) -> Report:
    """A paragraph on the result, its table in LaTeX (with booktabs), and the works to cite.

    Args:
      result: what `evaluate` or `compare` returns.
      encoder: the name of the encoder of the embeddings; the paragraph asks for it where None.
      long: whether to write every choice, test and note, and the table of all scores.
    """
    if not isinstance(encoder, str | None):
        raise TypeError(f"encoder: expected its name, received {encoder!r}.")
    alone = isinstance(result, evaluation.Evaluation)
    evaluations = {"": result} if alone else result.evaluations
    first = next(iter(evaluations.values()))
    bars = evaluation.bars(evaluations) if alone else result.bars
    known = encoder or first.encoder_name or "[name the encoder]"
    chosen = first.bandwidths["outputs"]
    compared = chosen.within_prompts or "equal" in chosen.rule  # Not by embeddings.
    embedded = [] if compared else [f"The embeddings are those of {known}."]
    computed = f"Computed in {first.dtype} by condvendi_jax {__version__} (seed {first.seed}) "
    computed += f"{_CITED}."
    verdict = [] if alone or len(evaluations) == 1 else [result.verdict()]
    optional = [*embedded, *_kernels(first), *verdict]
    if long:
        table = tabular(result.table() if alone else result.scores())
        meant = [evaluation.meaning(evaluations)] if alone else result.headline()
        told = [] if alone else [f"{r.name}: {r.in_full()}" for r in result.rankings]
        if not alone and result.profile:
            told.append(f"{result.profile.heading()} {'. '.join(result.profile.leads())}")
        kept = [item for item in result.advice if item.code != evaluation.DOUBT]
        short = {item.note(): item._replace(remedy="").note() for item in kept}
        told += [short.get(note, note) for note in result.notes()]  # Remedies are for the author.
        said = [f"{capitalized(note).strip(' .')}." for note in told]
        sentences = [*meant, _scored(evaluations, bars), *optional, *said, computed]
    else:
        table = _in_a_column(result, bars, first)
        sentences = [_scored(evaluations, bars), computed]
        for sentence in optional:  # As far as there are words left.
            if len(" ".join([*sentences, sentence]).split()) <= _WORDS:
                sentences.insert(-1, sentence)
    warned = "".join(f"% {' '.join(w.split())}\n" for w in evaluation.warning_lines(result.advice))
    orders = [scored.decomposition.order for scored in first.orders]
    keys = ["jalali2026conditional", *(["jalali2023rke"] if 2 in orders else []), _SOFTWARE]
    start, middle, end = " ".join(map(escaped, sentences)).split(_CITED)
    paragraph = f"{start}\\cite{{{','.join(keys[:-1])}}}{middle}\\cite{{{_SOFTWARE}}}{end}"
    entries = _CITATIONS.read_text().strip().replace("VERSION", __version__).split("\n\n")
    chosen = [entry for entry in entries if any(key in entry for key in keys)]
    return Report(paragraph, warned + table, "\n\n".join(chosen))


def _scored(evaluations: Mapping[str, evaluation.Evaluation], bars: Bars) -> str:
    """What was scored: 'We scored 8 answers to each of 40 prompts from each of 4 models'."""
    weighted = "weighted " * any(e.weighted for e in evaluations.values())
    noun = next(iter(evaluations.values())).noun
    data = f"{span(e.n for e in evaluations.values())} {weighted}{noun}"
    prompts = {e.distinct_prompts for e in evaluations.values() if e.distinct_prompts}
    if prompts:
        data += f" to {span(prompts)} prompts"
    if given := evaluation.given_answers(evaluations):
        data = f"{given} {weighted}{noun} to each of {span(prompts)} prompts"
    if len(evaluations) > 1:
        data += f" from each of {len(evaluations)} models"
    return f"We scored {data}{bars.by and f' by {bars.by}'} {_CITED}: the number of {bars.what}."


def _in_a_column(result: Any, bars: Bars, first: evaluation.Evaluation) -> str:
    """The numbers of models, and scores where these are others; a note below says what they are."""
    what, notes, more = bars.by or "number", [bars.axis], dict[str, list[str]]()
    if not math.isnan(bars.limit):
        scored = min(first.orders, key=lambda scored: scored.decomposition.order != 2)
        name = evaluation.score_name("conditional", order := scored.decomposition.order, None)
        what = f"differ, of {bars.limit:g}"
        notes = [f"{bars.axis}: {name} (order {order:g}) of these"]
        if scored.population:
            main = isinstance(result, Comparison) and result.main[0].estimate
            estimate = main or (lambda _: scored.estimate("conditional", unbiased=True))
            more = {name: [str(estimate(bar.model)) for bar in bars.models]}
            notes.append(f"Column {name}: of any number of {first.noun}")
    elif isinstance(result, Comparison) and (near := result.main[0]).score == "near":
        more = {"near prompts": [str(near.estimate(bar.model)) for bar in bars.models]}
        notes[0] += ", estimated from near prompts" * all(bar.known for bar in bars.models)
        notes.append(f"Near prompts and letters: {near.name}")
    columns = {"model": [bar.model or "outputs" for bar in bars.models]}
    columns |= {what: [*map(str, bars.models)], **more, "": [bar.letters for bar in bars.models]}
    if "[" in "".join(columns[what]):
        notes.append("In brackets: 95% intervals")
    if any(columns[""]):
        level = f"level {result.level:g}, Holm"
        notes.append(f"Models that share a letter cannot be told apart ({level})")
    (size, *names), rows = _SMALL[len(more)], [*zip(*columns.values(), strict=True)]
    parts = f"\\centering{size}", tabular(Table([*columns], rows), *names), "\\par\\smallskip"
    note = f"\\parbox{{\\linewidth}}{{\\footnotesize {escaped('. '.join(notes))}.}}"
    return "\n".join(["\\begin{table}", *parts, note, "\\end{table}"])


def _kernels(result: evaluation.Evaluation) -> Iterator[str]:
    for name, (width, rule, noise) in result.bandwidths.items():
        kernel = rule.partition(": ")[2].removesuffix(" has no bandwidth")
        if width is not None and not rule.startswith(GIVEN):
            draws = "" if noise is None else f", ± {noise:.1%} over other draws of the subsets"
            kernel = f"Gaussian with bandwidth {width:.4g} ({rule}{draws})"
        yield f"The kernel of the {name} is {kernel}."


def escaped(text: str) -> str:
    """A text for LaTeX: special characters escaped, line ends and tabs as spaces."""
    return "".join(_ESCAPES.get(c, c) for c in " ".join(text.split()))


def tabular(table: Table, letters: Any = 28, part: Any = 0.45) -> str:
    """A table of LaTeX that needs booktabs, its columns to the left; long names are wrapped."""
    head, *body = (" & ".join(map(escaped, row)) + r" \\" for row in (table.heading, *table.rows))
    wide = max(len(row[0]) for row in table.rows) > letters
    columns = (f"p{{{part}\\linewidth}}" if wide else "l") + "l" * (len(table.heading) - 1)
    rows = "\\toprule", head, "\\midrule", *body, "\\bottomrule", "\\end{tabular}"
    return "\n".join([f"\\begin{{tabular}}{{@{{}}{columns}@{{}}}}", *rows])
