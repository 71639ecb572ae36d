"""Numbers of calibration scores below each test score, and equal to it; the types in which kernels compare.

Ranks stay integers until the last division: `conformal` turns them into p-values, `stepup` decides on them directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import platforms

__all__ = ["Counts", "at_least_single", "common", "comparable", "counts", "finder", "order_keys", "scores_of_keys"]


class Positions(NamedTuple):
    """How many calibration scores lie below a test score, and how many up to it."""

    below: jax.Array  # [m] int32, #{i: T_i < T_j}; anything where the test score does not count
    up_to: jax.Array  # [m] int32, #{i: T_i <= T_j}, likewise
    num_calibration: jax.Array  # as in `Counts`
    valid: jax.Array


class Counts(NamedTuple):
    """Position of every test score in the calibration sample."""

    less: jax.Array  # [m] int32, #{i: T_i < T_j}
    equal: jax.Array  # [m] int32, #{i: T_i = T_j}
    num_calibration: jax.Array  # [] int32, n, the calibration scores that are neither masked out nor NaN
    valid: jax.Array  # [m] bool, False where the test score is masked out or NaN (`less` and `equal` are 0 there)


def counts(
    calibration: jax.Array,
    scores: jax.Array,
    *,
    calibration_mask: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> Counts:
    """Count the calibration scores strictly below and equal to each test score.

    Args:
      calibration, calibration_mask: [n] scores of any real dtype; bool, True = real item. NaN is left out besides.
      scores, mask: [m] likewise. Infinite scores are ordinary values at the ends of the order.

    Cost: one sort of n integers and m binary searches, O((n + m) log n).
    """
    below, up_to, total, valid = positions(calibration, scores, calibration_mask, mask)
    return Counts(jnp.where(valid, below, 0), jnp.where(valid, up_to - below, 0), total, valid)


def positions(
    calibration: jax.Array, scores: jax.Array, calibration_mask: jax.Array | None, mask: jax.Array | None
) -> Positions:
    """`counts` before the difference: who needs one of the two numbers pays for one search on a GPU."""
    calibration, scores = comparable(calibration, scores)
    keys, is_real = order_keys(calibration, calibration_mask)
    queries, valid = order_keys(scores, mask)
    total = jnp.sum(is_real, dtype=jnp.int32)
    return Positions(*finder(keys, total)(queries), total, valid)


def common(*values: Any) -> Any:
    """The type that JAX's standard rules promote these arrays, scalars and types to; strict promotion refuses most.

    An array counts with its type, though it be a weak one.
    """
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*(getattr(value, "dtype", value) for value in values))


def at_least_single(values: jax.Array) -> jax.Array:
    """The values, half precision and integers as float32, and double precision as it is."""
    return values.astype(common(values.dtype, jnp.float32))


def comparable(*samples: jax.Array) -> tuple[jax.Array, ...]:
    """The samples in one type: neither the keys of different types (`order_keys`) nor their ~x are comparable."""
    arrays = [jnp.asarray(sample) for sample in samples]
    return tuple(array.astype(common(*arrays)) for array in arrays)


def order_keys(scores: jax.Array, mask: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
    """Integers in the order of the scores: sorting them needs no look for NaN and -0, as sorting floats does.

    0 and -0 are equal.

    Returns: keys [n], signed integers of the width of the scores (at least 32 bits for floats), the largest one for
    items that are masked out or NaN; and [n] bool, which items are real.
    """
    is_real = real(scores, mask)
    keys = scores
    if jnp.issubdtype(scores.dtype, jnp.inexact):
        wide = common(scores.dtype, jnp.float32)
        kind = jnp.int64 if wide == jnp.float64 else jnp.int32
        bits = jax.lax.bitcast_convert_type(scores.astype(wide), kind)
        bits = jnp.where(bits == jnp.iinfo(kind).min, 0, bits)  # -0; compared as a float, a subnormal number is 0 too
        keys = jnp.where(bits < 0, bits ^ jnp.iinfo(kind).max, bits)
    return jnp.where(is_real, keys, jnp.asarray(jnp.iinfo(keys.dtype).max, keys.dtype)), is_real


def scores_of_keys(keys: jax.Array, dtype: Any) -> jax.Array:
    """The scores [n], of type `dtype`, that `order_keys` made into these keys; -0 comes back as 0."""
    if not jnp.issubdtype(dtype, jnp.inexact):
        return keys.astype(dtype)
    bits = jnp.where(keys < 0, keys ^ jnp.iinfo(keys.dtype).max, keys)
    return jax.lax.bitcast_convert_type(bits, common(dtype, jnp.float32)).astype(dtype)


def finder(keys: jax.Array, total: jax.Array) -> Callable[[jax.Array], tuple[jax.Array, jax.Array]]:
    """A function of queries [m]: how many of the first `total` keys in order lie below each, and how many up to it.

    Args:
      keys: [n] integers, those that do not count the largest (`order_keys`).
      total: [] int32, how many count.

    Returns: queries -> (below, up to), int32 each. One binary search a query; where a tie group ends is looked up. On a
    GPU two searches without a loop, which cost fewer launches.
    """
    size = keys.shape[0]
    if size == 0:
        return lambda queries: (jnp.zeros(queries.shape, jnp.int32), jnp.zeros(queries.shape, jnp.int32))
    ordered = jnp.sort(keys)
    last = jnp.append(ordered[1:] != ordered[:-1], True)
    ends = platforms.cummin(jnp.where(last, jnp.arange(1, size + 1, dtype=jnp.int32), size), reverse=True)

    def by_ends(ordered: jax.Array, ends: jax.Array, queries: jax.Array) -> tuple[jax.Array, jax.Array]:
        place = jnp.searchsorted(ordered, queries).astype(jnp.int32)
        inside = jnp.minimum(place, size - 1)
        return place, jnp.where(ordered[inside] == queries, ends[inside], place)

    def twice(ordered: jax.Array, _: jax.Array, queries: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _search(ordered, queries, jnp.less), _search(ordered, queries, jnp.less_equal)

    def find(queries: jax.Array) -> tuple[jax.Array, jax.Array]:
        below, up_to = jax.lax.platform_dependent(ordered, ends, queries, cuda=twice, rocm=twice, default=by_ends)
        # Items that do not count stand at the end; the minimum takes them out of a tie with the largest score.
        return jnp.minimum(below, total), jnp.minimum(up_to, total)

    return find


def _search(ordered: jax.Array, queries: jax.Array, goes_on: Callable[[jax.Array, jax.Array], jax.Array]) -> jax.Array:
    """How many numbers of a list stand before each query, those that `goes_on(number, query)` holds for."""
    size = ordered.shape[0]

    def step(place: jax.Array, distance: jax.Array) -> tuple[jax.Array, None]:
        ahead = place + distance
        number = ordered.at[jnp.minimum(ahead, size) - 1].get(mode="promise_in_bounds")
        return jnp.where((ahead <= size) & goes_on(number, queries), ahead, place), None

    # unrolled when it is lowered: traced once; the start varies over devices where either list does
    distances = jnp.asarray(2 ** np.arange(size.bit_length(), dtype=np.int32)[::-1])
    start = jnp.where(queries < ordered[0], 0, 0).astype(jnp.int32)
    return jax.lax.scan(step, start, distances, unroll=len(distances))[0]


def real(scores: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Items that are neither masked out nor NaN."""
    known = ~jnp.isnan(scores) if jnp.issubdtype(scores.dtype, jnp.inexact) else jnp.ones(scores.shape, bool)
    return known if mask is None else known & mask


def real_columns(scores: jax.Array, mask: jax.Array | None) -> jax.Array:
    """[m] bool, items of scores [K, m] that are not masked out and have no NaN in any row."""
    known = jnp.ones(scores.shape[1], bool)
    if jnp.issubdtype(scores.dtype, jnp.inexact):
        known = ~jnp.isnan(scores).any(axis=0)
    return known if mask is None else known & mask


def within(rank: jax.Array, max_rank: int, mask: jax.Array | None) -> jax.Array:
    """Ranks that are neither masked out nor above their bound, which stands for NaN."""
    return rank <= max_rank if mask is None else (rank <= max_rank) & mask


def up_to(slots: jax.Array, size: int) -> jax.Array:
    """[size] int32: how many of the slots are at most 0, 1, ..., size - 1; a slot `size` is left out."""
    return platforms.cumsum(jnp.zeros(size + 1, jnp.int32).at[slots].add(1))[:-1]


def largest(dtype: Any) -> jax.Array:
    """The largest value of a type; +inf of a floating one."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.asarray(jnp.inf, dtype)
    return jnp.asarray(jnp.iinfo(dtype).max, dtype)
