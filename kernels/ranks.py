"""How many calibration scores lie below each test score, and how many equal it.

Ranks stay integers until the last division: `conformal` turns them into p-values, `stepup` decides on them directly.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

__all__ = ["Counts", "WeightedCounts", "counts", "weighted_counts"]


class Counts(NamedTuple):
    """Position of every test score in the calibration sample.

    Attributes:
      less: [m] int32, #{i: T_i < T_j}.
      equal: [m] int32, #{i: T_i = T_j}.
      num_calibration: [] int32, n, the calibration scores that are neither masked out nor NaN.
      valid: [m] bool, False where the test score is masked out or NaN (`less` and `equal` are 0 there).
    """

    less: jax.Array
    equal: jax.Array
    num_calibration: jax.Array
    valid: jax.Array


class WeightedCounts(NamedTuple):
    """`Counts` with the calibration weights summed instead of counted.

    Attributes:
      less: [m] sum of w_i over T_i < T_j.
      equal: [m] sum of w_i over T_i = T_j.
      total: [] sum of w_i.
      valid: [m] bool.
    """

    less: jax.Array
    equal: jax.Array
    total: jax.Array
    valid: jax.Array


def counts(
    calibration: jax.Array,
    scores: jax.Array,
    *,
    calibration_mask: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> Counts:
    """Count the calibration scores strictly below and equal to each test score.

    Args:
      calibration: [n] scores, any real dtype.
      scores: [m] scores of the same dtype.
      calibration_mask: [n] bool, True = real item. NaN scores are left out besides.
      mask: [m] bool, likewise.

    Returns:
      `Counts`. Infinite scores are ordinary values at the ends of the order.

    Cost: one sort of n and m binary searches, O((n + m) log n).
    """
    calibration, scores = jnp.asarray(calibration), jnp.asarray(scores)
    real = _real(calibration, calibration_mask)
    valid = _real(scores, mask)
    total = jnp.sum(real, dtype=jnp.int32)
    ordered = jnp.sort(jnp.where(real, calibration, _largest(calibration.dtype)))
    # Masked items stand at the end as the largest value; the minimum with n takes them out of a tie with it.
    below = jnp.minimum(jnp.searchsorted(ordered, scores, side="left"), total)
    up_to = jnp.minimum(jnp.searchsorted(ordered, scores, side="right"), total)
    less = jnp.where(valid, below, 0).astype(jnp.int32)
    equal = jnp.where(valid, up_to - below, 0).astype(jnp.int32)
    return Counts(less, equal, total, valid)


def weighted_counts(
    calibration: jax.Array,
    scores: jax.Array,
    weights: jax.Array,
    *,
    calibration_mask: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> WeightedCounts:
    """Sum the weights of the calibration scores strictly below and equal to each test score.

    Args:
      calibration: [n] scores.
      scores: [m] scores.
      weights: [n] non-negative weights of the calibration items.
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool.

    Returns:
      `WeightedCounts`. Cost as `counts`.
    """
    calibration, scores = jnp.asarray(calibration), jnp.asarray(scores)
    real = _real(calibration, calibration_mask)
    valid = _real(scores, mask)
    ordered, order = jax.lax.sort_key_val(
        jnp.where(real, calibration, _largest(calibration.dtype)), jnp.arange(calibration.shape[0])
    )
    sums = jnp.cumsum(jnp.where(real, weights, 0)[order])
    sums = jnp.concatenate([jnp.zeros_like(sums, shape=(1,)), sums])
    below = sums[jnp.searchsorted(ordered, scores, side="left")]
    up_to = sums[jnp.searchsorted(ordered, scores, side="right")]
    return WeightedCounts(jnp.where(valid, below, 0), jnp.where(valid, up_to - below, 0), sums[-1], valid)


def _real(scores: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Items that are neither masked out nor NaN."""
    real = ~jnp.isnan(scores) if jnp.issubdtype(scores.dtype, jnp.inexact) else jnp.ones(scores.shape, bool)
    return real if mask is None else real & mask


def _largest(dtype: jnp.dtype) -> jax.Array:
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.asarray(jnp.inf, dtype)
    return jnp.asarray(jnp.iinfo(dtype).max, dtype)
