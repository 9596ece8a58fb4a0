"""Blocks of points: how they are cut, padded, visited and summed."""

import jax.numpy as jnp
import numpy as np
import pytest

from condvendi_jax.grams import _blocks as blocks


@pytest.mark.parametrize(("n", "tile_size"), [(1, 16), (50, 16), (100, 64), (1000, 1024)])
def test_blocks_hold_all_points_and_waste_less_than_a_block_of_lanes_each(n, tile_size):
    count, size = blocks.tiling(n, tile_size)
    assert count == -(-n // tile_size)
    assert 0 <= count * size - n < 16 * count
    assert size % 16 == 0


def test_padding_repeats_the_first_point_in_every_leaf():
    tree = (jnp.arange(1.0, 4), jnp.arange(6.0).reshape(3, 2) + 1)
    one, two = blocks.pad(tree, 5)
    np.testing.assert_array_equal(one, [1, 2, 3, 1, 1])
    np.testing.assert_array_equal(two, [[1, 2], [3, 4], [5, 6], [1, 2], [1, 2]])


def test_a_block_is_added_where_it_was_cut_out():
    tree = jnp.arange(6.0)
    np.testing.assert_array_equal(blocks.block(tree, 1, 2), [2, 3])
    found = blocks.add_block(tree, jnp.array([10.0, 20.0]), 1, 2)
    np.testing.assert_array_equal(found, [0, 1, 12, 23, 4, 5])


def test_tiles_are_visited_once_each_by_columns():
    def visit(i, j, carry, *, diagonal):
        seen, step = carry
        return seen.at[i, j].set(step + 100 * diagonal), step + 1

    seen, steps = blocks.fold_upper(3, visit, (jnp.full((3, 3), -1), jnp.asarray(0)))
    np.testing.assert_array_equal(seen, [[100, 1, 3], [-1, 102, 4], [-1, -1, 105]])
    assert steps == 6


def test_parts_that_are_not_selected_are_filled_with_their_defaults():
    selected = blocks.selected((True, False), ("a", "b"))
    assert selected == ("a", None)
    assert blocks.filled(selected, ("c", "d")) == ("a", "d")


def test_sums_over_many_rows_keep_six_digits_where_a_running_sum_does_not():
    values = np.full(1_000_003, 0.1, np.float32)
    exact = float(np.sum(values, dtype=np.float64))
    running = float(np.cumsum(values)[-1])
    assert abs(running / exact - 1) > 1e-4
    assert abs(float(blocks.pairwise_sum(jnp.asarray(values))) / exact - 1) < 1e-6
