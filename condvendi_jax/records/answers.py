"""Prompts and answers as texts: chat messages, reasoning, placeholders."""

import ast
import collections
import contextlib
import hashlib
import json
import re
import warnings
from collections.abc import Collection, Sequence
from typing import Any

ASSISTANTS = ("assistant", "model")
USERS = ("user", "human")
_SHAREGPT = {"human": "user", "gpt": "assistant", "chatgpt": "assistant"}
_PARTS = {"role", "content", "text", "type"}  # One of them is in every message, and in its parts.
CALLS, NO_CALL = "tool_calls", "(no calls)"  # Of a message, or of a run.
FAILED = "the request failed"
_ARGUMENTS = ("arguments", "input", "args", "parameters")
_BESIDE = "text|thinking|reasoning|result|refusal|image|audio|document"  # Blocks beside calls.
_ATTACHED = (CALLS, "function_call", "images", "files")  # Beside the content of a message.
_LONGEST = 1000  # Characters of JSON that are shown.
_ERROR = re.compile(
    r"\W*(none|null|nan|n/?a|undefined|(no|empty) (answer|response|output))\W*\Z"
    r"|\(?-\d+\.\d{2,}\b"  # A log-likelihood.
    r"|\W*([\w.]*error( code)? ?([:(\]!]|\d{3})|traceback \(most|rate limit|too many requests"
    r"|(request|connection) timed out|internal server error|service unavailable|http \d{3})",
    re.IGNORECASE,
)
SURROGATES = re.compile("[\ud800-\udfff]")  # Halves of pairs, and bytes that are not UTF-8.
_LIST = re.compile(r"\[\s*['\"].*['\"]\s*\]", re.DOTALL)


class Unfit(ValueError):
    """Why a record, or one of its answers, does not fit."""


def is_blank(text: str) -> bool:
    """Return True if a text has no visible character."""
    return not any(char.isprintable() and char != " " for char in text)


def checked(text: str, name: str) -> str:
    """Return a text, or raise `Unfit` if it is blank or not UTF-8."""
    if not text.isascii() and SURROGATES.search(text):
        raise Unfit(f"{name} holds bytes that are not UTF-8, or half a surrogate pair")
    if is_blank(text):
        raise Unfit(f"{name} is empty")
    return text


def listed(text: str) -> Any:
    """Return the list that a text holds in JSON or as Python prints it, or else the text.

    `Unfit` if it holds texts in brackets as NumPy prints them: Python would join them.
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
    """Return the assistant's text in a completion, which may be empty: messages, text or number."""
    if type(completion) in (int, float, bool) and completion == completion:
        return json.dumps(completion)
    turns = _turns(completion, name, ASSISTANTS[0], attached=False)
    return "\n\n".join(text for role, text in turns if role in ASSISTANTS and text)


def calls(value: Any, name: str) -> list[str]:
    """Return the tool calls in a list of calls or messages, each as `tool {"its": "arguments"}`."""
    value = [value] if isinstance(value, dict) and "role" in value else value
    if not isinstance(value, list):
        raise Unfit(f"expected a list of tool calls or messages in {name}, received {value!r:.40}")
    lines = []
    for one in value:
        one = one if isinstance(one, dict) else {"name": one}
        if one.get("role") in ASSISTANTS:
            parts = one.get("parts", one.get("content"))  # Of Gemini, and of others.
            parts = parts if isinstance(parts, list) else []
            parts = [part for part in [one.get("function_call"), *parts] if isinstance(part, dict)]
            lines += calls(one.get(CALLS) or [], name) + calls(parts, name)
        elif not ({"role", "text"} & {*one} or re.search(_BESIDE, str(one.get("type")))):
            inner = (one.get(key) for key in ("function", "functionCall"))
            one = next((call for call in inner if isinstance(call, dict)), one)
            tool = one.get("name", one.get("function"))
            args = next((one[key] for key in _ARGUMENTS if one.get(key) is not None), None)
            with contextlib.suppress(ValueError, RecursionError):
                args = json.loads(args) if isinstance(args, str) and args else args or {}
            if not (isinstance(tool, str) and tool.strip() and isinstance(args, dict)):
                raise Unfit(f"expected a name and JSON arguments in {name}, received {one!r:.80}")
            lines.append(f"{' '.join(tool.split())} {label(args, 10**9)}".removesuffix(" {}"))
    return lines


def given_text(value: Any, name: str, answers: Collection[str] | None = None) -> str:
    """Return a text, or the text of all chat messages, with roles unless all are the user's.

    Other content, such as a picture, is shown as JSON, or by a digest. A last message that is one
    of the `answers`, if they are given, is left out, and another of the assistant's is `Unfit`.
    """
    turns = _turns(value, name, USERS[0], attached=True)
    if answers is not None and turns[-1][0] in ASSISTANTS and turns.pop()[1].strip() not in answers:
        words = f"{name} ends with a message of the assistant that is not the answer"
        raise Unfit(f"{words}; remove it, or name another field with --prompt_field")
    turns = [(role, text) for role, text in turns if text]
    alone = all(role in USERS for role, _ in turns)
    return "\n\n".join(text if alone else f"{role}: {text}" for role, text in turns)


