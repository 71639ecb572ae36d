"""Numbers of calibration scores below each test score, and equal to it.

Ranks stay integers until the last division: `conformal` turns them into p-values, `stepup` decides on them directly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import platforms

__all__ = ["Counts", "counts", "finder", "order_keys", "scores_of_keys"]

# On a CPU scores are put into bins where so many stand in a row and in all rows together, and at most so many in a bin.
_FEWEST_IN_A_ROW, _FEWEST_IN_BINS, _MOST_IN_A_BIN = 128, 2048, 32
_AT_ONCE = 4


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

    Cost: one sort of n integers and m binary searches, O((n + m) log n). On a CPU, many calibration scores are put into
    n to 2 n bins of equal width instead, and each test score meets those of its own bin: O(n + m), unless some bin
    holds more than 32.
    """
    below, up_to, total, valid = positions(calibration, scores, calibration_mask, mask)
    return Counts(jnp.where(valid, below, 0), jnp.where(valid, up_to - below, 0), total, valid)


def positions(
    calibration: jax.Array, scores: jax.Array, calibration_mask: jax.Array | None, mask: jax.Array | None
) -> Positions:
    """`counts` before the difference: who needs one of the two numbers pays for one search on a GPU."""
    calibration, scores = jnp.asarray(calibration), jnp.asarray(scores)
    common = jnp.promote_types(calibration.dtype, scores.dtype)
    calibration, scores = calibration.astype(common), scores.astype(common)
    is_real, valid = real(calibration, calibration_mask), real(scores, mask)
    total = jnp.sum(is_real, dtype=jnp.int32)

    found = _in_order if calibration.shape[0] < _FEWEST_IN_A_ROW else _on_platform
    return Positions(*found(calibration, is_real, scores), total, valid)


def _in_order(calibration: jax.Array, is_real: jax.Array, scores: jax.Array) -> tuple[jax.Array, jax.Array]:
    keys, queries = order_keys(calibration, is_real)[0], order_keys(scores)[0]
    return finder(keys, jnp.sum(is_real, dtype=jnp.int32))(queries)


