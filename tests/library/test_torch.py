"""Tensors of PyTorch: as arguments, in a metric of torchmetrics, and the authors' call."""

import copy
import importlib
import pathlib
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from oracles import cosine_gram, draw_pairs, entropy, gaussian_gram

import condvendi_jax as cv
from condvendi_jax.base import checks

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

    def both(verb, arrays, **others):
        """With arrays of NumPy, and with tensors."""
        given = (arrays, {name: torch.tensor(array) for name, array in arrays.items()})
        one, two = (str(verb(**of, **others)) for of in given)
        assert one == two

    both(cv.evaluate, {"outputs": X, "prompts": T}, **KERNELS, **options)
    kernel = {"output_kernel": KERNELS["output_kernel"]}
    weights = {"weights": np.arange(60), "prompt_ids": names}
    both(cv.evaluate, {"outputs": X, "prompts": names, **weights}, **kernel, **options)
    both(cv.evaluate, {"outputs": X, "groups": names}, **kernel, orders=[2])
    both(cv.evaluate, {"outputs": names}, **options)
    both(cv.decompose, {"outputs": X, "prompts": T}, **KERNELS)
    models = {"a": X.reshape(10, 6, -1), "b": X[::-1].reshape(10, 6, -1).copy()}
    tensors = {name: torch.tensor(array) for name, array in models.items()}
    found = cv.compare(tensors, torch.arange(10), orders=[2], **kernel)
    assert str(found) == str(cv.compare(models, np.arange(10), orders=[2], **kernel))


def test_the_memory_of_the_host_is_not_copied():
    array = checks.as_array(TENSORS[0], name="outputs")
    assert np.shares_memory(array, TENSORS[0].numpy())


def test_bfloat16_and_lists_of_tensors():
    low = [tensor.bfloat16() for tensor in TENSORS]
    expected = cv.conditional_rke(*(tensor.float().numpy() for tensor in low), **KERNELS)
    assert cv.conditional_rke(*low, **KERNELS) == expected
    assert cv.conditional_rke(list(low[0]), list(low[1]), **KERNELS) == expected


def test_a_gradient_is_lost_with_a_word():
    x = TENSORS[0].clone().requires_grad_()
    with pytest.warns(UserWarning, match="outputs: the tensor requires .* detached") as warned:
        found = cv.conditional_rke(x, TENSORS[1], **KERNELS)
    assert len(warned) == 1 and warned[0].filename == __file__
    assert found == cv.conditional_rke(X, T, **KERNELS)


def test_tensors_without_numbers_are_refused_by_name():
    for tensor in (torch.empty(3, 2, device="meta"), torch.eye(3).to_sparse()):
        with pytest.raises(TypeError, match="outputs: expected an array .* received Tensor"):
            cv.rke(tensor, kernel=cv.Gaussian(1.0))


def test_hugging_face_columns_of_tensors():
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"x": X.tolist(), "t": T.tolist()}).with_format("torch")
    expected = float(cv.conditional_rke(X, T, **KERNELS))
    assert float(cv.conditional_rke(data["x"], data["t"], **KERNELS)) == pytest.approx(expected)


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


PROCESS = """
import sys, warnings
import numpy as np, torch
warnings.simplefilter("ignore")
from condvendi_jax.integrations.torch import ConditionalDiversity
rank, folder = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
)
x, t = (torch.tensor(np.load(f"{folder}/{name}.npy")) for name in "xt")
metric = ConditionalDiversity(output_kernel=0.8, prompt_kernel=1.2)
for rows in ([slice(0, 7), slice(7, 41)], [slice(41, 60)])[rank]:
    metric.update(x[rows], t[rows])
scores = {name: float(of) for name, of in metric.compute().items()}
metric.reset()  # Now the second process has no row.
metric.update(x, t, torch.full((60,), rank == 0))
print([scores, {name: float(of) for name, of in metric.compute().items()}])
"""


@pytest.mark.slow
def test_two_processes_of_unequal_numbers_of_rows(tmp_path):
    pytest.importorskip("torchmetrics")
    for name, array in (("x", X), ("t", T)):
        np.save(tmp_path / f"{name}.npy", array)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(rank), str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=pathlib.Path(cv.__file__).parents[1],
        )
        for rank in range(2)
    ]
    for process in started:
        printed = process.communicate(timeout=300)[0]
        assert process.returncode == 0
        for scores in eval(printed.splitlines()[-1]):
            assert scores == unbiased(outputs=X, prompts=T)


@pytest.mark.slow
@pytest.mark.parametrize("top_k", [None, 5])
@pytest.mark.parametrize("kernel", ["gaussian", "cosine"])
@pytest.mark.parametrize("order", [1, 1.5, 2, "inf"])
def test_the_authors_call_gives_five_entropies(ours, order, kernel, top_k):
    grams = [gaussian_gram(*of) for of in zip((X, T), WIDTHS, strict=True)]
    if kernel == "cosine":
        grams = [cosine_gram(X), cosine_gram(T)]
    number = np.inf if order == "inf" else order
    x, t, joint = (
        entropy(gram, order=number, truncation=top_k) for gram in (*grams, grams[0] * grams[1])
    )
    evaluation = ours.ConditionalEvaluation(WIDTHS)
    found = evaluation.conditional_entropy(*TENSORS, order, kernel=kernel, top_k=top_k)
    assert all(isinstance(value, torch.Tensor) for value in found)
    five = [float(of) for of in (joint - t, x + t - joint, joint, x, t)]
    assert [float(of) for of in found] == pytest.approx(five, rel=1e-3, abs=1e-4)


@pytest.mark.slow
def test_arguments_of_the_authors_call(ours):
    expected = ours.ConditionalEvaluation((1.0, 1.0)).conditional_entropy(X, T, 2)
    for sigma in (1, np.float32(1), torch.tensor(1.0), [1.0, 1.0], np.ones(2), torch.ones(2)):
        found = ours.ConditionalEvaluation(sigma).conditional_entropy(*TENSORS, order=2)
        assert found == expected
    evaluation = ours.ConditionalEvaluation((1.0, 1.0))
    for algorithm in ("rff", "nystroem", "random_projection"):
        with pytest.raises(TypeError, match="'algorithm, feature_dim'.*cv.Auto.*cv.MatrixFree"):
            evaluation.conditional_entropy(X, T, 2, algorithm=algorithm, feature_dim=9)
    with pytest.raises(TypeError, match="received 'rbf'; expected top_k and kernel='gaussian'"):
        evaluation.conditional_entropy(X, T, 2, kernel="rbf")
    with pytest.raises(ValueError, match="bandwidth"):
        ours.ConditionalEvaluation(0)


def test_without_torchmetrics_the_extra_is_named(tmp_path):
    """In a process where the packages cannot be found; the integrations can be imported."""
    program = """
import importlib.metadata, importlib.util, sys
find, version = importlib.util.find_spec, importlib.metadata.version
absent = ("torch", "torchmetrics")
importlib.util.find_spec = lambda name, *of: None if name in absent else find(name, *of)
def missing(name):
    if name in absent:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.metadata.version = missing
from condvendi_jax import integrations
from condvendi_jax.integrations import torch
for make in (lambda: torch.ConditionalDiversity(output_kernel=1.0),
             lambda: torch.ConditionalEvaluation(1.0)):
    try:
        make()
    except ValueError as error:
        print(error)
print("torch" in sys.modules, "torchmetrics" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    first, second, imported = done.stdout.splitlines()
    assert "ConditionalDiversity needs torchmetrics" in first
    assert "ConditionalEvaluation needs torch," in second
    assert "condvendi_jax[torch]" in first and imported == "False False"
