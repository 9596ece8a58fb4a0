"""Sets whose number of modes, or whose order of diversity, is known; each split into two halves."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments import data
from experiments.calibration.judgements import Responses
from experiments.lab.models import rows_by_cell

# The questions: RKE; Conditional-RKE; and Conditional-RKE where prompts name what is counted.
TOTAL, OPEN, NAMED = "total", "conditional", "conditional, named"
# Sets in which every output of a prompt counts as one; in the others classes of outputs do.
EVERY = ("designs", "captioning", "language")
_WORDINGS = 4  # Of the prompts of types.
_MODES, _PROMPTS = 6, 6  # Of the mixtures: most outputs a prompt, and prompts.


class Question(NamedTuple):
    """What is asked of a set."""

    name: str  # That of its prompts; TOTAL for RKE of the outputs alone.
    levels: Sequence[Sequence[int]]  # The slots that each level scores together.
    truth: Sequence[float]  # The modes of each level, or its rank.
    counted: bool = True  # Whether these are modes.


class Half(NamedTuple):
    """Some rows of a set."""

    outputs: np.ndarray  # `[n, d]`.
    prompts: Mapping[str, np.ndarray]  # By name.
    slot: np.ndarray  # Which output of its prompt, type, temperature or third each row is.
    classes: np.ndarray | None = None  # Where people would call others of its class the same.


KnownSet = tuple[tuple[Half, ...], tuple[Question, ...]]  # Two halves, and what is asked of them.


def _numbered(labels: np.ndarray) -> np.ndarray:
    return np.unique(labels, return_inverse=True)[1].reshape(-1)


def _grouped(group, slot, rng):
    """The rows `[groups, slots, k]` of the groups with rows in every slot, all in random order."""
    return rng.permutation(rows_by_cell(group, slot, rng.uniform(size=len(group))))


def _halves(pairs, rows, most, prompt_rows=None):
    """The rows `[groups, slots, k]`, every second group in a half, at most so many rows in each."""
    groups, slots, k = rows.shape
    k = max(1, min(k, most * 2 // (groups * slots)))
    kept = max(1, min(groups // 2, most // (slots * k)))
    found = []
    for part in range(2):
        chosen = np.arange(part, 2 * kept, 2)
        some = rows[chosen, :, :k].ravel()
        prompts = some if prompt_rows is None else np.repeat(prompt_rows[chosen], slots * k)
        slot = np.tile(np.repeat(np.arange(slots), k), kept)
        found.append(Half(pairs.outputs[some], {OPEN: pairs.prompts[prompts]}, slot))
    return tuple(found)


def _designs(name, ks, of, rng, most):
    """Prompts with k = 1, 2, ... different outputs, those of `of` in the same order for all."""
    pairs = data.load(name)
    slot = rng.permutation(len(np.unique(pairs.labels[of])))[_numbered(pairs.labels[of])]
    rows = _grouped(pairs.prompt_numbers, slot, rng)[:, : max(ks), :1]
    return _halves(pairs, rows, most), (Question(OPEN, [range(k) for k in ks], ks),)


def _ordered(name, group, levels, rng, most):
    """Outputs of the same prompts, more diverse from one model to the next."""
    pairs = data.load(name)
    rows = _grouped(_numbered(pairs.labels[group]), _numbered(pairs.labels["models"]), rng)
    ranks = range(1, levels + 1)
    question = Question(OPEN, [(slot,) for slot in range(levels)], ranks, counted=False)
    # One wording of the prompt of each group: its first.
    return _halves(pairs, rows, most, rows[:, 0, 0]), (question,)


def _types(name, rng, most):
    """Pictures of j types, with prompts that leave the type open and prompts that name it."""
    pairs = data.load(name)
    types, wording = _numbered(pairs.labels["types"]), _numbered(pairs.labels["wording"])
    count = types.max() + 1
    types = rng.permutation(count)[types]
    each = min(np.bincount(types).min() // 2, most // count)
    worded = rows_by_cell(wording, types)[:_WORDINGS, :, 0].T
    drawn = [rng.permutation(np.flatnonzero(types == t)) for t in range(count)]
    slot = np.repeat(np.arange(count), each)
    said = worded[slot, np.arange(len(slot)) % each % _WORDINGS]
    prompts = {OPEN: pairs.prompts[said], NAMED: pairs.further["typed_prompts"][said]}
    parts = ([of[first : first + each] for of in drawn] for first in (0, each))
    halves = tuple(Half(pairs.outputs[np.concatenate(of)], prompts, slot, slot) for of in parts)
    js = (1, 2, 4, 6, 8, 10)
    truths = {TOTAL: js, OPEN: js, NAMED: (1,) * len(js)}
    levels = [range(j) for j in js]
    return halves, tuple(Question(of, levels, truth) for of, truth in truths.items())


def _mixture(dimensions, spread, rng, most):
    """Six prompts with k = 1 ... 6 modes of outputs each, all at distances of 1 or about sqrt(2).

    Rows differ from their centre by a normal vector of expected squared norm `spread`^2.
    """
    slot, prompt = np.divmod(np.arange(_MODES * _PROMPTS), _PROMPTS)
    slot, prompt = (np.repeat(of, most // len(slot)) for of in (slot, prompt))
    centres = rng.normal(size=(_MODES * _PROMPTS, dimensions))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    if dimensions == 2:
        centres = np.stack(np.divmod(rng.permutation(len(centres)), _MODES), axis=1)

    def draw(mode: np.ndarray) -> np.ndarray:
        noise = rng.normal(scale=spread / np.sqrt(dimensions), size=(len(mode), dimensions))
        return (centres[mode] + noise).astype(np.float32)

    modes = slot * _PROMPTS + prompt
    halves = tuple(Half(draw(modes), {OPEN: draw(prompt)}, slot, modes) for _ in range(2))
    ks = range(1, _MODES + 1)
    levels = [range(k) for k in ks]
    total = Question(TOTAL, levels, [_PROMPTS * k for k in ks])
    return halves, (total, Question(OPEN, levels, ks))


def _human(rng, most):
    """Sets of responses in three thirds of each task, by what people say of their diversity."""
    pairs = data.load("human")
    responses = Responses.of(pairs)
    of_task = pd.Series(responses.labels["people"]).groupby(responses.task)
    third = 3 * (of_task.rank(method="first").astype(int) - 1) // of_task.transform("size")
    contexts = rng.permutation(responses.context.max() + 1)
    found = []
    for part in range(2):
        chosen, slot = [], []
        for context in contexts[part::2]:
            for one in np.flatnonzero(responses.context == context):
                chosen.append(responses.members[one])
                slot += [third[one]] * len(chosen[-1])
            if len(slot) > most:
                break
        rows = np.concatenate(chosen)
        found.append(Half(pairs.outputs[rows], {OPEN: pairs.prompts[rows]}, np.array(slot)))
    question = Question(OPEN, [(0,), (1,), (2,)], (1, 2, 3), counted=False)
    return tuple(found), (question,)


SETS: dict[str, Callable[[np.random.Generator, int], KnownSet]] = {
    "designs": partial(_designs, "emoji", range(1, 10), "models"),
    "captioning": partial(_designs, "captioning", range(1, 6), "caption"),
    "language": partial(_designs, "language", (1, 2, 4, 8, 16), "models"),
    **{name: partial(_types, name) for name in ("dogs", "fruits", "clothing", "sketched_animals")},
    "plane": partial(_mixture, 2, 0.15),
    "mixture": partial(_mixture, 64, 0.4),
    "quickdraw": partial(_ordered, "quickdraw", "types", 6),
    "sketches": partial(_ordered, "sketches", "types", 7),
    "stories": partial(_ordered, "stories", "prompt", 4),
    "human": _human,
}
