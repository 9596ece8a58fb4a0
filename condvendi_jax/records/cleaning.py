"""What stands around the answers of a model: reasoning, prompts, and marks that most share.

A block, a label or a token is found by what the answers have in common, not by a list of models.
"""

import collections
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from condvendi_jax.base.tables import listed
from condvendi_jax.records.answers import is_blank

_MOST = 0.5  # The share of answers that have a mark in common.
_ROUNDS = 6  # Marks may stand around marks.
_WITHIN = 80  # Characters before a prompt that an answer repeats.
_REASONS = "think|thought|reason|scratchpad|\\bcot\\b|deliberat|monolog|ponder"
_ANSWERS = "answer|response|output|completion|solution|result|final"
_ROLES = f"(?:final )?(?:{_ANSWERS}|assistant|model|bot|ai)"
# Elements of pages and drawings are a part of what a model writes.
_HTML = re.compile(
    "[abipqsu]|h[1-6r]|br|dl|em|li|ol|td|th|tr|ul|sub|sup|div|nav|pre|img|svg|html|head|body|code|"
    "main|math|form|font|span|text|title|table|small|strong|center|figure|section|article|header|"
    "iframe|canvas|script|style|details|summary|blockquote"
)
_START, _END = r"([<\[◁⟨【])", r"([>\]▷⟩】])"
_OPEN = re.compile(
    rf"\s*{_START}([^\W\d][^\s<>\[\]◁▷⟨⟩【】/|]{{0,30}})(\s[^<>\[\]]{{0,80}})?{_END}"
)
_LAST = re.compile(r"([<\[◁⟨【]/?[^\s<>\[\]◁▷⟨⟩【】|]{1,30}[>\]▷⟩】])\s*\Z")
# Tokens of chat templates, which decoding leaves out unless it is told to keep them.
_TOKEN = r"(?:<[|｜][^|｜<>\s]{1,40}[|｜]>|<(?:bos|eos|pad|unk|(?:end|start)_of_turn)>|\[/?INST\])"
_TOKENS = re.compile(_TOKEN)
_AROUND = re.compile(rf"\A\s*<s>\s*|(?:\s*(?:{_TOKEN}|</s>))+\s*\Z")
_ROLE = re.compile(rf"\s*{_ROLES}\s*[:\n]\s*", re.IGNORECASE)
_UNFINISHED = re.compile(rf"(?:analysis|(?:begin|start)\w*(?:{_REASONS}))\S*\Z", re.IGNORECASE)
_LABEL = re.compile(rf"\W*{_ROLES}\W{{0,3}}(?::|\n)\W{{0,4}}", re.IGNORECASE)
_REASONED = re.compile(  # Words in place of marks, as some templates write them.
    rf"analysis(?=[A-Z\W]).*?assistant\s*final|Thinking\.\.\..*?\.\.\.done thinking\.?"
    rf"|\W*(?:{_REASONS})\w*\W*?[:\n].*\n\W*(?:final )?(?:{_ANSWERS})\W{{0,3}}[:\n]\W{{0,4}}",
    re.DOTALL | re.IGNORECASE,
)
_BEFORE_END = re.compile(
    rf"\A.*(?:(?:\A|\n)[ \t]*[<\[◁]/(?:{_REASONS})\w*[>\]▷]"
    rf"|[<\[◁]/(?:{_REASONS})\w*[>\]▷](?=[ \t]*(?:\n|\Z)))",
    re.DOTALL | re.IGNORECASE,
)
_MIDDLE_END = re.compile(
    rf"\A(?:(?![<\[◁](?:{_REASONS})).)*[<\[◁]/(?:{_REASONS})\w*[>\]▷]", re.DOTALL | re.IGNORECASE
)
_ANSWER_BLOCK = re.compile(
    rf"[<\[◁]((?:{_ANSWERS})\w*)[>\]▷](.*)[<\[◁]/\1[>\]▷]\W*\Z", re.DOTALL | re.IGNORECASE
)


class Cleaned(NamedTuple):
    """Answers without what stands around them, and what was cut, with the number of answers.

    An answer is empty where nothing is left of it: a block of reasoning was not closed.
    """

    texts: list[str]
    cut: dict[str, int]

    def __str__(self) -> str:
        """What was cut from how many answers; '' if nothing."""
        words = [f"{what} from {count:,} answers" for what, count in self.cut.items()]
        return listed(words) if words else ""


def cleaned(answers: Sequence[str], prompts: Sequence[str | None]) -> Cleaned:
    """Cut from the answers of one model reasoning, their prompts, and marks that most share.

    Args:
      answers: texts.
      prompts: the prompt of each; None where it is not known, as of ids.
    """
    now = [text.rstrip() for text in answers]
    parts: dict[str, set[int]] = collections.defaultdict(set)
    for _ in range(_ROUNDS):
        before = now
        for step in (_without_reasoning, _without_tokens, _without_marks, _without_prompts):
            after, names = step(now, prompts)
            for row, (old, new) in enumerate(zip(now, after, strict=True)):
                if old != new:
                    parts[names[row]].add(row)
            now = after
        if now == before:
            break
    cut = {name: len(rows) for name, rows in parts.items()}
    return Cleaned([_outdented(text) for text in now], cut)


