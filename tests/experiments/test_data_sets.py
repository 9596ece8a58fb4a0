"""The sets that are shipped as files: whole, of unit norm, described, with their licences said."""

import json

import numpy as np
import pytest

from experiments.data import SETS, load
from experiments.data.sets import FOLDER

pytestmark = pytest.mark.slow

TYPES = {"dogs": 140, "fruits": 78, "clothing": 136, "animals": 140, "objects": 140}
"""The sets of types, with the photographs of the kind that has the fewest."""
NON_COMMERCIAL = {"dogs", "animals", "objects"}
FILES = (*TYPES,)


@pytest.fixture(scope="module", params=FILES)
def stored(request):
    with np.load(FOLDER / f"{request.param}.npz", allow_pickle=False) as arrays:
        return request.param, {name: arrays[name] for name in arrays.files}


def test_embeddings_are_half_precision_and_of_unit_norm(stored):
    name, arrays = stored
    assert (FOLDER / f"{name}.npz").stat().st_size <= 25e6
    for field, rows in arrays.items():
        if rows.ndim == 2:
            assert rows.dtype == np.float16, field
            norms = np.linalg.norm(rows.astype(np.float64), axis=1)
            np.testing.assert_allclose(norms, 1, atol=5e-4, err_msg=field)


def test_indices_reach_every_row_of_their_tables(stored):
    _, arrays = stored
    n = len(arrays["outputs_index"] if "outputs_index" in arrays else arrays["outputs"])
    for field, index in arrays.items():
        if field.endswith("_index"):
            table = arrays[field.removesuffix("_index")]
            assert index.shape == (n,), field
            assert index.min() >= 0 and index.max() < len(table), field


def test_licence_origin_and_cut_are_said(stored):
    name, arrays = stored
    assert len(str(arrays["description"])) > 20
    assert any(" @ " in line for line in arrays["provenance"])
    assert json.loads(str(arrays["cut"]))
    licence = str(arrays["licence"])
    assert licence and ("non-commercial" in licence) == (name in NON_COMMERCIAL)
    assert SETS[name].licence.startswith("NC") == (name in NON_COMMERCIAL)


@pytest.mark.parametrize("name", TYPES)
def test_a_set_of_types_has_ten_kinds_twenty_wordings_and_prompts_four_times(name):
    pairs = load(name)
    kinds, counts = np.unique(pairs.labels["types"], return_counts=True)
    assert len(kinds) == 10
    assert counts.min() == TYPES[name] and counts.max() == 140
    assert SETS[name].description.startswith(f"{len(pairs):,} ")
    assert pairs.description.startswith(f"{len(pairs):,} ")
    wording = pairs.labels["wording"]
    assert len(np.unique(wording)) >= 20
    further = pairs.further
    assert set(further) == {"typed_prompts", "second_prompts", "second_typed_prompts"}
    for untyped, typed in (
        (pairs.prompts, further["typed_prompts"]),
        (further["second_prompts"], further["second_typed_prompts"]),
    ):
        # A prompt is its wording, or its wording and its kind.
        assert len(np.unique(untyped, axis=0)) == len(np.unique(wording))
        both = np.unique([f"{k} {w}" for k, w in zip(pairs.labels["types"], wording, strict=True)])
        assert len(np.unique(typed, axis=0)) == len(both)
        same = untyped[:, None, :20] == untyped[None, :, :20]
        np.testing.assert_array_equal(same.all(axis=-1), wording[:, None] == wording)


@pytest.mark.parametrize("name", TYPES)
def test_photographs_of_one_kind_are_nearer_to_each_other(name):
    pairs = load(name)
    alike = pairs.outputs @ pairs.outputs.T
    same = pairs.labels["types"][:, None] == pairs.labels["types"]
    np.fill_diagonal(alike, -1)
    nearest = same[np.arange(len(pairs)), alike.argmax(axis=1)].mean()
    assert nearest > 0.3  # A tenth by chance.