def _on_platform(calibration: jax.Array, is_real: jax.Array, scores: jax.Array) -> tuple[jax.Array, jax.Array]:
    def in_bins(*arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
        below, up_to = _rows_in_bins(*(jax.lax.stop_gradient(array)[None] for array in arrays))  # loops have none
        return below[0], up_to[0]

    return jax.lax.platform_dependent(calibration, is_real, scores, cpu=in_bins, default=_in_order)


@jax.custom_batching.custom_vmap
def _rows_in_bins(calibration: jax.Array, is_real: jax.Array, scores: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`_in_order` of rows [R, n], [R, n], [R, m], whose bins follow one another in one list."""
    ordered = lambda: jax.vmap(_in_order)(calibration, is_real, scores)  # noqa: E731
    if calibration.size < _FEWEST_IN_BINS:
        return ordered()
    held = bins(calibration, is_real)
    sizes = (held.start[1:] - held.start[:-1]).reshape(calibration.shape[0], -1)
    few = jnp.max(sizes[:, :-1]) <= _MOST_IN_A_BIN
    return jax.lax.cond(few, lambda: held.find(scores), ordered)


@_rows_in_bins.def_vmap
def _more_rows(size: int, batched: Sequence[bool], *arrays: jax.Array) -> tuple[Any, Any]:
    whole = (x if own else jnp.broadcast_to(x, (size, *x.shape)) for x, own in zip(arrays, batched, strict=True))
    found = _rows_in_bins(*(x.reshape(-1, x.shape[-1]) for x in whole))
    return tuple(x.reshape(size, -1, x.shape[-1]) for x in found), (True, True)


class Bins(NamedTuple):
    """Rows of scores in bins of equal width between the least and the largest of each row."""

    # [R·(B + 1) + 1] int32, how many scores stand before each bin, those of earlier rows included; the last bin of
    # each row is for the scores that do not count
    start: jax.Array
    ordered: jax.Array  # [R·n] the scores, bin after bin
    low: jax.Array  # [R, 1] the least finite score
    scale: jax.Array  # [R, 1] bins for each unit of the scores; 0 where all are equal

    def of(self, scores: jax.Array) -> jax.Array:
        """[R, m] int32: the bin of each score, never falling as scores rise."""
        num_rows = scores.shape[0]
        width = self.start.shape[0] // num_rows
        apart = (scores.astype(self.low.dtype) - self.low) * self.scale
        inside = jnp.where(self.scale > 0, jnp.clip(apart, 0, width - 2), 0).astype(jnp.int32)
        return inside + width * jnp.arange(num_rows, dtype=jnp.int32)[:, None]

    def find(self, queries: jax.Array) -> tuple[jax.Array, jax.Array]:
        """[R, m] int32: how many scores of its row lie below each query, and up to it; looks at those of its bin."""
        own, values = jax.lax.optimization_barrier((self.of(queries).ravel(), queries.ravel()))

        def add(i: jax.Array, end: jax.Array, query: jax.Array, below: jax.Array, up_to: jax.Array) -> tuple[Any, ...]:
            score = _item(self.ordered, i)
            return below + ((score < query) & (i < end)), up_to + ((score <= query) & (i < end))

        def one(j: jax.Array, found: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            bin_, query = _item(own, j), _item(values, j)
            first, end = _item(self.start, bin_), _item(self.start, bin_ + 1)
            below = up_to = first
            for i in range(_AT_ONCE):  # without a branch, whose way the processor would have to guess
                below, up_to = add(first + i, end, query, below, up_to)
            _, below, up_to = jax.lax.while_loop(
                lambda state: state[0] < end,
                lambda state: (state[0] + 1, *add(state[0], end, query, *state[1:])),
                (first + _AT_ONCE, below, up_to),
            )
            return _put(found[0], j, below), _put(found[1], j, up_to)

        nothing = jnp.zeros(values.shape, jnp.int32)
        found = jax.lax.fori_loop(0, values.shape[0], one, (nothing, nothing))
        num_rows = queries.shape[0]
        size = self.ordered.shape[0] // num_rows
        before = size * jnp.arange(num_rows, dtype=jnp.int32)[:, None]
        return found[0].reshape(queries.shape) - before, found[1].reshape(queries.shape) - before


def bins(scores: jax.Array, is_real: jax.Array) -> Bins:
    """The bins of scores [R, n], n >= 1, of which `is_real` [R, n] count: a power of two, at least n."""
    width = (1 << (scores.shape[1] - 1).bit_length()) + 1
    dtype = jnp.promote_types(scores.dtype, jnp.float32)
    keys, _ = order_keys(scores.astype(dtype))  # the least of integers is found faster
    finite = is_real & jnp.isfinite(scores)
    least = jnp.min(jnp.where(finite, keys, jnp.iinfo(keys.dtype).max), axis=1, keepdims=True)
    most = jnp.max(jnp.where(finite, keys, jnp.iinfo(keys.dtype).min), axis=1, keepdims=True)
    low = scores_of_keys(least, dtype)
    scale = (width - 2) / (scores_of_keys(most, dtype) - low)
    scale = jnp.where((scale > 0) & (scale < jnp.inf), scale, 0)
    empty = Bins(jnp.zeros(scores.shape[0] * width + 1, jnp.int32), scores.ravel(), low, scale)
    last = width * jnp.arange(1, scores.shape[0] + 1, dtype=jnp.int32)[:, None] - 1
    own = jax.lax.optimization_barrier(jnp.where(is_real, empty.of(scores), last).ravel())
    start = platforms.cumsum(empty.start.at[own + 1].add(1))

    def settle(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        following, place = state
        bin_ = _item(own, i)
        # Hidden, or the place is read again after it has moved on, from a copy of the whole list.
        following = jax.lax.optimization_barrier(_put(following, bin_, _item(following, bin_) + 1))
        return following, _put(place, i, _item(following, bin_) - 1)

    _, place = jax.lax.fori_loop(0, own.shape[0], settle, (start, jnp.zeros(own.shape, jnp.int32)))
    ordered = empty.ordered.at[place].set(empty.ordered, unique_indices=True, mode="promise_in_bounds")
    return empty._replace(start=start, ordered=ordered)


def _item(values: jax.Array, i: jax.Array) -> jax.Array:
    """values[i], of the last one where i lies beyond; a loop over items must not look for negative places."""
    return jax.lax.dynamic_index_in_dim(values, i, keepdims=False, allow_negative_indices=False)


def _put(values: jax.Array, i: jax.Array, value: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_index_in_dim(values, value, i, 0, allow_negative_indices=False)


def order_keys(scores: jax.Array, mask: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
    """Integers in the order of the scores: sorting them needs no look for NaN and -0, as sorting floats does.

    0 and -0 are equal.

    Returns: keys [n], signed integers of the width of the scores (at least 32 bits for floats), the largest one for
    items that are masked out or NaN; and [n] bool, which items are real.
    """
    is_real = real(scores, mask)
    keys = scores
    if jnp.issubdtype(scores.dtype, jnp.inexact):
        wide = jnp.promote_types(scores.dtype, jnp.float32)
        kind = jnp.int64 if wide == jnp.float64 else jnp.int32
        bits = jax.lax.bitcast_convert_type(jnp.where(scores == 0, 0, scores).astype(wide), kind)
        keys = jnp.where(bits < 0, bits ^ jnp.iinfo(kind).max, bits)
    return jnp.where(is_real, keys, jnp.iinfo(keys.dtype).max), is_real


def scores_of_keys(keys: jax.Array, dtype: Any) -> jax.Array:
    """The scores [n], of type `dtype`, that `order_keys` made into these keys; -0 comes back as 0."""
    if not jnp.issubdtype(dtype, jnp.inexact):
        return keys.astype(dtype)
    bits = jnp.where(keys < 0, keys ^ jnp.iinfo(keys.dtype).max, keys)
    return jax.lax.bitcast_convert_type(bits, jnp.promote_types(dtype, jnp.float32)).astype(dtype)


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
    place = jnp.zeros(queries.shape, jnp.int32)
    for bit in reversed(range(size.bit_length())):
        ahead = place + 2**bit
        number = ordered.at[jnp.minimum(ahead, size) - 1].get(mode="promise_in_bounds")
        place = jnp.where((ahead <= size) & goes_on(number, queries), ahead, place)
    return place


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
