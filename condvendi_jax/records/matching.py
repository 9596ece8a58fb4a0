"""Which prompts of several models are the same, and why models may share few of them."""

import collections
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from condvendi_jax.base import checks, tables
from condvendi_jax.base.labelling import identity
from condvendi_jax.records.record import LAST_TURN, PROMPT_FIELDS

_MARKS = "s|sample|run|rep|repeat|seed|n|k|try|draw|attempt|trial|gen|generation|rollout"
_SAMPLE = re.compile(  # Its name, and its number with what may stand before.
    rf"\A(\S+?)(?:[-_.:/#@|]|(?<=\d)(?=\D))((?:(?:{_MARKS})[-_=:#]?)?\d+)\Z", re.IGNORECASE
)


def without_samples(ids: Any, *, refuse: bool | None = None) -> Any:
    """Ids of prompts, or those by model, without the numbers of samples that they may end with.

    Where all ids differ and several prompts have nearly the same numbers. What may be either stays
    with a warning, if `refuse` is False; or is a ValueError, to `refuse` ids that nobody named.
    """
    if isinstance(ids, Mapping):
        return {m: without_samples(of_model, refuse=refuse) for m, of_model in ids.items()}
    parts = [part for text in ids if (part := _SAMPLE.match(text))]
    names, numbers = ([part[k] for part in parts] for k in (1, 2))
    size = len({*names}), len({*numbers})
    grid = min(size) > 1 and len(ids) > 0.75 * math.prod(size)
    if not grid or len({part[0] for part in parts}) < len(ids):
        return ids
    words = f"ids such as {parts[0][0]!r} are {size[0]:,} names with {size[1]:,} numbers each"
    if not all(map(str.isdecimal, numbers)):
        checks.warn(f"prompts: {words}, of samples: the names count as prompts.")
        return names
    if refuse is None:
        return ids
    words = (
        f"prompts: {words}, of samples or of prompts. If of samples, --prompts=FILE joins texts "
        "by id; in Python pass texts as prompts. If of prompts, name the field of the ids, "
        "--prompt_field=NAME, or pass prompt_ids=prompts."
    )
    if refuse:
        raise ValueError(words)
    checks.warn(words)
    return ids


def forms(prompts: Iterable[str]) -> list[str]:
    """A line on prompts that count as the same though they are written differently, if any."""
    several = sum(n > 1 for n in collections.Counter(map(identity, {*prompts})).values())
    words = "prompts differ in blanks, line ends or Unicode form alone, and count as the same"
    return [f"{several:,} {words}"] if several else []


def copies(rows: Mapping[str, Iterable[tuple[str, str]]]) -> list[tuple[str, str, str]]:
    """Which two have the same rows of a prompt and an answer, in any order, and what to do."""
    said = {name: sorted((identity(p), a) for p, a in pairs) for name, pairs in rows.items()}
    same = [two for two in itertools.combinations(said, 2) if said[two[0]] == said[two[1]]]
    words, mend = "have the same answers to the same prompts", "Leave one out if it is a copy"
    return [(f"{one} and {two} {words}", f"all {len(said[one]):,}", mend) for one, two in same]


def few(
    prompts: Mapping[str, Iterable[str]], fields: Mapping[str, Sequence[str]]
) -> list[tuple[str, str, str]]:
    """Which model shares fewer than half of its prompts with most others, why, and what to do.

    `fields` are those of prompts and answers that were read from records; empty elsewhere.
    """
    texts = {name: {*map(identity, given)} for name, given in prompts.items()}
    shared = {(a, b): len(texts[a] & texts[b]) for a, b in itertools.permutations(texts, 2)}
    apart = {two: count for two, count in shared.items() if 2 * count < len(texts[two[0]])}
    if not apart:
        return []
    one = collections.Counter(name for name, _ in apart).most_common(1)[0][0]
    counts = {other: count for (name, other), count in apart.items() if name == one}
    number = f"{tables.span(counts.values())} of its {len(texts[one]):,} prompts"
    remedy = "Pass equal texts as prompts, or equal prompt_ids"
    if read := fields.get("prompts"):
        path = _alone(read, fields["answers"], prompts.values())
        remedy = f"Name the question alone, --prompt_field={path}, or a field of equal ids"
        remedy += "; or write equal prompts alike"
    why = _cause([texts[one], texts[next(iter(counts))]])
    return [(f"{one} shares {number} with {tables.listed([*counts])}", why, remedy)]


def _alone(read: Sequence[str], said: Sequence[str], prompts: Iterable[Iterable[str]]) -> str:
    """The `prompt_field` of the question alone; 'NAME' if unknown, or if it would merge prompts."""
    if read[0].startswith("arguments"):
        return "doc_id"  # Of lm-eval.
    plain = [name for name in read if name in PROMPT_FIELDS and name != "messages"]
    turn = f"messages[{-2 if LAST_TURN in said else -1}]"  # Before the answer.
    last = [turn] * ("messages" in read) + plain
    merged = any(len({t.rpartition("\n\nuser: ")[2] for t in p}) < len({*p}) for p in prompts)
    return "NAME" if merged or plain[1:] or last in ([], [*read]) else ",".join(last)


def _cause(two: Sequence[set[str]]) -> str:
    """Why two models share few prompts, as far as their texts show."""
    words = [[{*re.findall(r"\w+", text)} for text in texts] for texts in two]
    always = set().union(*(set.intersection(*texts) for texts in words))
    for why, key in {
        "they differ in capitals alone": lambda text: text.casefold().split(),
        "ids may hold numbers of samples": lambda text: _SAMPLE.sub(r"\1", text).split(),
        "a system message or a template stands around equal questions": (
            lambda text: [word for word in re.findall(r"\w+", text) if word not in always]
        ),
    }.items():
        one, other = ({" ".join(key(text)) for text in texts} for texts in two)
        if len(one & other) > max(1, len(two[0] & two[1]), min(len(one), len(other)) / 2 - 1):
            return why
    return "their texts show no cause"
