"""Rows in blocks: the same numbers as all rows together, for every number of rows and every shape of what comes out."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import ranks, stepup, stepup_parts
from tdd.kernels.rows import BLOCK_ITEMS, map_rows


def drawn(rows, m, seed=0):
    p = np.random.default_rng(seed).random((rows, m)).astype(np.float32) ** 4
    p[:, :: max(m // 3, 1)] = np.nan
    return p


@pytest.mark.parametrize(("rows", "block_items"), [(0, 120), (1, 1), (17, 120), (24, 121), (5, BLOCK_ITEMS)])
def test_blocks_equal_all_rows_together(rows, block_items):
    def call(p, mask):
        found = stepup.bh(p, 0.2, mask=mask)
        return found.reject, {"count": found.num_rejected}

    p, mask = drawn(rows, 40), np.arange(rows * 40).reshape(rows, 40) % 7 > 0
    blocks = lambda *given: map_rows(call, *given, block_items=block_items)  # noqa: E731
    found, together = jax.jit(lambda *given: (blocks(*given), jax.vmap(call)(*given)))(p, mask)
    chex.assert_trees_all_equal(found, together, strict=True)


@pytest.mark.parametrize("rows", [1, 5])
def test_rows_of_nothing_and_of_single_numbers(rows):
    assert jax.jit(lambda p: map_rows(lambda row: stepup.bh(row, 0.1).reject, p))(drawn(rows, 0)).shape == (rows, 0)
    np.testing.assert_array_equal(map_rows(lambda x: 2 * x, jnp.arange(rows), block_items=2), 2 * np.arange(rows))


def test_composes():
    """Under jit, vmap and scan, with values from outside that are traced, and without a second trace."""
    many = np.stack([drawn(7, 30, seed) for seed in range(3)])
    expected = jax.jit(jax.vmap(jax.vmap(lambda p, alpha: stepup.bh(p, alpha).reject, (0, None)), (0, None)))

    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def decide(many, alpha):
        rows = lambda p: map_rows(lambda row: stepup.bh(row, alpha).reject, p, block_items=60)  # noqa: E731
        return jax.vmap(rows)(many), jax.lax.scan(lambda _, p: (0, rows(p)), 0, many)[1]

    for alpha in (0.05, 0.3):
        for found in decide(many, jnp.float32(alpha)):
            np.testing.assert_array_equal(found, expected(many, jnp.float32(alpha)))
        assert np.asarray(found).any()


def test_what_is_not_used_is_not_computed():
    """The adjusted values need a sort, which may stay only in the loop that almost never runs."""
    p = drawn(64, 512)
    decide = jax.jit(lambda p: map_rows(lambda row: stepup.bh(row, 0.1), p).reject)
    adjust = jax.jit(lambda p: map_rows(lambda row: stepup.bh(row, 0.1), p).adjusted)
    programs = [run.lower(p).compile().as_text() for run in (decide, adjust)]
    assert programs[0] is not None
    assert programs[1] is not None
    assert programs[0].count(" sort(") < programs[1].count(" sort(")


def test_leading_axes_must_agree():
    with pytest.raises(ValueError, match="leading axis"):
        map_rows(lambda a, b: a, jnp.zeros((2, 3)), jnp.zeros((3, 3)))
    for nothing in ((), (jnp.zeros(()),)):
        with pytest.raises(ValueError, match="leading axis"):
            map_rows(lambda *a: 0, *nothing)


@pytest.mark.parametrize("wide", [False, True])
def test_keys_give_their_scores_back(wide):
    with jax.enable_x64(wide):
        scores = jnp.asarray([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, 1e-37, -3e38], np.float64 if wide else np.float32)
        keys, _ = ranks.order_keys(scores)
        np.testing.assert_array_equal(ranks.scores_of_keys(keys, scores.dtype), scores)
        half = scores[:4].astype(jnp.float16)
        np.testing.assert_array_equal(ranks.scores_of_keys(ranks.order_keys(half)[0], half.dtype), half)
        whole = jnp.array([3, -2, 0])
        np.testing.assert_array_equal(ranks.scores_of_keys(ranks.order_keys(whole)[0], whole.dtype), whole)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_order_brings_results_back_to_their_items(dtype):
    with jax.enable_x64(dtype is np.float64):
        values = jnp.asarray([0.5, 0.1, np.inf, 0.1, 0.0, np.inf, 0.7], dtype)
        ordered, place, back = stepup_parts.order(values)
        np.testing.assert_array_equal(ordered, np.sort(values))
        np.testing.assert_array_equal(back(place), [3, 1, 5, 1, 0, 5, 4])
        assert ordered.dtype == dtype
    nothing, _, back = stepup_parts.order(jnp.zeros(0))
    assert back(nothing).shape == (0,)
