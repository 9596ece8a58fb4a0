"""Labels are what they are: no common dtype of NumPy, and no mapping, makes two of them one."""

import jax.numpy as jnp
import numpy as np
import pytest

import condvendi_jax as cv
from condvendi_jax.base import checks, files
from condvendi_jax.base.labelling import check_labels
from condvendi_jax.inference import datasets

pytestmark = pytest.mark.filterwarnings("ignore:.* the Gram is numerically")

LISTS = {
    "hashes of 64 bits beside -1": ([2**63, 2**63 + 1, -1, 2**63], [1, 2, 0, 1]),
    "beyond 64 bits": ([2**64 + 1, 2**64, -(2**64)], [2, 1, 0]),
    "integers beside a float": ([2**53, 2**53 + 1, 0.5, 2**53], [1, 2, 0, 1]),
    "texts that end in NUL": (["q", "q\0", "q\0\0", "q"], [0, 1, 2, 0]),
    "one in three types": ([1, True, 1.0, np.int8(1), np.float32(1), np.True_], [2, 0, 1, 2, 1, 0]),
}


@pytest.mark.parametrize("name", LISTS)
def test_different_labels_of_a_list_stay_apart(name):
    labels, numbers = LISTS[name]
    distinct, received = check_labels(labels, len(labels))
    assert received.tolist() == numbers and len(distinct) == max(numbers) + 1
    assert check_labels(np.array(labels, object), len(labels))[1].tolist() == numbers
    outputs = np.arange(len(labels))
    kernels = {"output_kernel": cv.Indicator(), "prompt_kernel": cv.Indicator()}
    given = cv.Pairs(outputs, outputs[:, None], prompt_ids=labels, groups=labels, **kernels)
    assert given.prompt_kinds[0] == given.groups.max() + 1 == len(distinct)
    if all(not isinstance(label, (float, np.floating)) for label in labels):
        assert cv.Pairs(outputs, labels).prompt_kinds[0] == len(distinct)


def test_labels_of_models_are_equal_if_value_and_type_are():
    outputs = np.arange(2)
    given = {"a": [1, 2], "b": np.array([2, 1], np.uint8), "c": [True, 2], "d": ["1", "2"]}
    given["e"] = jnp.array([2, 1])
    with pytest.warns(UserWarning, match="1 is int in one model and str in another"):
        pairs = cv.Pairs.of_models(dict.fromkeys(given, outputs), given)
    assert {name: of.prompt_ids.tolist() for name, of in pairs.items()} == {
        "a": [0, 1],
        "b": [1, 0],
        "c": [2, 1],
        "d": [3, 4],
        "e": [1, 0],
    }


def test_a_mapping_that_would_merge_labels_is_refused():
    result = cv.contributions([[0], [1], [1]], kernel=cv.Indicator(), order=2)
    assert result.by([1, 1.5, 2]).keys() == {1, 1.5, 2}
    for call in (
        lambda: result.by([1, True, 2]),
        lambda: cv.Similarities(np.eye(3), prompts=[1, 1.0, 2]),
    ):
        with pytest.raises(ValueError, match="labels: expected one type, received .* 1 and True"):
            call()


def test_prompts_that_are_no_labels_are_named():
    for floats in ([0.5, 1.5], np.array([0.5, 1.5])):
        with pytest.raises(ValueError, match=r"^prompts: .* labels are strings or integers: np"):
            cv.Pairs([0, 1], floats)
    assert cv.Pairs([0, 1], np.unique(floats, return_inverse=True)[1], rule="auto").n == 2


def test_texts_that_end_in_nul_are_other_prompts_everywhere(tmp_path):
    ids = ["q", "q\0"]
    by_prompt = cv.Pairs(np.zeros((2, 3, 1), int), ids, output_kernel=cv.Indicator())
    assert by_prompt.prompt_kinds[0] == 2
    assert not datasets._repeat(ids) and datasets._repeat(["q", "q"])
    (tmp_path / "ids.txt").write_text("q\nq\0\nq\n")
    assert files.read_labels(tmp_path / "ids.txt").tolist() == ["q", "q\0", "q"]


def test_differences_of_integers_are_exact():
    whole = np.array([[2**62], [2**62 + 3]])
    for array in (whole, whole.astype(np.uint64)):
        assert checks.minus(array, whole[:1]).tolist() == [[0], [3]]
        assert checks.minus(array, np.array([[2.0**62 - 512]])).tolist() == [[512], [515]]
    assert checks.minus(np.array([[2.5]]), np.array([[1]], np.int32)).tolist() == [[1.5]]