def _outdented(text: str) -> str:
    """A text without blank lines, or a single space, before it; the indent of code stays."""
    return re.sub(r"\A(?:[ \t]*\n)+|\A (?! )", "", text)


_Step = tuple[list[str], Sequence[str]]


def _without_reasoning(texts: list[str], _: Sequence[str | None]) -> _Step:
    """Blocks and words of reasoning at the start of any answer, which templates name so."""
    middles = _common(_MIDDLE_END.match(text) is not None for text in texts)

    def rest(text: str) -> str:
        mark = _OPEN.match(text)
        if mark and re.search(_REASONS, f"{mark[2]}{mark[3] or ''}", re.IGNORECASE):
            if close := _closing(mark).search(text, mark.end()):
                return text[close.end() :].lstrip()
            return "" if mark[1] in "<◁" else text
        end = _BEFORE_END.match(text) or _REASONED.match(text)
        end = end or (_MIDDLE_END.match(text) if middles else None)
        return text[end.end() :].lstrip() if end else text

    return [rest(text) for text in texts], ["reasoning"] * len(texts)


def _without_tokens(texts: list[str], _: Sequence[str | None]) -> _Step:
    """What follows the last token of a chat template, and is not one."""
    texts = [_AROUND.sub("", text) for text in texts]
    inside = _common(_TOKENS.search(text) is not None for text in texts)

    def rest(text: str) -> str:
        parts, tokens = _TOKENS.split(text), _TOKENS.findall(text)
        if not tokens or not (inside or is_blank(parts[0])):
            return text
        if _UNFINISHED.search((parts[-2] or tokens[-1]).strip("<|> \n")):
            return ""
        return _ROLE.sub("", parts[-1], count=1).lstrip()

    return list(map(rest, texts)), ["tokens of a template"] * len(texts)


def _without_marks(texts: list[str], _: Sequence[str | None]) -> _Step:
    """Marks, wrappers and labels at the start or end of most answers."""
    for find, name in (
        (_ANSWER_BLOCK.search, lambda hit: f"<{hit[1]}>"),
        (_OPEN.match, lambda hit: hit[0].strip()),
        (_LAST.search, lambda hit: hit[1]),
        (_LABEL.match, lambda hit: hit[0].strip()),
    ):
        hits = [find(text) for text in texts]
        names = [name(hit) if hit else "" for hit in hits]
        mark, count = collections.Counter(names).most_common(1)[0]
        if not mark or _HTML.fullmatch(_plain(mark)) or not _is_most(count, len(texts)):
            continue
        rests = [
            _inside(text, hit, find) if name == mark and hit else text
            for text, hit, name in zip(texts, hits, names, strict=True)
        ]
        if sum(map(is_blank, rests)) <= len(rests) / 10:
            return rests, [repr(mark)] * len(rests)
    return texts, [""] * len(texts)


def _inside(text: str, hit: re.Match[str], find: Callable[..., object]) -> str:
    """What is left of an answer with a mark: the inside of a wrapper, or what follows a block."""
    if find == _ANSWER_BLOCK.search:
        return hit[2].strip()
    if find == _LAST.search:
        return text[: hit.start()].rstrip()
    close = _closing(hit).search(text, hit.end()) if find == _OPEN.match else None
    if close is None:
        return text[hit.end() :].lstrip()
    rest = text[close.end() :].strip()
    return rest if not is_blank(rest) else text[hit.end() : close.start()].strip()


def _closing(mark: re.Match[str]) -> re.Pattern[str]:
    name = re.sub(r"\A(?:begin|start)(?:_of)?_", "", mark[2], flags=re.IGNORECASE)
    start, end = re.escape(mark[1]), re.escape(mark[4])
    return re.compile(rf"{start}\s*(?:/|end(?:_of)?_)\s*{re.escape(name)}\s*{end}", re.IGNORECASE)


def _plain(mark: str) -> str:
    return mark.strip("<[◁⟨【/>]▷⟩】 ").partition(" ")[0].casefold()


def _without_prompts(texts: list[str], prompts: Sequence[str | None]) -> _Step:
    """What follows the prompt where most answers, or this one word by word, begin with it."""

    def end(text: str, prompt: str | None) -> int:
        asked = (prompt or "").rpartition("\n\nuser: ")[2].strip()
        place = text.find(asked, 0, len(asked) + _WITHIN) if len(asked.split()) > 1 else -1
        return -1 if place < 0 or len(asked) <= place else place + len(asked)

    ends = [end(text, prompt) for text, prompt in zip(texts, prompts, strict=True)]
    if not _common(place > 0 for place in ends):
        return texts, [""] * len(texts)
    rests = [t[place:].lstrip() if place > 0 else t for t, place in zip(texts, ends, strict=True)]
    return rests, ["the prompt"] * len(texts)


def _common(marked: Iterable[bool]) -> bool:
    several = list(marked)
    return _is_most(sum(several), len(several))


def _is_most(count: int, among: int) -> bool:
    return count >= 2 and count > _MOST * among
