"""Results for a paper: a paragraph on what was computed, the table, and the works to cite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from condvendi_jax import __version__
from condvendi_jax.report import _render

if TYPE_CHECKING:  # The results themselves import this module.
    from condvendi_jax.inference._results import Comparison, Evaluation, ScoredOrder
    from condvendi_jax.inference.saturation import Advice

_ESCAPES = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    "±": "$\\pm$",
    # After the end of a row these two would be its options.
    "[": "{[}",
    "*": "{*}",
}
_AUTHORS = "Jalali, Mohammad and {} and Farnia, Farzan"
_SOFTWARE = "condvendi-jax"
# By key, the kind of entry, authors, title, where it appeared and when.
_WORKS = {
    "jalali2026conditional": (
        _AUTHORS.format("Ospanov, Azim and Gohari, Amin"),
        "Conditional Vendi Score: Prompt-Aware Diversity Evaluation for Generative AI Models and "
        "LLMs",
        "29th International Conference on Artificial Intelligence and Statistics (AISTATS)",
        2026,
    ),
    "jalali2023rke": (
        _AUTHORS.format("Li, Cheuk Ting"),
        "An Information-Theoretic Evaluation of Generative Models in Learning Multi-modal "
        "Distributions",
        "Advances in Neural Information Processing Systems (NeurIPS)",
        2023,
    ),
}


class Report(NamedTuple):
    r"""What a paper says of a result, in LaTeX. `str` gives all three parts, as one file.

    Attributes:
      paragraph: n, the encoder, kernels, bandwidths, orders, methods, errors, version and seed.
      latex: the scores with errors as a `tabular`.
      bibtex: the entries that the paragraph cites.
    """

    paragraph: str
    latex: str
    bibtex: str

    def __str__(self) -> str:
        """The paragraph, the table and, after the end of what LaTeX reads, the entries."""
        end = "\\endinput % The rest is for the .bib file."
        return "\n\n".join([self.paragraph, self.latex, end, self.bibtex])


def of_evaluation(found: Evaluation, encoder: str | None) -> Report:
    """The report on one model."""
    estimated = any(scored.decomposition.estimation for scored in found.orders)
    notes = ["Brackets are 95% intervals of what all eigenvalues would give."] if estimated else []
    if found.elsewhere:
        words = _render.elsewhere(found)
        notes.append(f"{words[0].upper()}{words[1:]}.")
    return _report({"": found}, encoder, _render.scores_by_order(found), found.advice, notes)


def of_comparison(found: Comparison, encoder: str | None) -> Report:
    """The report on several models."""
    notes = []
    if len(found.models) > 1:
        notes.append(f"Outputs of different models are {_render.MATCHED[found.matched]}.")
    if any(ranking.tested for ranking in found.rankings if ranking.differences):
        notes.append(
            f"Models that share a letter cannot be told apart at the level {found.level:g} "
            "(two-sided t-tests; Holm's method for all pairs of models within a score)."
        )
    notes += [f"Saturated: {words}." for words in _render.saturated(found)]
    if found.untested:
        notes.append(f"Differences are not tested: {found.untested}.")
    if found.profile:
        heading, sentences = _render.over_bandwidths(found.profile)
        notes.append(f"{heading} {'. '.join(sentences)}.")
        if found.profile.untested is None:
            notes.append(f"Over the bandwidths, {_render.joint_confidence(found.profile)}.")
    table = _render.scores_by_model(found)
    return _report(found.evaluations, encoder, table, found.advice, notes)


def _report(
    evaluations: Mapping[str, Evaluation],
    encoder: str | None,
    table: tuple[Sequence[str], _render.Rows],
    advice: Sequence[Advice],
    notes: Sequence[str],
) -> Report:
    if not isinstance(encoder, str | None):
        raise TypeError(f"encoder: expected its name, received {encoder!r}.")
    first = next(iter(evaluations.values()))
    orders = [scored.decomposition.order for scored in first.orders]
    cited = [key for key in _WORKS if key != "jalali2023rke" or 2 in orders]
    errors = _render.errors([o for e in evaluations.values() for o in e.orders])
    scores = " and ".join(
        _scores(o, first.names, unbiased=first.unbiased and o.population is not None)
        for o in first.orders
    )
    where = "plug-in" if len(evaluations) == 1 and "" in evaluations else "in brackets"
    told = _render.unbiased([*evaluations.values()], where)
    notes = [*(f"{words[0].upper()}{words[1:]}." for words in told), *notes]
    sentences = [
        f"We scored {_data(evaluations)}: {scores}",
        f"The embeddings are those of {encoder or '[name the encoder]'}.",
        *_kernels(first),
        *(f"Saturated: {item.finding} ({item.evidence})." for item in advice),
        *(f"± is {note.removeprefix('±: ')}." for note in errors),
        *([] if errors else ["Standard errors were not computed."]),
        *notes,
        f"The computation was in {first.dtype} by condvendi_jax {__version__} (seed {first.seed})",
    ]
    sentences = list(map(escaped, sentences))
    sentences[0] += f" \\cite{{{','.join(cited)}}}."
    sentences[-1] += f" \\cite{{{_SOFTWARE}}}."
    return Report(" ".join(sentences), tabular(*table), _bibtex(cited, __version__))


def _scores(scored: ScoredOrder, names: Sequence[str], *, unbiased: bool) -> str:
    """The scores of an order, and how they were computed."""
    result = scored.decomposition
    words = [_render.score_name(name, result.order, None) for name in names]
    by = {"frobenius": "sums over all pairs of rows", "exact": "all eigenvalues"}
    how = by.get(result.method, f"the method {result.method}")
    if unbiased:
        how = "sums over all pairs of different rows"
    if result.estimation is not None:
        how += ", estimated"
    if result.truncation is not None:
        how += f", of which the largest {result.truncation:,} are kept"
    return f"{', '.join(words)} (order {result.order:g}, from {how})"


def _data(evaluations: Mapping[str, Evaluation]) -> str:
    """How many rows and prompts there are, of which models."""

    def of_one(found: Evaluation) -> str:
        number = f"{found.n:,}" + (" weighted" if found.weighted else "")
        if len(found.names) == 1:
            return f"{number} outputs"
        distinct = found.distinct_prompts
        kinds = "" if distinct is None else f" ({distinct:,} distinct prompts)"
        return f"{number} pairs of outputs and prompts{kinds}"

    words = {name: of_one(found) for name, found in evaluations.items()}
    if len(set(words.values())) > 1:
        return ", ".join(f"{data} of {name}" for name, data in words.items())
    (data,) = set(words.values())
    models = ", ".join(words)
    if len(words) > 1:
        return f"{data} of each of {len(words)} models ({models})"
    return data + (f" of {models}" if models else "")


def _kernels(found: Evaluation) -> list[str]:
    """A sentence for each kernel: its bandwidth, and the rule that chose it."""
    sentences = []
    for name, (width, rule, noise) in found.bandwidths.items():
        kernel = rule.partition(": ")[2].removesuffix(" has no bandwidth")
        if width is not None:
            draws = "" if noise is None else f", ± {noise:.1%} over other draws of the subsets"
            kernel = f"Gaussian with bandwidth {width:.4g} ({rule}{draws})"
        sentences.append(f"The kernel of the {name} is {kernel}.")
    return sentences


def escaped(text: str) -> str:
    """A text for LaTeX: special characters escaped, line ends and tabs as spaces."""
    return "".join(_ESCAPES.get(c, c) for c in " ".join(text.split()))


def tabular(heading: Sequence[str], rows: _render.Rows) -> str:
    """A table of LaTeX that needs no package, the first column to the left."""
    head, *lines = (" & ".join(map(escaped, cells)) + " \\\\" for cells in (heading, *rows))
    columns = "l" + "r" * (len(heading) - 1)
    return "\n".join(
        [f"\\begin{{tabular}}{{{columns}}}", head, "\\hline", *lines, "\\end{tabular}"]
    )


def _bibtex(cited: Sequence[str], version: str) -> str:
    entries = []
    for key in cited:
        authors, title, venue, year = _WORKS[key]
        fields = {"author": authors, "title": f"{{{title}}}", "booktitle": venue, "year": year}
        entries.append(_entry("inproceedings", key, fields))
    name = "{condvendi\\_jax}"
    authors = "{The condvendi\\_jax authors}"
    fields = {"author": authors, "title": name, "note": f"Version {version}"}
    return "\n\n".join([*entries, _entry("misc", _SOFTWARE, fields)])


def _entry(kind: str, key: str, fields: Mapping[str, object]) -> str:
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])
