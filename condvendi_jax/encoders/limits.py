"""What an encoder of English cannot see in texts: the lines beside a number that rests on it."""

import collections
import itertools
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from condvendi_jax.encoders.similarity import exact

_READ = 2000  # Characters of a text that are looked at: 256 tokens have fewer.
_APART = 0.25  # A choice: the share of letters in other scripts from which models are unlike.
_SHORT = 60  # A choice: texts of more characters say more than an answer.
_MULTILINGUAL = "Try --text_encoder=st:Qwen/Qwen3-Embedding-0.6B (encoder= in Python)"
_FEWER = f"Eight unlike sentences then count as 4 to 7. {_MULTILINGUAL}"
_WAYS = "The number then counts ways of writing, too: try --similarity={} (similarity= in Python)"
_KINDS = {  # No line of code starts as one of JSON does, or names a key.
    "code": r"(?m)^(?:```|#include|\s*(?:def|class|import|function|public|const) \w)"
    r"|^(?![ \t]*[\[{\]}\"\d]|.*\":)[^\\\n]*(?:\);|[{}])$",
    "formulas": r"\\(?:[(\[]|boxed|[dt]?frac|sqrt|cdot|times)"
    r"|\$[^$\n]{0,80}[\\^_=+][^$\n]{0,80}\$",
    "numbers or letters": r"(?i)\A\W{0,9}(?:(?:the )?answer is|\\boxed)?"
    r"(?:(?=\W*\d)[\W\d]+|\W{0,9}\w\W*)\Z",
}


def scripts(texts: Sequence[str]) -> dict[str, float]:
    """The share of each script in the letters of texts, the largest first."""
    counts = collections.Counter("".join(text[:_READ] for text in texts))
    shares = collections.Counter[str]()
    for letter in filter(str.isalpha, counts):
        shares[unicodedata.name(letter, "?").split()[0]] += counts[letter]
    return {script: count / shares.total() for script, count in shares.most_common()}


def apart(shares: Mapping[str, Mapping[str, float]]) -> set[frozenset[str]]:
    """Every two models whose scripts are too unlike to be compared, from the scripts of each."""
    return {
        frozenset(two)
        for two in itertools.permutations(filter(shares.get, shares), 2)
        if sum(max(0, n - shares[two[1]].get(s, 0)) for s, n in shares[two[0]].items()) > _APART
    }


def limits_of(
    model: str, texts: Sequence[str], prompts: Sequence[Any], shares: Any, encoder: Any
) -> Iterator[tuple[str, str, str, str]]:
    """What an encoder does not see in a model's answers: a kind, a finding, evidence and a remedy.

    Beside cut texts, this is known of one language alone, with `shares` of the `scripts` of models.
    """
    (main, share), *_ = *shares.get(model, {}).items(), ("LATIN", 1)
    unlike = model in frozenset().union(*apart(shares))
    if unlike or main != "LATIN":
        what = "these models are written in different scripts and cannot be compared by"
        what = what if unlike else "these texts are in a script that is foreign to"
        language = f"{encoder.name}, an encoder of {encoder.encoder.language}"
        yield "scripts", f"{what} {language}", f"{main} {share:.0%}", _FEWER
    if cut := encoder and getattr(encoder.encoder, "describe_cut", lambda _: None)(texts):
        remedy = f"The number is that of what is read. {_MULTILINGUAL}"
        yield "cut", "these texts are not all read", re.split("; |[.] ", cut)[0], remedy
    if model not in shares:
        return
    starts = [text[:_READ].strip() for text in texts]
    for kind, pattern in _KINDS.items():
        if 2 * (count := sum(map(bool, map(re.compile(pattern).search, starts)))) > len(texts):
            what = f"most texts are or hold {kind}", f"{count:,} of {len(texts):,}"
            yield kind, *what, _WAYS.format("code" if kind == "code" else "exact")
    rows = [*zip(prompts, [exact(t) if len(t) <= _SHORT else t for t in starts], strict=True)]
    ways = {(*row, " ".join(t.casefold().split())) for row, t in zip(rows, starts, strict=True)}
    several = collections.Counter(way[:2] for way in ways)
    if 10 * (count := sum(several[row] > 1 for row in rows)) > len(texts):
        what = "texts equal others but for quotes, Markdown or notation"
        yield "notations", what, f"{count:,} of {len(texts):,}", _WAYS.format("exact")
