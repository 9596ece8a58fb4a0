"""What a model was given and what it said: texts, chat messages, reasoning, placeholders."""

from __future__ import annotations

import ast
import collections
import contextlib
import hashlib
import json
import re
import unicodedata
import warnings
from collections.abc import Collection, Sequence
from typing import Any

ASSISTANTS = ("assistant", "model")
_USERS = ("user", "human")
_PARTS = {"role", "content", "text", "type"}  # One of them is in every message, and in its parts.
_ATTACHED = ("tool_calls", "function_call", "images", "files")  # Beside the content of a message.
_LONGEST = 1000  # Characters of JSON that are shown.
_UNSEEN = "\u034f\u115f\u1160\u2800\u3164\ufe0e\ufe0f\uffa0"  # Empty, but letters or marks.
_END = "</(?:think|thinking|reasoning)>"
_REASONING = re.compile(
    r"(?:\s*<(think|thinking|reasoning)>.*?(?:</\1>|\Z))+"
    rf"|.*?(?:(?:\A|\n)[ \t]*{_END}|{_END}(?=[ \t]*(?:\n|\Z)))",
    re.DOTALL | re.IGNORECASE,
)
_ERROR = re.compile(
    r"\W*(none|null|nan|n/?a|undefined|(no|empty) (answer|response|output))\W*\Z"
    r"|\W*([\w.]*error( code)? ?([:(\]!]|\d{3})|traceback \(most|rate limit|too many requests"
    r"|(request|connection) timed out|internal server error|service unavailable|http \d{3})",
    re.IGNORECASE,
)
_LIST = re.compile(r"\[\s*['\"].*['\"]\s*\]", re.DOTALL)
_LIKELIHOOD = re.compile(r"\(?-\d+\.\d+(e[-+]?\d+)?(, ?(true|false)\))?", re.IGNORECASE)


class Unfit(ValueError):
    """Why a record, or one of its answers, does not fit."""


def is_blank(text: str) -> bool:
    """Whether a text has only spaces and invisible characters, or none."""
    kinds = ("Zs", "Zl", "Zp", "Cc", "Cf")
    return all(char in _UNSEEN or unicodedata.category(char) in kinds for char in text)


def without_reasoning(text: str) -> str:
    """The text after the blocks `<think>...</think>` that it starts with.

    Of a block that was cut off nothing is left. Where the prompt holds the start of the block, its
    end is recognized at the start or the end of a line.
    """
    block = _REASONING.match(text) if "<" in text else None
    return text[block.end() :].lstrip() if block else text


def listed(text: str) -> Any:
    """The list that a text holds in JSON or as Python prints it, or else the text.

    Raises:
      Unfit: it holds texts in brackets, but not in this form. Of an array that NumPy prints,
        without commas, Python would join the texts.
    """
    value = None
    errors = (ValueError, SyntaxError, RecursionError, MemoryError)
    with contextlib.suppress(*errors), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of escapes that Python does not know.
        value = None if re.search(r"['\"]\s+['\"]", text) else ast.literal_eval(text.strip())
    with contextlib.suppress(*errors):
        value = json.loads(text)
    if isinstance(value, list) and (not value or any(isinstance(v, (str, dict)) for v in value)):
        return value
    if _LIST.fullmatch(text.strip()):
        raise Unfit("holds a list that is neither JSON nor Python; save it as JSON")
    return text


def assistant_text(completion: Any, name: str = "completion") -> str:
    """What the assistant says in a completion, a text or chat messages; may be empty.

    Raises:
      ValueError: it is neither.
    """
    turns = _turns(completion, name, ASSISTANTS[0], attached=False)
    return "\n\n".join(text for role, text in turns if role in ASSISTANTS and text)


