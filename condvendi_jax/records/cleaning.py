"""What stands around the answers of a model: reasoning, prompts, and marks that most share.

A block, a label or a token is found by what the answers have in common, not by a list of models.
"""

import collections
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from condvendi_jax.base.tables import listed
from condvendi_jax.records.answers import is_blank

_ROUNDS = 6  # Marks may stand around marks.
_WITHIN = 80  # Characters of an end.
_BEFORE = 400  # Characters of a template before a prompt that an answer repeats.
_REASONS = r"think|thought|reason|scratchpad|\bcot\b|deliberat|monolog|ponder"
_ANSWERS = "answer|response|output|completion|solution|result|final"
_ROLES = f"(?:final )?(?:{_ANSWERS}|assistant|model|bot|ai)"
_FLAGS = re.DOTALL | re.IGNORECASE
_HTML = re.compile(  # Elements of pages and drawings are a part of what a model writes.
    "!doctype|[abipqsu]|h[1-6r]|br|dl|em|li|ol|td|th|tr|ul|sub|sup|div|nav|pre|img|svg|html|head|"
    "body|code|main|math|form|font|span|text|title|table|small|strong|center|figure|section|article|header|"
    "iframe|canvas|script|style|details|summary|blockquote"
)
_START, _END, _NAME = r"([<\[◁⟨【])", r"([>\]▷⟩】])", r"[^\s<>\[\]◁▷⟨⟩【】/|]{1,30}"
_OPEN = re.compile(rf"\s*{_START}(?!\d)({_NAME})(\s[^<>\[\]]{{0,80}})?{_END}")
_LAST = re.compile(rf"({_START}/?{_NAME}{_END}|\n\W{{2,}}[^\W\d]\w{{0,20}}\W*)\s*\Z")
_LABEL = re.compile(rf"\W*{_ROLES}\W{{0,3}}(?::|\n)\W{{0,4}}", re.IGNORECASE)
_ANSWER = re.compile(
    rf"[<\[◁]((?:{_ANSWERS})\w*)[>\]▷](.*)[<\[◁]/\1[>\]▷]\W{{0,9}}\Z", _FLAGS
)  # Often after reasoning without a mark.
# Tokens of chat templates, which decoding leaves out unless it is told to keep them.
_TOKEN = r"<[|｜][^|｜<>\s]{1,40}[|｜]>|<(?:bos|eos|pad|unk|(?:end|start)_of_turn)>|\[/?INST\]"
_TOKENS = re.compile(_TOKEN)
_AROUND = re.compile(rf"\A\s*<s>\s*|(?:\s*(?:{_TOKEN}|</s>))+\s*\Z")
_ROLE = re.compile(rf"\A\s*{_ROLES}\s*[:\n]\s*", re.IGNORECASE)
_UNFINISHED = re.compile(rf"(?:analysis|(?:begin|start)\w*(?:{_REASONS}))\S*\Z", re.IGNORECASE)
_REASONED = re.compile(  # Words in place of marks, as some templates write them.
    r"analysis(?=[A-Z\W]).*?assistant\s*final|Thinking\.\.\..*?\.\.\.done thinking\.?", _FLAGS
)
_HEADED = re.compile(  # Headings that answers with reasons may have of their own.
    rf"\W*(?:{_REASONS})\w*\W*?[:\n].*\n\W*(?:final )?(?:{_ANSWERS})\W{{0,3}}[:\n]\W{{0,4}}", _FLAGS
)
_STRAY = re.compile(  # The end of reasoning whose start was a part of the prompt.
    rf"((?:\A|\n)[ \t]*)?[<\[◁]/(?:{_REASONS})\w*[>\]▷]([ \t]*(?:\n|\Z))?", re.IGNORECASE
)


class Cleaned(NamedTuple):
    """Answers without what stands around them, and what was cut from how many of them.

    An answer is empty where nothing is left: reasoning was not finished.
    """

    texts: list[str]
    cut: dict[str, int]

    def __str__(self) -> str:
        words = [f"{what} from {count:,} answers" for what, count in self.cut.items()]
        return listed(words) if words else ""


def cleaned(answers: Sequence[str], prompts: Sequence[str | None]) -> Cleaned:
    """Cut reasoning, repeated prompts, and marks that most share from the answers of one model.

    `prompts` has that of each answer, None where it is not known, as of ids.
    """
    now = [text.rstrip() for text in answers]
    rows: dict[str, set[int]] = collections.defaultdict(set)
    for _ in range(_ROUNDS):
        before = now
        for step in (_without_reasoning, _without_tokens, _without_marks, _without_prompts):
            after, what = step(now, prompts)
            if changed := {k for k, old in enumerate(now) if old != after[k]}:
                rows[what] |= changed
            now = after
        if now == before:
            break
    cut = {what: len(changed) for what, changed in rows.items()}
    # Blank lines and a single space before a text go; the indent of code stays.
    return Cleaned([re.sub(r"\A(?:[ \t]*\n)+|\A (?! )", "", text) for text in now], cut)


