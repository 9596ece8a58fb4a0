"""A monitor of a model in training: looks at its outputs, and an alarm when diversity fell."""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from condvendi_jax.base import checks, labelling, tables
from condvendi_jax.base.result import Figure, Result
from condvendi_jax.data import kernel_choice, shapes
from condvendi_jax.data.bandwidth import RuledBandwidth
from condvendi_jax.data.pairs import Labels, Pairs
from condvendi_jax.encoders import Encoder
from condvendi_jax.grams import grams_of
from condvendi_jax.inference.evaluations import Plan
from condvendi_jax.statistics import sequential, shrinkage

_LEAST, _LARGEST = 1e-12, 300.0  # Rounding of a similarity; a logarithm that can be drawn.
_squares = jax.jit(lambda points: jnp.square(grams_of(points)[0].dense().matrix))


class Look(NamedTuple):
    """One look: its number, the step of the training, and what it found.

    The score is the unbiased Conditional-RKE of these prompts, from low to high at 95% over other
    answers to them; `ratio` is the score over the baseline's; `evidence` is that of all looks so
    far that it fell; `alarm` is whether the evidence has reached its limit, now or before.
    """

    look: int
    step: int
    score: float
    low: float
    high: float
    ratio: float
    evidence: float
    alarm: bool


@dataclasses.dataclass(frozen=True, repr=False)
class Looks(Result):
    """The state of a run after its last look. Prints as a few lines."""

    level: float  # The largest probability of a false alarm, over all looks.
    tolerated: float  # The share of the baseline's score down to which there is no alarm.
    prompts: int
    bandwidth: RuledBandwidth  # Of the outputs.
    baseline: tuple[float, float, float]  # Its score, and the ends of its interval.
    bound: float  # The least true score of the baseline, times `tolerated`: evidence is below.
    limit: float  # The evidence at which there is an alarm, 2 / level.
    looks: tuple[Look, ...]

    @property
    def alarm(self) -> Look | None:
        """The look of the alarm; None without one."""
        return next((look for look in self.looks if look.alarm), None)

    def lines(self) -> list[dict[str, Any]]:
        """A line for each look, with the baseline's score and the limit."""
        also = {"baseline": self.baseline[0], "bound": self.bound, "limit": self.limit}
        return [{**look._asdict(), **also} for look in self.looks]

    def plot(self) -> Figure:
        """The score at each step, with the baseline, and the alarm."""
        from condvendi_jax.results import plots  # Matplotlib is slow to import.

        return plots.of_looks(self)

    def parts(self) -> list[str]:
        """The last look, the baseline and the evidence, and what is assumed."""
        last, first, (baseline, *ends) = self.looks[-1], self.alarm, self.baseline
        said = f"no alarm: no fall is shown, and only scores below {self.bound:.3g} can show one"
        if self.bound == 1:
            said = "no alarm is possible: the baseline's score may be the least one"
        if first is not None:
            below = "the baseline's" if self.tolerated == 1 else f"{self.tolerated:.0%} of it"
            said = f"ALARM at look {first.look:,} (step {first.step:,}): the score fell below "
            said += f"{below}; false alarms in at most {100 * self.level:.3g}% of runs"
        now = f"{last.ratio:.0%} of it" if np.isfinite(last.ratio) else "above it"
        return [
            f"look {last.look:,} (step {last.step:,}): Conditional-RKE of {self.prompts:,} prompts "
            f"{tables.with_interval(last.score, (last.low, last.high))}",
            f"baseline: {tables.with_interval(baseline, ends)}; now {now}",
            f"evidence of a fall: {last.evidence:.3g}, alarm from {self.limit:.3g}",
            said,
            "assumed: answers drawn independently, at the same settings in all looks; "
            "a rise raises no alarm",
            f"intervals: 95%, over other answers to these prompts; outputs: {self.bandwidth}",
        ]


class _Sample(NamedTuple):
    """The similarities of prompts, in the order of their names, and the error of their mean."""

    names: list[tuple[Any, str]]  # With their types.
    counts: np.ndarray  # Of the answers to each prompt, or of its batches.
    batched: bool
    similarities: np.ndarray
    error: float
    columns: int
    bandwidth: RuledBandwidth
    kernel: Any

    def scores(self) -> tuple[float, float, float]:
        """The score with its interval at 95%, over other answers to these prompts."""
        mean, fewest = np.mean(self.similarities), int(self.counts.min())
        pairs = len(self.names) * fewest * (fewest - 1) / 2
        ends = mean, *sequential.bounds(mean, self.error, pairs, 1.96)[::-1]
        score, low, high = (1 / float(end) if end > _LEAST else math.inf for end in ends)
        return score, low, high


