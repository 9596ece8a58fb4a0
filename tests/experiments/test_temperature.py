"""The temperature study on stories whose plots, endings and perplexities are known."""

import math

import numpy as np
import pytest
import studies
from small import flags, widths, write, write_designers

from experiments.conditional_vendi import temperature
from experiments.conditional_vendi.temperature import Temperature
from experiments.data import PairedEmbeddings
from experiments.lab import knobs

pytestmark = pytest.mark.slow


def small(folder, seed):
    """Writes stories at three temperatures, with 1, 2 and 4 plots of each prompt; gives the flags.

    Outputs lie a unit or more apart, prompts ten. The stories that ended are those of one plot;
    those cut short have 4, 2 and 1 beginnings. A story has 10 tokens for each plot there is, and a
    perplexity of 2, 4 and 8.
    """
    designs, prompts = (1, 2, 4), 12
    designers = write_designers(folder, seed, prompts=prompts, designs=designs)
    each = math.lcm(*designs)
    plots = np.repeat(designs, prompts * each)
    plot = np.tile(np.arange(each), len(designs) * prompts) * plots // each
    outputs = np.load(folder / "x.npy")
    write(folder, models=np.repeat(["0.5", "1", "2"], prompts * each))
    files = designers + write(
        folder,
        truncated=np.concatenate(np.split(outputs, len(designs))[::-1]),
        finished=plot == 0,
        tokens=10 * plots,
        log_likelihood=-10 * plots * np.log(2 * plots),
    )
    return [*files, *widths(0.2, 2), *flags(scales="1,1.05", groups=5)]


PLOTS, PROMPTS = (1, 2, 4), 12

finished = studies.finished(Temperature)


def test_the_scores_are_the_known_numbers(finished):
    known = {"all": PLOTS, "finished": (1, 1, 1), "cut": PLOTS[::-1]}
    assert finished.found.model.values.tolist() == ["0.5", "1", "2"]
    assert (finished.found.groups == 5).all()
    for text, plots in known.items():
        for score in finished.found.score.values.tolist():
            kind = score.split("-")[0]
            expected = {"Conditional": plots, "Information": (PROMPTS,) * 3}.get(
                kind, [PROMPTS * count for count in plots]
            )
            values = finished.found.value.sel(text=text, score=score)
            np.testing.assert_allclose(values, [expected] * 2, rtol=1e-3, err_msg=f"{text} {score}")


def test_the_controls_are_the_known_numbers(finished):
    found = finished.found.sel(text="all", scale=1)
    expected = {"perplexity": [2, 4, 8], "finished": [1, 0.5, 0.25], "tokens": [10, 20, 40]}
    for control, values in expected.items():
        np.testing.assert_allclose(found.known.sel(control=control), values, rtol=1e-6)
    assert np.isnan(finished.found.known.sel(text="cut")).all()
    np.testing.assert_allclose(found.known_error, 0, atol=1e-6)
    ended = finished.found.sel(text="finished")
    assert (found.n == 48).all() and (ended.n == 12).all()
    np.testing.assert_allclose(ended.known.sel(control="finished"), 1)


def test_the_error_of_a_share_is_that_of_a_mean_over_prompts():
    generator = np.random.default_rng(0)
    share = generator.integers(0, 2, size=(40, 5)).mean(axis=1)
    ended = (np.arange(5) < 5 * share[:, None]).ravel()
    tokens = generator.integers(5, 50, size=200)
    likelihood = -generator.random(200) * tokens
    labels = {"prompt": np.repeat(np.arange(40), 5), "finished": ended}
    labels |= {"tokens": tokens, "log_likelihood": likelihood}
    pairs = PairedEmbeddings("x", np.zeros((200, 1)), np.zeros((200, 1)), "", labels=labels)
    values, errors = temperature.controls_of(pairs)
    perplexity = np.exp(-likelihood.sum() / tokens.sum())
    np.testing.assert_allclose(values, [perplexity, ended.mean(), tokens.mean()])
    of_prompts = [column.reshape(40, 5).mean(axis=1) for column in (ended, tokens)]
    np.testing.assert_allclose(errors[1:], np.std(of_prompts, axis=1, ddof=1) / np.sqrt(40))
    # To first order, that of a ratio of totals.
    rest = likelihood - tokens * likelihood.sum() / tokens.sum()
    spread = np.std(rest.reshape(40, 5).sum(axis=1), ddof=1) * np.sqrt(40) / tokens.sum()
    assert errors[0] == pytest.approx(values[0] * spread, rel=0.05)


def test_rows_are_balanced_by_prompt_and_the_first_are_kept():
    setting = np.array([0, 0, 0, 1, 1, 1, 0, 1])
    kind = np.array([0, 0, 1, 0, 0, 1, 0, 2])
    chosen = np.array([1, 1, 1, 0, 1, 0, 1, 1], bool)
    assert np.flatnonzero(knobs.balanced(setting, kind, chosen)).tolist() == [0, 4]