def given_text(value: Any, name: str, answers: Collection[str] | None = None) -> str:
    """A text, or all chat messages, with their roles unless all are the user's.

    What is not text, such as a picture, is shown as JSON, or by a digest.

    Raises:
      Unfit: it is neither; or `answers` are given, and it ends with another of the assistant's. A
        last message that is one of the answers is left out.
    """
    turns = _turns(value, name, _USERS[0], attached=True)
    if answers is not None and turns[-1][0] in ASSISTANTS and turns.pop()[1].strip() not in answers:
        raise Unfit(
            f"{name} ends with a message of the assistant that is not the answer; remove it, or "
            "name another field with --prompt_field"
        )
    turns = [(role, text) for role, text in turns if text]
    alone = all(role in _USERS for role, _ in turns)
    return "\n\n".join(text if alone else f"{role}: {text}" for role, text in turns)


def label(value: Any) -> str:
    """A value as JSON, or the digest of a long one."""
    text = json.dumps(value, sort_keys=True, default=repr, ensure_ascii=False)
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
    return text if len(text) <= _LONGEST else digest


def messages_of(value: Any) -> list[dict[str, Any]] | None:
    """The messages of a list, or of a text that holds such a list; None if there are none."""
    packed = isinstance(value, str)
    if packed:
        value = listed(value) if re.match(r"\s*\[\s*{", value) else None
    needed = {"role", "content"} if packed else set()
    parts = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    fits = all(isinstance(p, dict) and p.keys() & _PARTS and p.keys() >= needed for p in parts)
    return parts if parts and fits else None


def _turns(value: Any, name: str, role: str, *, attached: bool) -> list[tuple[str, str]]:
    """The role and the text of each message, or of each part of one; a text is one message."""
    messages = messages_of(value)
    if messages is None and isinstance(value, str):
        return [(role, value)]
    if messages is None:
        kinds = {dict: "an object", list: "a list", type(None): "null"}
        kind = kinds.get(type(value)) or repr(value)[:40]
        raise Unfit(f"expected a text in {name}, found {kind}")
    turns = []
    for message in messages:
        content = message.get("content", message.get("text"))
        texts = [text for _, text in _turns(content or "", name, role, attached=attached)]
        if attached and content is None and "role" not in message:
            texts = [label(message)]
        elif attached:
            texts += [label(message[key]) for key in _ATTACHED if message.get(key)]
        turns.append((message.get("role") or role, "\n\n".join(filter(None, texts))))
    return turns


def doubts(answers: Sequence[str], prompts: Sequence[Any]) -> list[str]:
    """Which answers may not be what a model said: how many, and an example of each kind.

    Errors and placeholders: they answer a twentieth of the prompts, and at least two. Lists, and
    log-likelihoods: they answer half of the prompts. Texts that recur: one of eight characters or
    more answers a fifth of the prompts, and at least five, while most other answers stand under
    one prompt alone. Where choices, labels or numbers are the answers, the others recur too.
    """
    many = len(set(prompts))
    places = collections.defaultdict(set)
    for text, prompt in zip(answers, prompts, strict=True):
        places[text.strip()].add(prompt)
    common = {t for t, at in places.items() if len(at) >= max(5, many / 5) and len(t) >= 8}
    others = [len(places[text.strip()]) == 1 for text in answers if text.strip() not in common]
    if 2 * sum(others) <= len(others) and len(places) > 1:
        common = set()
    errors = set(filter(_ERROR.match, places))
    kinds = {
        "look like errors or placeholders": (errors, min(many, max(2, many / 20))),
        "look like lists, each read as one answer": (
            set(filter(_LIST.fullmatch, places)),
            many / 2,
        ),
        "look like log-likelihoods": (set(filter(_LIKELIHOOD.fullmatch, places)), many / 2),
        "repeat a text that answers many prompts": (common - errors, 1),
    }
    lines = []
    for what, (texts, least) in kinds.items():
        counts = collections.Counter(text.strip() for text in answers if text.strip() in texts)
        if len(counts) and len(set().union(*(places[text] for text in counts))) >= least:
            count, example = counts.total(), counts.most_common(1)[0][0][:80]
            lines.append(f"{count:,} of {len(answers):,} {what}, for example {example!r}")
    return lines