def holds_text(value: Any) -> bool:
    """Return True for a text, chat messages, or a list of texts or of such lists."""
    if isinstance(value, list) and value and not messages_of(value):
        return holds_text(value[0])
    return isinstance(value, str) or bool(messages_of(value))


def label(value: Any, longest: int = _LONGEST) -> str:
    """Return a value as JSON, or the digest of a long one."""
    text = json.dumps(value, sort_keys=True, default=repr, ensure_ascii=False)
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
    return text if len(text) <= longest else digest


def messages_of(value: Any) -> list[dict[str, Any]] | None:
    """Return the messages of a list, or of a text that holds such a list, or else None."""
    packed = isinstance(value, str)
    if packed and not re.match(r"\s*\[\s*{", value):
        return None
    value = listed(value) if packed else value
    needed = {"role", "content"} if packed else set()
    parts = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    for role, said in (("from", "value"), ("role", "prompt")):  # Of ShareGPT, of OpenCompass.
        if parts and all(isinstance(p, dict) and {role, said} <= p.keys() for p in parts):
            roles = (str(p[role]).lower() for p in parts)
            named = zip((_SHAREGPT.get(r, r) for r in roles), parts, strict=True)
            parts = [{"role": name, "content": part[said]} for name, part in named]
    fits = all(isinstance(p, dict) and p.keys() & _PARTS and p.keys() >= needed for p in parts)
    return parts if parts and fits else None


def _turns(value: Any, name: str, role: str, *, attached: bool) -> list[tuple[str, str]]:
    if (messages := messages_of(value)) is None and isinstance(value, str):
        return [(role, value)]
    if messages is None:
        kinds = {dict: "an object; name a field in it as A.B", list: "a list", type(None): "null"}
        kind = kinds.get(type(value)) or repr(value)[:40]
        raise Unfit(f"expected a text in {name}, received {kind}")
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


def doubted(answers: Sequence[str], prompts: Sequence[Any]) -> dict[str, tuple[int, str]]:
    """Return the number of answers of each kind that may not be a model's, and an example.

    Errors and placeholders are reported if they answer a twentieth of the prompts and at least two;
    lists, if they answer half of the prompts; and texts that are `recurring`.
    """
    many, counts = len(set(prompts)), collections.Counter(map(str.strip, answers))
    places = _places(answers, prompts)
    errors, kinds = set(filter(_ERROR.match, places)), {}
    for what, texts, least in (
        ("are empty, or hold reasoning without an answer", {""} & places.keys(), 1),
        ("look like errors, placeholders or log-likelihoods", errors, min(many, max(2, many / 20))),
        ("look like lists, each read as one answer", filter(_LIST.fullmatch, places), many / 2),
        ("repeat a text that answers many prompts", recurring(answers, prompts) - errors, 1),
    ):
        chosen = sorted(texts, key=lambda text: (counts[text], text))
        if chosen and len(set().union(*map(places.__getitem__, chosen))) >= least:
            kinds[what] = sum(map(counts.__getitem__, chosen)), chosen[-1]
    return kinds


def doubts(answers: Sequence[str], prompts: Sequence[Any]) -> list[str]:
    """Return a line for each kind of answers that are `doubted`, with number and example."""
    kinds, total = doubted(answers, prompts).items(), len(answers)
    return [f"{n:,} of {total:,} {what}, for example {one[:80]!r}" for what, (n, one) in kinds]


def recurring(answers: Sequence[str], prompts: Sequence[Any]) -> set[str]:
    """Return the texts that answer a fifth of the prompts, and at least five, as refusals do.

    They have eight characters or more. None where others recur too, as choices, labels and numbers
    do: the median one may stand under one prompt or, where others are most answers, under a quarter
    of the prompts of any of these texts.
    """
    places, least = _places(answers, prompts), max(5, len(set(prompts)) / 5)
    common = {t for t, at in places.items() if len(at) >= least and len(t) >= 8}
    others = sorted(len(places[text]) for text in map(str.strip, answers) if text not in common)
    most = min((len(places[text]) for text in common), default=0) / 4
    most = most if 2 * len(others) > len(answers) else 1
    return common if len(places) == 1 or (others and others[len(others) // 2] <= most) else set()


def _places(answers: Sequence[str], prompts: Sequence[Any]) -> dict[str, set[Any]]:
    places = collections.defaultdict(set)
    for text, prompt in zip(answers, prompts, strict=True):
        places[text.strip()].add(prompt)
    return places
