"""Tensors of PyTorch: as arguments, and in a metric of torchmetrics."""

import copy
import importlib
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from oracles import draw_pairs

import condvendi_jax as cv

torch = pytest.importorskip("torch")

WIDTHS = (0.8, 1.2)
KERNELS = {"output_kernel": cv.Gaussian(WIDTHS[0]), "prompt_kernel": cv.Gaussian(WIDTHS[1])}
X, T = draw_pairs(60, dtype=np.float32)
TENSORS = torch.tensor(X), torch.tensor(T)


@pytest.fixture(scope="module")
def ours():
    """The module, which imports torchmetrics, which takes seconds: all its tests are slow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of what it imports.
        pytest.importorskip("torchmetrics")
        return importlib.import_module("condvendi_jax.integrations.torch")


@pytest.mark.slow
def test_tensors_are_taken_everywhere():
    names, options = np.arange(60) // 6, {"orders": [2], "errors": False}
    kernel = {"output_kernel": KERNELS["output_kernel"]}
    weighted = {"prompts": names, "weights": np.arange(60), "prompt_ids": names}
    for verb, arrays, others in (
        (cv.evaluate, {"outputs": X, "prompts": T}, KERNELS | options),
        (cv.evaluate, {"outputs": X, **weighted}, kernel | options),
        (cv.evaluate, {"outputs": X, "groups": names}, kernel | {"orders": [2]}),
        (cv.evaluate, {"outputs": names}, options),
        (cv.decompose, {"outputs": X, "prompts": T}, KERNELS),
    ):
        tensors = {name: torch.tensor(array) for name, array in arrays.items()}
        assert str(verb(**tensors, **others)) == str(verb(**arrays, **others))
    models = {"a": X.reshape(10, 6, -1), "b": X[::-1].reshape(10, 6, -1).copy()}
    tensors = {name: torch.tensor(array) for name, array in models.items()}
    found = cv.compare(tensors, torch.arange(10), orders=[2], **kernel)
    assert str(found) == str(cv.compare(models, np.arange(10), orders=[2], **kernel))


def test_tensors_become_arrays_with_a_word_where_a_gradient_is_lost_or_there_are_no_numbers():
    low = [tensor.bfloat16() for tensor in TENSORS]
    expected = cv.conditional_rke(*(tensor.float().numpy() for tensor in low), **KERNELS)
    assert cv.conditional_rke(*low, **KERNELS) == expected
    assert cv.conditional_rke(list(low[0]), list(low[1]), **KERNELS) == expected
    x = TENSORS[0].clone().requires_grad_()
    with pytest.warns(UserWarning, match="outputs: the tensor requires .* detached") as warned:
        found = cv.conditional_rke(x, TENSORS[1], **KERNELS)
    assert len(warned) == 1 and warned[0].filename == __file__
    assert found == cv.conditional_rke(X, T, **KERNELS)
    for tensor in (torch.empty(3, 2, device="meta"), torch.eye(3).to_sparse()):
        with pytest.raises(TypeError, match="outputs: expected an array .* received Tensor"):
            cv.rke(tensor, kernel=cv.Gaussian(1.0))


def near(scores):
    return pytest.approx({name: float(of) for name, of in scores._asdict().items()}, rel=1e-5)


def unbiased(**arrays):
    return near(cv.evaluate(**arrays, orders=[2], errors=False, **KERNELS).order(2).unbiased)


def numbers(scores):
    assert all(isinstance(score, torch.Tensor) and score.ndim == 0 for score in scores.values())
    return {name: float(score) for name, score in scores.items()}


@pytest.fixture
def metric(ours):
    return ours.ConditionalDiversity(output_kernel=WIDTHS[0], prompt_kernel=cv.Gaussian(WIDTHS[1]))


@pytest.mark.slow
def test_batches_give_the_scores_of_all_rows(metric):
    expected = unbiased(outputs=X, prompts=T)
    # How torchmetrics joins the rows of several processes.
    assert {of.__name__ for of in metric._reductions.values()} == {"dim_zero_cat"}
    for rows in (slice(0, 10), slice(10, 13), slice(13, 60)):
        metric.update(*(tensor[rows].clone().requires_grad_() for tensor in TENSORS))
    assert numbers(metric.compute()) == expected
    for other in (pickle.loads(pickle.dumps(metric)), copy.deepcopy(metric)):
        assert numbers(other.compute()) == expected
    metric.reset()
    half = [tensor[:30] for tensor in TENSORS], [tensor[30:] for tensor in TENSORS]
    for part in half:
        arrays = {"outputs": part[0].numpy(), "prompts": part[1].numpy()}
        assert numbers(metric(*part)) == unbiased(**arrays)  # `forward`: of the batch.
    assert numbers(metric.compute()) == expected


@pytest.mark.slow
def test_a_masked_row_may_hold_anything(metric):
    padded = torch.cat([TENSORS[0], torch.full((4, 3), torch.nan)])
    prompts = torch.cat([TENSORS[1], TENSORS[1][:4]])
    for mask in (torch.arange(64) < 60, (torch.arange(64) < 60).long()):
        metric.reset()
        metric.update(padded, prompts, mask)
        metric.update(padded[60:], prompts[60:], torch.zeros(4, dtype=torch.bool))
        assert numbers(metric.compute()) == unbiased(outputs=X, prompts=T)
    with pytest.raises(ValueError, match="mask: expected 64 rows, received 60"):
        metric.update(padded, prompts, torch.ones(60, dtype=torch.bool))


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 2, float("inf")])
def test_orders_labels_and_outputs_alone(ours, order):
    names = torch.arange(60) // 6
    metric = ours.ConditionalDiversity(output_kernel=WIDTHS[0], order=order)
    metric.update(TENSORS[0], names)
    options = {"output_kernel": KERNELS["output_kernel"], "order": order, "unbiased": order == 2}
    found = cv.decompose(X, names.numpy(), **options).scores
    assert numbers(metric.compute()) == near(found)
    metric.reset()
    metric.update(TENSORS[0])
    found = cv.decompose(X, **options).scores
    assert numbers(metric.compute()) == near(found)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric")
def test_bad_arguments_of_the_metric_are_refused(ours, metric):
    with pytest.raises(ValueError, match="order"):
        ours.ConditionalDiversity(output_kernel=1.0, order=0)
    with pytest.raises(ValueError, match="bandwidth"):
        ours.ConditionalDiversity(output_kernel=-1.0)
    with pytest.raises(ValueError, match="No samples"):
        metric.compute()
    with pytest.raises(ValueError, match="prompts: expected 60 rows, received 50"):
        metric.update(TENSORS[0], TENSORS[1][:50])
    metric.update(X, T.tolist(), [True] * 60)
    with pytest.raises(ValueError, match="in every batch, or in none"):
        metric.update(TENSORS[0])


@pytest.mark.slow
def test_without_torchmetrics_the_extra_is_named(tmp_path):
    """In a process where the packages cannot be found; the integrations can be imported."""
    program = """
import sys
sys.modules["torchmetrics"] = None
from condvendi_jax import integrations
try:
    from condvendi_jax.integrations.torch import ConditionalDiversity
except ValueError as error:
    print(error)
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    words, imported = done.stdout.splitlines()
    assert "ConditionalDiversity needs torchmetrics" in words
    assert "pip install -e '.[torch]'" in words and imported == "False"
