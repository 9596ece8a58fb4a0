"""Shapes that people have: what is taken as it is, and the lines that errors tell to run."""

import re

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from fake_encoders import Means
from oracles import gaussian_gram

import condvendi_jax as cv

PROMPTS, EACH = 5, 4
RNG = np.random.default_rng(0)
OUTPUTS = RNG.normal(size=(PROMPTS, EACH, 3)).astype(np.float32)
ASKED = RNG.normal(size=(PROMPTS, 2)).astype(np.float32)
NAMES = list("abcde")
ROWS, ASKED_BY_ROW = OUTPUTS.reshape(-1, 3), np.repeat(ASKED, EACH, axis=0)
KERNEL = cv.Gaussian(1.0)


def score(outputs, prompts=None):
    """Under `Indicator` where prompts are labels; without prompts RKE."""
    if prompts is None:
        return float(cv.rke(outputs, kernel=KERNEL))
    labels = np.ndim(prompts) == 1 and np.ndim(prompts[0]) == 0
    kernel = cv.Indicator() if labels else KERNEL
    return float(cv.conditional_rke(outputs, prompts, output_kernel=KERNEL, prompt_kernel=kernel))


def plain(outputs, prompts=None):
    """The same in float64 from the definition."""
    x = gaussian_gram(outputs, 1.0)
    if prompts is None:
        return 1 / np.mean(x**2)
    prompts = np.asarray(prompts)
    t = prompts[:, None] == prompts if prompts.ndim == 1 else gaussian_gram(prompts, 1.0)
    return np.sum(t**2) / np.sum((x * t) ** 2)


def series(rows):
    column = pd.Series([None] * len(rows), dtype=object)
    for row, vector in enumerate(rows):
        column[row] = vector
    return column


@pytest.mark.parametrize(
    ("outputs", "prompts"),
    [
        (OUTPUTS, ASKED),
        (jnp.asarray(OUTPUTS), ASKED),
        (OUTPUTS, ASKED_BY_ROW.reshape(PROMPTS, EACH, 2)),
        (list(OUTPUTS), list(ASKED)),
        (series(ROWS.tolist()), series(list(ASKED_BY_ROW))),
        (pd.DataFrame(ROWS), pd.DataFrame(ASKED_BY_ROW)),
        (xr.DataArray(OUTPUTS), xr.DataArray(ASKED)),
    ],
)
@pytest.mark.filterwarnings("ignore:.*float64 input is computed in float32")
def test_shapes_that_are_taken(outputs, prompts):
    assert score(outputs, prompts) == pytest.approx(plain(ROWS, ASKED_BY_ROW), rel=1e-5)


def test_models_of_several_shapes_are_compared():
    models = {"a": OUTPUTS, "b": 2 * ROWS, "c": list(OUTPUTS + 1)}
    names = {"a": NAMES, "b": np.repeat(NAMES, EACH), "c": NAMES}
    kernels = {"output_kernel": KERNEL, "prompt_kernel": cv.Indicator()}
    found = cv.compare(models, names, orders=[2], unbiased=False, **kernels)
    for name, rows in (("a", ROWS), ("b", 2 * ROWS), ("c", ROWS)):
        value = found.ranking("conditional", 2).values[name]
        assert value == pytest.approx(plain(rows, np.repeat(NAMES, EACH)), rel=1e-4)


def mended(outputs, prompts=None):
    """The lines that the error tells to run, each tried from the start: the scores that follow."""
    with pytest.raises((TypeError, ValueError)) as refused:
        score(outputs, prompts)
    lines, together = re.findall(r"`([^`]+)`", str(refused.value)), "then `" in str(refused.value)
    assert lines, refused.value
    found = []
    for each in ["\n".join(lines)] if together else lines:
        names = {"np": np, "outputs": outputs, "prompts": prompts}
        exec(each, names)
        found.append(score(names["outputs"], names["prompts"]))
    return found