class Monitor:
    """The baseline of a run and the looks so far, made by `monitor`.

    Pickle it with a checkpoint of the training: the looks then go on where they stopped.
    """

    def __init__(
        self, outputs: Any, prompts: Any, batches: Any, level: float, tolerated: float, *how: Any
    ):
        self._first = first = _sample(outputs, prompts, batches, None, *how)
        self._prompts, self._batches, self._encoder = prompts, batches, how[0]
        mean, pairs = np.mean(first.similarities), len(first.names) * (int(first.counts.min()) // 2)
        bound = min(float(sequential.upper_end(mean, pairs, level / 2)) / tolerated, 1.0)
        if bound == 1:
            unit = "batches" if first.batched else "answers"
            if mean < tolerated:
                needed = math.log(2 / level) / float(sequential.kl(mean, tolerated))
                least = 2 * math.floor(needed / len(first.names)) + 2
                cure = f"Pass at least {least:,} {unit} to each prompt."
            else:
                cure = f"More {unit} will not change this: the score is {1 / mean:.3g}."
            may = f"{tolerated:.0%} of the true score of this baseline may be 1, the least score"
            checks.warn(f"outputs: no look can raise an alarm, as {may}. {cure}")
        self._process = sequential.EProcess(first.similarities, first.error, bound)
        said = first.bandwidth, first.scores(), 1 / bound, 2 / level
        self._run = Looks(level, tolerated, len(first.names), *said, ())

    def look(
        self,
        outputs: ArrayLike | Labels,
        prompts: Labels | None = None,
        *,
        batches: Labels | None = None,
        step: int | None = None,
    ) -> Looks:
        """Looks at outputs of the model in training, and returns the state of the run.

        Args:
          outputs: as many for each prompt as in the baseline, drawn anew for every look.
          prompts: those of the baseline in any order; as they were passed to `monitor` where None.
          batches: needed if `monitor` received them; the same ones where they and prompts are None.
            With them, prompts may have other numbers of answers than in the baseline.
          step: of the training, for the text and the figure; the number of the look where None.

        Raises:
          TypeError, ValueError: as `monitor`, or other prompts or columns. It then stays as it was.
        """
        past, number = self._run.looks, len(self._run.looks) + 1
        step = number if step is None else checks.check_count(step, name="step", minimum=0)
        if prompts is None:
            prompts, batches = self._prompts, self._batches if batches is None else batches
        sample = _sample(outputs, prompts, batches, self._first, self._encoder, self._first.kernel)
        evidence = math.exp(min(float(self._process.update(sample.similarities)), _LARGEST))
        alarm = evidence >= self._run.limit or bool(past and past[-1].alarm)
        mean, first = np.mean(sample.similarities), np.mean(self._first.similarities)
        ratio = float(first / mean) if mean > _LEAST else math.inf if first > _LEAST else 1.0
        last = Look(number, step, *sample.scores(), ratio, evidence, alarm)
        self._run = dataclasses.replace(self._run, looks=(*past, last))
        return self._run


def _of_batches(pairs: Pairs, prompt: Any, batch: Any, sizes: Any) -> shrinkage.Components:
    """The components of each prompt, from batches, as similar as an answer of each on average.

    `prompt` is that of each batch, in order, and `batch` that of each row.
    """
    (sums, squares), most = np.zeros((2, prompt.size)), np.bincount(prompt[batch]).max()
    for number in range(prompt[-1] + 1):
        rows, others = np.flatnonzero(prompt[batch] == number), np.flatnonzero(prompt == number)
        share = np.zeros((most, others.size))
        share[: rows.size] = (batch[rows, None] == others) / sizes[others]
        array = pairs.arrays[0][np.resize(rows, most)]  # Of one shape: it is compiled once.
        similar = np.asarray(_squares(Pairs.trusted((array,), pairs.kernels[:1], n=most)))
        similar = share.T @ similar @ share
        np.fill_diagonal(similar, 0)
        sums[others], squares[others] = similar.sum(axis=1), np.sum(similar**2, axis=1)
    return shrinkage.of_sums(sums, squares, np.ones(prompt.size), prompt, prompt[-1] + 1)


def _sample(
    outputs: Any, prompts: Any, batches: Any, like: _Sample | None, encoder: Any, kernel: Any
) -> _Sample:
    """The similarities of outputs by prompt; prompts and columns are those of another sample."""
    if not shapes.are_labels(prompts):
        raise ValueError("prompts: expected a text or label for each output, or for each prompt.")
    names = labelling.typed(labelling.check_labels(prompts, len(prompts), name="prompts")[0])
    if like is not None and names != like.names:
        apart = tables.listed(sorted(repr(name) for name, _ in {*names} ^ {*like.names}))
        raise ValueError(f"prompts: expected those of the baseline; only one of both has {apart}.")
    batched = batches is not None
    if like is not None and batched != like.batched:
        raise ValueError("batches: expected labels in `monitor` and in every look, or in none.")
    plan = Plan([2], None, None, True, None, 0, lambda _: None)
    pairs = plan.pairs({"": outputs}, prompts, encoder=encoder, output_kernel=kernel)[""].gathered()
    labels: Any = range(pairs.n)
    if batched:
        labels = labelling.check_labels(batches, pairs.n, name="batches")[1]
    ids: Any = np.stack([np.asarray(pairs.prompt_ids), labels])  # By the order of their names.
    (prompt, _), batch, sizes = np.unique(ids, axis=1, return_inverse=True, return_counts=True)
    counts = np.bincount(prompt)
    fewest, least = int(counts.min()), 2 if batched else shrinkage.FEWEST_ANSWERS
    if len(names) < 2 or fewest < least:
        unit = "batches of answers" if batched else "answers"
        received = f"{len(names):,} prompts, and {fewest} {unit} to {names[counts.argmin()][0]!r}."
        expected = f"expected at least {least} {unit} to each of at least 2 prompts"
        raise ValueError(f"outputs: {expected}, received {received}")
    labelled = pairs.kernels[0].compares_equality and shapes.are_labels(outputs)
    columns = 0 if labelled else pairs.arrays[0].shape[1]
    if like is not None and columns != like.columns:
        expected = f"outputs: expected {like.columns} columns, as the baseline has (labels: 0)"
        raise ValueError(f"{expected}, received {columns}.")
    if like is not None and not batched and np.any(counts != like.counts):
        other = int(np.argmax(counts != like.counts))
        raise ValueError(
            f"outputs: expected {like.counts[other]} answers to {names[other][0]!r}, as in the "
            f"baseline, received {counts[other]}. Other numbers need batches= in `monitor` and in "
            "every look: one label for answers that depend on each other, such as those of one "
            "request; a label for each answer if they are independent."
        )
    parts = _of_batches(pairs, prompt, batch.reshape(-1), sizes)
    similarities = np.clip(parts.similarity, 0, 1)
    error = float(np.std(similarities, ddof=1)) / math.sqrt(len(names))  # On average too large.
    if fewest >= shrinkage.FEWEST_ANSWERS:
        error = parts.error(np.full(len(names), 1 / len(names)))
    chosen = pairs.bandwidths["outputs"], pairs.kernels[0]
    return _Sample(names, counts, batched, similarities, error, columns, *chosen)


@checks.outside_transformations
def monitor(
    outputs: ArrayLike | Labels,
    prompts: Labels,
    *,
    batches: Labels | None = None,
    level: float = 0.05,
    tolerated: float = 1.0,
    encoder: Encoder | None = None,
    output_kernel: kernel_choice.KernelChoice = None,
) -> Monitor:
    """A monitor of the diversity of a model in training, from outputs of its start, the baseline.

    Every look adds evidence that Conditional-RKE of these prompts fell. Half of the level is the
    baseline's error, half that of an `EProcess` (`cv-alarms`): where the score did not fall, an
    alarm has a probability of at most `level`, however many looks there are, if answers or batches
    are independent, and no rule chose the bandwidth from the baseline. If a setting of all prompts,
    such as the temperature, varies between looks, alarms may come too often. A rise raises none.

    Args:
      outputs: as of `evaluate`; texts may be lists of the answers to each prompt. At least 4
        answers to each prompt; from 40 on, the error of the baseline hides less.
      prompts: a text or label for each row, `[n]`, or for each prompt.
      batches: a label for each answer, `[n]`, in their order, also where outputs are lists. Answers
        to one prompt of one label, such as those of one request, may depend on each other: their
        pairs do not count. At least 2 labels for each prompt.
      level: the largest probability of a false alarm, over all looks.
      tolerated: the share of the baseline's score down to which there is no alarm.
      encoder, output_kernel: as of `evaluate`. The bandwidth is the baseline's.

    Raises:
      TypeError, ValueError: as `evaluate`; too few prompts, answers or batches, or a wrong number.

    Examples:
      >>> import numpy as np
      >>> import condvendi_jax as cv
      >>> rng, prompts = np.random.default_rng(0), np.repeat(np.arange(20), 10)
      >>> watched = cv.monitor(rng.integers(8, size=200), prompts)
      >>> [bool(watched.look(rng.integers(of, size=200)).alarm) for of in (8, 8, 2)]
      [False, False, True]
    """
    level = checks.check_number(level, name="level", above=0, below=1)
    expected, above = "a share of the baseline's score, above 0 and up to 1", np.nextafter(1, 2)
    checks.check_number(tolerated, name="tolerated", above=0, below=above, expected=expected)
    return Monitor(outputs, prompts, batches, level, float(tolerated), encoder, output_kernel)
