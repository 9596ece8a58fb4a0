"""What experiments/papers.toml says of the papers' figures and tables, in words and as a table."""

import collections
import functools
import itertools
import pathlib
import tomllib
from typing import Any

OUTCOMES = {
    "comes out": "the claim holds on our data, with the control that the study names",
    "in part": "a part of the claim holds, and the reason names the part that does not",
    "not": "every ingredient of the claim is here, and the claim does not hold",
    "not comparable": "an ingredient that the claim is about is missing here",
    "not tried": "nothing here to try it on",
}


@functools.cache
def groups() -> list[dict[str, Any]]:
    """The entries of the file in their order; it describes their keys."""
    path = pathlib.Path(__file__).parents[1] / "papers.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))["group"]


def repeats(study: str) -> str:
    """Which figures and tables a study repeats: 'CV figs 2, 13-15; RKE table 1', or '-'."""
    return cited([group for group in groups() if study in group["studies"]]) or "-"


def printed(paper: str, item: str) -> dict[str, Any]:
    """What the file has of the numbers of a figure or table, by their names in it."""
    return next(g for g in groups() if g["paper"] == paper and item in g["items"])["printed"]


def cited(of: list[dict[str, Any]]) -> str:
    """The figures and tables of these groups in words."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for group in of:
        for kind, number in map(str.split, group["items"]):
            found[group["paper"]][kind].append(int(number))
    words = {paper: [_numbered(*of_kind) for of_kind in found[paper].items()] for paper in found}
    return "; ".join(f"{paper} {'; '.join(kinds)}" for paper, kinds in words.items())


def _numbered(kind: str, numbers: list[int]) -> str:
    """Such as 'figs 2, 13-15'."""
    runs = itertools.groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0])
    texts = [[str(number) for _, number in run] for _, run in runs]
    shown = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(run) for run in texts]
    return f"{kind}{'s' * (len(numbers) > 1)} {', '.join(shown)}"


def lines() -> list[str]:
    """In Markdown: how many figures and tables come out, what that means, and each answer."""
    count, rows = collections.Counter(), collections.defaultdict(list)
    for group in groups():
        count[group["outcome"]] += len(group["items"])
        here = ", ".join(f"[{study}]({study}.md)" for study in group["studies"])
        here += f": {group['stand_in']}" * bool(here)
        came = ": ".join(filter(None, (group["outcome"], group.get("why"))))
        rows[f"{group['shows']}|{here}|{came}|"].append(group)
    yes, partly, no, apart, left = (count[outcome] for outcome in OUTCOMES)
    total = count.total()
    head = f"Of {total} figures and tables of the four papers, {total - left} have a study. Of "
    head += f"{yes + partly + no} comparable results, {yes} come out, {partly} in part, {no} "
    head += f"do not; {apart} are not comparable, {left} were not tried."
    meanings = [f"- *{outcome}*: {meaning}." for outcome, meaning in OUTCOMES.items()]
    top = "|figures, tables|the paper shows|here|comes out|", "|---|---|---|---|"
    table = (f"|{cited(of)}|{row}" for row, of in rows.items())
    return [head, "", *meanings, "", *top, *table]