BY_NAME = np.repeat(NAMES, EACH)
UNEVEN, COUNTS = [of[:k] for of, k in zip(OUTPUTS, (4, 2, 3, 4, 1), strict=True)], (4, 2, 3, 4, 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((ROWS, ASKED), [(ROWS, ASKED_BY_ROW)]),
        ((ROWS, NAMES), [(ROWS, BY_NAME)]),
        ((OUTPUTS, ASKED_BY_ROW), [(ROWS, ASKED_BY_ROW)]),
        ((OUTPUTS, BY_NAME.tolist()), [(ROWS, BY_NAME)]),
        ((ROWS[:, 0],), [(ROWS[:, :1],)]),
        ((ROWS, ASKED_BY_ROW[:, 0]), [(ROWS, ASKED_BY_ROW[:, :1])]),
        ((UNEVEN, ASKED), [(np.concatenate(UNEVEN), np.repeat(ASKED, COUNTS, axis=0))]),
        ((UNEVEN, NAMES), [(np.concatenate(UNEVEN), np.repeat(NAMES, COUNTS))]),
        (({"name": "a", "rows": ROWS, "label": BY_NAME},), [(ROWS,)]),
        ((xr.Dataset({"k": ("n", BY_NAME), "x": (("n", "d"), ROWS)}), BY_NAME), [(ROWS, BY_NAME)]),
    ],
)
def test_the_line_that_an_error_names_works(given, expected):
    found = mended(*given)
    assert found == pytest.approx([plain(*of) for of in expected], rel=1e-4)


@pytest.mark.parametrize("prompts", [np.zeros((7, 2)), np.zeros((40, 3))])
def test_no_line_is_named_where_none_is_known(prompts):
    with pytest.raises(ValueError, match="must pair up row by row") as refused:
        score(ROWS, prompts)
    assert "`" not in str(refused.value)
    with pytest.raises(ValueError, match="one or k for each prompt, received") as refused:
        score(OUTPUTS, prompts)
    assert "`" not in str(refused.value)


@pytest.mark.parametrize("empty", [None, float("nan"), "text"])
def test_entries_without_a_vector_are_named_by_row(empty):
    for column in (series([*ROWS[:3], empty, *ROWS[3:]]), [*ROWS[:3].tolist(), empty]):
        with pytest.raises(ValueError, match=rf"outputs: .* received {empty!r} in row 3: leave"):
            score(column)
    for column in (series([*ROWS[:3], ROWS[0, :2]]), [*ROWS[:3].tolist(), [1.0, 2.0]]):
        with pytest.raises(ValueError, match="outputs: .* received 3 in row 0, 2 in row 3"):
            score(column)


class OnADevice:
    """A tensor of a device, which NumPy cannot read."""

    requires_grad = False

    def __init__(self, values):
        self.values, self.dtype = values, values.dtype

    def __array__(self, *_, **__):
        raise TypeError("not in the memory of the host")

    def cpu(self):
        return self.values


def test_tensors_of_devices_are_copied_to_the_host():
    assert score(OnADevice(ROWS)) == pytest.approx(plain(ROWS), rel=1e-5)


def test_columns_of_a_hugging_face_data_set():
    datasets = pytest.importorskip("datasets")
    texts = [[f"{'a' * row} {'b' * k}" for k in range(EACH)] for row in range(PROMPTS)]
    by_prompt = {"x": OUTPUTS.tolist(), "t": ASKED.tolist(), "name": NAMES, "texts": texts}
    by_row = {"x": ROWS.tolist(), "t": ASKED_BY_ROW.tolist(), "name": BY_NAME.tolist()}
    for content in (by_prompt, by_row):
        data = datasets.Dataset.from_dict(content).with_format("numpy")
        assert score(data["x"], data["t"]) == pytest.approx(plain(ROWS, ASKED_BY_ROW), rel=1e-5)
        kernels = {"output_kernel": KERNEL, "prompt_kernel": cv.Indicator()}
        found = cv.conditional_rke(data["x"], data["name"], **kernels)
        assert found == pytest.approx(plain(ROWS, BY_NAME), rel=1e-5)
    assert mended(data) == pytest.approx([plain(ROWS)], rel=1e-4)
    data = datasets.Dataset.from_dict(by_prompt)  # Lists, of float64.
    options = {"encoder": Means(), "output_kernel": KERNEL, "orders": [2], "errors": False}
    found = cv.evaluate(data["texts"], data["name"], **options)
    assert str(found) == str(cv.evaluate(texts, NAMES, **options))
    flat = [text for of in texts for text in of]
    data = datasets.Dataset.from_dict({"texts": flat, "name": BY_NAME.tolist()})
    assert str(found) == str(cv.evaluate(data["texts"], data["name"], **options))
