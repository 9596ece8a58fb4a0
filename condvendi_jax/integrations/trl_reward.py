"""A reward function for TRL and verl: what each completion adds to the diversity of its group."""

import collections
import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from condvendi_jax.base import checks
from condvendi_jax.data.kernels import Gaussian
from condvendi_jax.data.pairs import Pairs
from condvendi_jax.encoders import embedding
from condvendi_jax.inference import contributions
from condvendi_jax.inference.stopping import kernel_values
from condvendi_jax.records.answers import assistant_text
from condvendi_jax.records.cleaning import cleaned


class DiversityReward:
    """A reward function in the form of TRL: the influence of a completion on its group's score.

    A group is all completions of a prompt, and its score is their effective number. The reward is
    the derivative of the score in the weight of the completion (`contributions`): negative if it
    repeats others, of mean zero over a group. Use it beside a reward of quality. The score, at most
    `num_generations`, is logged as `different_completions`.

    Args:
      bandwidth: of the Gaussian kernel of the completions.
      num_generations: completions a prompt, as the trainer is told.
      order, encoder, clean: as of `answer_diversity`; embeddings are not kept.
      reward: 'influence', or 'new', the chance that no other counts as the same, prod (1 - k^2).

    Examples:
      >>> import numpy as np
      >>> class Length:
      ...     def encode(self, texts):
      ...         return np.array([[len(text)] for text in texts], np.float32)
      >>> reward = DiversityReward(bandwidth=0.1, num_generations=4, encoder=Length())
      >>> np.round(reward(prompts=["p"] * 4, completions=["a", "b", "c", "long"]), 2).tolist()
      [-0.64, -0.64, -0.64, 1.92]
    """

    __name__ = "DiversityReward"  # TRL calls the reward by it in its logs.

    def __init__(
        self,
        *,
        bandwidth: float,
        num_generations: int,
        order: float = 2,
        encoder: Any = None,
        clean: bool = True,
        reward: Literal["influence", "new"] = "influence",
    ) -> None:
        if reward not in ("influence", "new"):
            raise ValueError(f"reward: expected 'influence' or 'new', received {reward!r}.")
        self._clean, self._new = checks.check_flag(clean, name="clean"), reward == "new"
        self._kernel, self._order = Gaussian(bandwidth), checks.check_order(order)
        self._size = checks.check_count(num_generations, name="num_generations", minimum=2)
        self._encoder, self._warned = embedding.encoder_of("texts", encoder).encoder, False

    def __call__(
        self,
        *,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """The rewards `[n]` of n texts or conversations; None of one without text, or alone."""
        texts = ["" if c is None else assistant_text(c) for c in completions]
        texts = cleaned(texts, [None] * len(texts)).texts if self._clean else texts
        given = zip(prompts, *filter(None, map(columns.get, ("image", "images"))), strict=True)
        names = [json.dumps(prompt, sort_keys=True, default=_content) for prompt in given]
        part = next((n for n in collections.Counter(names).values() if n % self._size), None)
        if part and not self._warned:
            self._warned = True
            checks.warn(
                f"a prompt has {part} completions in this process, expected {self._size}: let "
                f"per_device_train_batch_size * steps_per_generation be a multiple of {self._size}."
            )
        unique = list(dict.fromkeys(filter(str.strip, texts)))
        outputs = np.asarray(self._encoder.encode(unique)) if unique else []
        embedded = dict(zip(unique, outputs, strict=True))
        rewards: list[float | None] = [None] * len(texts)
        for name in dict.fromkeys(names):
            rows = [r for r, text in enumerate(texts) if names[r] == name and text in embedded]
            if len(rows) < 2:
                continue
            points = Pairs(np.stack([embedded[texts[row]] for row in rows]), kernel=self._kernel)
            result = contributions(points, order=self._order)
            same = np.square(kernel_values(points.kernels[0], points.arrays[0]))
            new = np.prod(1 - np.where(np.eye(len(rows)), 0, same), axis=1)
            for row, value in zip(rows, new if self._new else result.influences.vendi, strict=True):
                rewards[row] = float(value)
            if log_metric is not None:
                log_metric("different_completions", float(result.decomposition.vendi))
        return rewards

    def compute_score(
        self, data_sources: Any, solution_strs: Any, extra_infos: Any, **others: Any
    ) -> list[float]:
        """For verl: 0 in place of None, and prompts by their source and `extra_info["index"]`."""
        if not all("index" in info for info in extra_infos):
            raise ValueError("extra_infos: expected an 'index' in each, the number of its prompt.")
        keys = zip(data_sources, [info["index"] for info in extra_infos], strict=True)
        return [reward or 0.0 for reward in self(prompts=[*keys], completions=solution_strs)]


def _content(part: Any) -> Any:
    array = np.asarray(part.convert("RGBA") if hasattr(part, "convert") else part)
    return array.shape, embedding.digest_of(array.tobytes())