def _without_reasoning(texts: list[str], _: Sequence[str | None]) -> tuple[list[str], str]:
    """Blocks and words of reasoning at the start of any answer; of less certain ones, of most."""
    closed = [_closes(text) and bool(_STRAY.search(text)) for text in texts]
    common = _most(closed)
    headed = _most(_HEADED.match(text) is not None for text in texts)

    def rest(text: str, closed: bool) -> str:
        mark = _OPEN.match(text)
        page = mark and mark[2].casefold() != "details" and _HTML.fullmatch(mark[2].casefold())
        if mark and not page and re.search(_REASONS, f"{mark[2]}{mark[3] or ''}", re.IGNORECASE):
            if close := _closing(mark).search(text, mark.end()):
                return text[close.end() :].lstrip()
            return "" if mark[1] in "<◁" else text
        hits = _STRAY.finditer(text) if closed else ()
        ends = [hit for hit in hits if common or hit[1] is not None or hit[2]]
        opened = re.search(rf"[<\[◁](?:{_REASONS})", text[: ends[-1].start()]) if ends else None
        end = ends[-1] if ends and not opened else _REASONED.match(text)
        end = end or (_HEADED.match(text) if headed else None)
        return text[end.end() :].lstrip() if end else text

    return list(map(rest, texts, closed)), "reasoning"


def _without_tokens(texts: list[str], _: Sequence[str | None]) -> tuple[list[str], str]:
    """What follows the last token of a chat template, and is not one."""
    ends = ((text[-_WITHIN:], _AROUND.sub("", text[-_WITHIN:])) for text in texts)
    both = zip(texts, ends, strict=True)
    texts = [text if end == kept else text[:-_WITHIN] + kept for text, (end, kept) in both]
    held = [("<" in text or "INST]" in text) and bool(_TOKENS.search(text)) for text in texts]
    common = _most(held)

    def rest(text: str, held: bool) -> str:
        parts, tokens = (_TOKENS.split(text), _TOKENS.findall(text)) if held else ([], [])
        if not tokens or not (common or is_blank(parts[0])):
            return text
        unfinished = _UNFINISHED.search((parts[-2] or tokens[-1]).strip("<|> \n"))
        return "" if unfinished else _ROLE.sub("", parts[-1]).lstrip()

    return list(map(rest, texts, held)), "tokens of a template"


def _without_marks(texts: list[str], _: Sequence[str | None]) -> tuple[list[str], str]:
    """Marks and labels of most answers, unless others stand in their place, as `[Yes]`, `[No]`."""
    for pattern, find in (
        (_ANSWER, lambda text: _ANSWER.search(text) if _closes(text) else None),
        (_OPEN, _OPEN.match),
        (_LAST, lambda text: _LAST.search(text, max(0, len(text) - _WITHIN))),
        (_LABEL, _LABEL.match),
    ):
        hits = list(map(find, texts))
        name_of = r"<\1>" if pattern == _ANSWER else r"\g<0>"
        names = [hit.expand(name_of).strip() if hit else "" for hit in hits]
        mark, count = collections.Counter(names).most_common(1)[0]
        others = sum(name not in ("", mark) for name in names)
        page = _HTML.fullmatch(mark.strip("<[/>] ").partition(" ")[0].casefold())
        if not mark or page or others > count / 10:
            continue
        every = zip(texts, hits, names, strict=True)
        rests = [_inside(t, hit, pattern) if hit and n == mark else t for t, hit, n in every]
        if _most(name == mark for name in names) and sum(map(is_blank, rests)) <= count / 10:
            return rests, repr(mark)
    return texts, ""


def _inside(text: str, hit: re.Match[str], pattern: re.Pattern[str]) -> str:
    """What is left of an answer with a mark: the inside of a wrapper, or what follows a block."""
    if pattern == _ANSWER:
        return hit[2].strip()
    if pattern == _LAST:
        return text[: hit.start()].rstrip()
    close = _closing(hit).search(text, hit.end()) if pattern == _OPEN else None
    rest = text[close.end() if close else hit.end() :].strip()
    return text[hit.end() : close.start()].strip() if close and is_blank(rest) else rest


def _closes(text: str) -> bool:
    """Whether a text may hold the end of a block: patterns of it are searched for in few texts."""
    return "/" in text and any(mark in text for mark in ("</", "[/", "◁/"))


def _closing(mark: re.Match[str]) -> re.Pattern[str]:
    begun = re.match(r"(?:begin|start)(?:[_ ]of)?[_ ](.+)", mark[2] + (mark[3] or ""), _FLAGS)
    start, name, end = map(re.escape, (mark[1], begun[1] if begun else mark[2], mark[4]))
    return re.compile(rf"{start}\s*(?:/|end(?:[_ ]of)?[_ ])\s*{name}\s*{end}", re.IGNORECASE)


def _without_prompts(texts: list[str], prompts: Sequence[str | None]) -> tuple[list[str], str]:
    """What follows the prompt, where most answers begin with theirs, after words that all share."""
    asked, starts = [], []
    for text, prompt in zip(texts, prompts, strict=True):
        plain = (prompt or "").rpartition("\n\nuser: ")[2].strip().replace("\r\n", "\n")
        part = plain.replace("\n", "\r\n") if "\r\n" in text[: len(plain) + _BEFORE] else plain
        asked.append(part)
        starts.append(text.find(part, 0, len(part) + _BEFORE) if len(part.split()) > 1 else -1)
    heads = [t[:start] if start >= 0 else None for t, start in zip(texts, starts, strict=True)]
    ((head, _), *_) = collections.Counter(heads).most_common(1)
    if head is None or not _most(one == head for one in heads):
        return texts, ""
    every = zip(texts, heads, asked, strict=True)
    rests = [t[len(head) + len(part) :].lstrip() if h == head else t for t, h, part in every]
    return rests, "the prompt"


def _most(marked: Iterable[bool]) -> bool:
    """Whether more than half, and at least two, are marked."""
    return sum(several := [*marked]) > max(1, len(several) / 2)
