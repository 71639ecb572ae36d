"""Repeated subsets of a fixed pool with one membership label a model: largest ranks without sorting or searching.

A pool holds the scores of N calibration items and M candidates under K models. A repetition draws n of the first and
m of the second, uniformly and without replacement, and ranks each candidate among the drawn calibration items, model
by model. The order of the whole pool is known beforehand, so the rank of a candidate is one plus the number of drawn
items among those that stand at least as high in the pool: a running count along the model's order, read off at a place
that is the same in every repetition. Repetitions are lanes: every step is one operation on a contiguous row of L
numbers, and no index depends on the data. What the procedures need of the ranks is their histogram.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels.resample import hashed_bits

__all__ = ["LARGEST", "JointPool", "RankCounts", "by_lane", "count_ranks", "drawn", "pool"]

LARGEST = 2**15 - 1  # items of either kind in a pool: running counts and pairs of counts fit 16 bits


class JointPool(NamedTuple):
    """The order of a pool."""

    order: jax.Array | np.ndarray  # [N, K] int32, column k the calibration items by decreasing score of model k
    # [M, K] int32, how many calibration items score at least as high as the candidate: where its rank is read
    place: jax.Array | np.ndarray
    contaminated: jax.Array | np.ndarray  # [M] int32, 1 where at least one model was trained on the candidate


class RankCounts(NamedTuple):
    """Cumulative histograms of the largest rank, for r = 0..n+1."""

    at_most: jax.Array  # [n + 2, L] int32, candidates with a rank of at most r
    contaminated: jax.Array  # [n + 2, L] int32, contaminated ones among them


def pool(calibration: np.ndarray, scores: np.ndarray, contaminated: np.ndarray) -> JointPool:
    """Order a pool, once, on the host. Ties between a candidate and calibration items count against the candidate.

    Args:
      calibration: [K, N] loss-like scores of items that every model was trained on, without NaN.
      scores: [K, M] loss-like scores of the candidates, without NaN.
      contaminated: [M] bool.
    """
    size = calibration.shape[1]
    ascending = np.argsort(calibration, axis=1, kind="stable")
    ordered = np.take_along_axis(calibration, ascending, axis=1)
    below = [np.searchsorted(column, tested, side="left") for column, tested in zip(ordered, scores, strict=True)]
    return JointPool(
        np.ascontiguousarray(ascending[:, ::-1].T, np.int32),
        np.ascontiguousarray(size - np.stack(below, axis=1), np.int32),
        np.asarray(contaminated, np.int32),
    )


def drawn(words: jax.Array, size: int, wanted: int, stream: int, unroll: int = 1) -> jax.Array:
    """A uniformly random subset of fixed size in each lane, [N, L] bool.

    Item j of N enters with probability (items still wanted)/(N - j), by 32 random bits; the probability of every subset
    is exact up to the 2^-32 to which those chances are rounded.

    Args:
      words: [2, L] uint32 random words of the repetitions.
      size: N, below 2^16.
      wanted: Items to draw, at most N.
      stream: Number of the first of N consecutive draws, so that different subsets use different bits.
      unroll: Items in one step of the loop, as in `jax.lax.scan`; the subsets do not depend on it.
    """

    def step(need: jax.Array, item: jax.Array) -> tuple[jax.Array, jax.Array]:
        take = _chance(words, item, size, need, stream)
        return need - take.astype(jnp.int32), take

    need = jnp.full(words.shape[1], wanted, jnp.int32)
    return jax.lax.scan(step, need, jnp.arange(size, dtype=jnp.int32), unroll=unroll)[1]


def count_ranks(
    pool: JointPool, words: jax.Array, *, num_calibration: int, num_tests: int, unroll: int = 1
) -> RankCounts:
    """Draw the subsets of L repetitions and count the largest ranks of the candidates.

    The subset of the calibration items is `drawn(words, N, n, 0)`, that of the candidates `drawn(words, M, m, N)`.

    Args:
      pool: The pool, N and M at most `LARGEST`.
      words: [2, L] uint32 random words, independent over repetitions.
      num_calibration: n, calibration items a repetition.
      num_tests: m, candidates a repetition.
      unroll: Items in one step of the loops; the counts do not depend on it. A step is a launch on an accelerator.

    Cost: N + M random numbers, K (N + M) additions and look-ups of rows, M additions to a table of (n + 2) L numbers.
    """
    size, lanes = pool.order.shape[0], words.shape[1]
    running = _running_counts(pool, drawn(words, size, num_calibration, 0, unroll), unroll)
    lane = jnp.arange(lanes, dtype=jnp.int32)

    def step(
        state: tuple[jax.Array, jax.Array], items: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        """Add some items to the table at once: a scatter is a launch of its own."""
        need, table = state
        slots, added = [], []
        for number, place, weight in zip(*items, strict=True):
            above = functools.reduce(jnp.maximum, [rows[place[model]] for model, rows in enumerate(running)])
            take = _chance(words, number, num_items, need, size)
            slots.append((above.astype(jnp.int32) + 1) * lanes + lane)
            added.append(jnp.where(take, weight, 0))
            need = need - take.astype(jnp.int32)
        return (need, table.at[jnp.concatenate(slots)].add(jnp.concatenate(added))), None

    num_items = pool.place.shape[0]
    state = (jnp.full(lanes, num_tests, jnp.int32), jnp.zeros((num_calibration + 2) * lanes, jnp.int32))
    pairs = 1 + (jnp.asarray(pool.contaminated) << 16)  # two counts in one number
    items = jnp.arange(num_items, dtype=jnp.int32), jnp.asarray(pool.place), pairs
    whole = num_items - num_items % unroll
    if whole:
        blocks = jax.tree.map(lambda part: part[:whole].reshape(-1, unroll, *part.shape[1:]), items)
        state, _ = jax.lax.scan(step, state, blocks)
    if whole < num_items:
        number, place, weight = (part[whole:] for part in items)
        state, _ = step(state, (number, place, weight))
    return _cumulative(state[1].reshape(num_calibration + 2, lanes), unroll)


def by_lane(table: jax.Array) -> jax.Array:
    """[rows, L] -> [L, rows], by look-ups in the flat table.

    A plain transposition would be free for XLA:CPU, which then lays out the table by columns already in the loop that
    writes it row by row, at a greater cost than that of these look-ups.
    """
    rows, lanes = table.shape
    return table.reshape(-1)[jnp.arange(rows)[None, :] * lanes + jnp.arange(lanes)[:, None]]


def _cumulative(table: jax.Array, unroll: int) -> RankCounts:
    """Running sums over the ranks, row by row: XLA:CPU would repeat a fused cumulative sum for every consumer."""

    def step(sums: jax.Array, row: jax.Array) -> tuple[jax.Array, RankCounts]:
        sums = sums + row
        return sums, RankCounts(sums & 0xFFFF, sums >> 16)

    return jax.lax.scan(step, jnp.zeros_like(table[0]), table, unroll=unroll)[1]


def _running_counts(pool: JointPool, taken: jax.Array, unroll: int) -> list[jax.Array]:
    """For each model [N + 1, L] int16: drawn items among the first i of its order, i = 0..N."""
    taken = taken.astype(jnp.int16)
    zero = jnp.zeros(taken.shape[1], jnp.int16)

    def step(counts: tuple[jax.Array, ...], item: jax.Array) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
        return tuple(count + taken[item[model]] for model, count in enumerate(counts)), counts

    kinds = pool.order.shape[1]
    order = jnp.concatenate([jnp.asarray(pool.order), jnp.zeros((1, kinds), jnp.int32)])  # one step more: all of them
    return list(jax.lax.scan(step, (zero,) * kinds, order, unroll=unroll)[1])


def _chance(words: jax.Array, item: jax.Array, size: int, need: jax.Array, stream: int) -> jax.Array:
    """[L] bool, True with probability need/(size - item)."""
    left = jnp.uint32(size) - item.astype(jnp.uint32)
    bits = hashed_bits(words, item.astype(jnp.uint32) + jnp.uint32(stream))
    # floor(bits·left / 2^32), left below 2^16, in 32 bits
    high = (bits >> 16) * left + (((bits & jnp.uint32(0xFFFF)) * left) >> 16)
    return (high >> 16) < need.astype(jnp.uint32)
