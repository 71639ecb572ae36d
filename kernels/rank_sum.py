"""Rank-sum test of canonical order: how many shuffles does each shard's canonical order beat?

rho_i = #{j: l_i0 > l_ij} in 0..k. Under exchangeability each rho_i is uniform, independently, and their sum is compared
with its exact distribution: the coefficients of ((1 - x^(k+1)) / (1 - x))^r, as exact integers, by a recurrence of two
lagged terms. Logarithms are taken of the integers, so the tail is exact down to its floor (k + 1)^-r.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels.permutation import tie_tolerance
from tdd.kernels.ranks import comparable

__all__ = ["RankSum", "log_survival", "rank_sum", "shard_ranks"]

_MAX_BITS = 10**11  # bits of integers written for one table on the host
_MAX_ENTRIES = 4_000_000


class RankSum(NamedTuple):
    """The rank-sum test."""

    statistic: jax.Array  # [] int32, the sum of the ranks
    p_value: jax.Array  # [] P(sum >= statistic), at least the smallest normal float
    log_p_value: jax.Array  # [] its logarithm, exact to rounding down to -r log(k + 1)
    ranks: jax.Array  # [r] int32, rho_i; -1 where the shard is masked out or has a NaN
    num_shards: jax.Array  # [] int32, shards that were used


def rank_sum(
    canonical: jax.Array,
    shuffled: jax.Array,
    *,
    mask: jax.Array | None = None,
    tolerance: Any = None,
    key: jax.Array | None = None,
) -> RankSum:
    """Test whether canonical orders are more likely than shuffles of the same shard.

    **Guarantee**: P(p <= t) <= t for every t, finite-sample, if in every shard the canonical order and its k shuffles
    are exchangeable given all other shards. Ties count against the canonical order, or with `key` are broken by a
    uniformly random order, which makes P(p <= t) = t on the whole support.

    Args:
      canonical: [r] log-probability of each shard in its canonical order.
      shuffled: [r, k] log-probabilities of its shuffles, k >= 1.
      mask: [r] bool, True = real shard. With a mask the null distribution of every number of shards up to r is
        prepared, and p = 1 with no shard left; without one, a NaN anywhere makes the p-value NaN.
      tolerance: Relative tolerance of a tie; None for that of the float type.
      key: PRNG key, breaks ties at random.

    Raises ValueError: k = 0, or r and k so large that the exact distribution is out of reach.
    Cost: O(r k), and O(r k log k) with `key`; once for each (r, k) a table of r k exact integers (r^2 k / 2 with a
    mask) on the host.
    References: Lehmann & Romano (2005), theorem 15.2.2, applied to each shard.
    """
    canonical, shuffled = jnp.asarray(canonical), jnp.asarray(shuffled)
    r, k = shuffled.shape
    ranks = shard_ranks(canonical, shuffled, mask=mask, tolerance=tolerance, key=key)
    total = jnp.sum(jnp.maximum(ranks, 0), dtype=jnp.int32)
    count = jnp.sum(ranks >= 0, dtype=jnp.int32)
    dtype = shuffled.dtype
    if mask is None:
        log_p = jnp.where(count == r, log_survival(total, num_shards=r, num_shuffles=k, dtype=dtype), jnp.nan)
    else:
        table, starts = _tables_up_to(r, k)
        log_p = jnp.asarray(table, dtype)[jnp.asarray(starts)[count] + total]
    p_value = jnp.maximum(jnp.exp(log_p), jnp.finfo(dtype).tiny)
    return RankSum(total, p_value, log_p, ranks, count)


def shard_ranks(
    canonical: jax.Array,
    shuffled: jax.Array,
    *,
    mask: jax.Array | None = None,
    tolerance: Any = None,
    key: jax.Array | None = None,
) -> jax.Array:
    """[r] int32: how many of its k shuffles each canonical order beats; -1 for masked shards and shards with a NaN.

    Two values tie where they differ by at most `tolerance` times the largest magnitude in the shard. With `key` a group
    of ties (values joined by a chain of such differences) is put into a uniformly random order, so that the rank of an
    exchangeable canonical order is exactly uniform; without, every tie counts against the canonical order.

    Arguments as `rank_sum`.
    """
    canonical, shuffled = comparable(canonical, shuffled)
    if shuffled.shape[1] == 0:
        raise ValueError("shuffled has no column: at least one shuffle a shard is needed")
    largest = jnp.maximum(jnp.abs(canonical), jnp.max(jnp.abs(shuffled), axis=1))
    real = ~(jnp.isnan(canonical) | jnp.isnan(shuffled).any(axis=1))  # a maximum of many loses NaN on a CPU
    real = real if mask is None else real & mask
    relative = tie_tolerance(canonical.dtype) if tolerance is None else tolerance
    slack = jnp.asarray(relative, canonical.dtype) * largest[:, None]
    if key is None:
        ranks = jnp.sum(canonical[:, None] - shuffled > slack, axis=1, dtype=jnp.int32)
        return jnp.where(real, ranks, -1)
    ordered = jnp.sort(jnp.concatenate([canonical[:, None], shuffled], axis=1), axis=1)
    group = jnp.cumsum(ordered[:, 1:] - ordered[:, :-1] > slack, axis=1, dtype=jnp.int32)
    group = jnp.pad(group, ((0, 0), (1, 0)))
    # Equal values stand in one group: the place of any of them tells the group of the canonical order.
    canonical_group = jnp.max(jnp.where(ordered == canonical[:, None], group, 0), axis=1, keepdims=True)
    below = jnp.sum(group < canonical_group, axis=1, dtype=jnp.int32)
    ties = jnp.sum(group == canonical_group, axis=1, dtype=jnp.int32)
    return jnp.where(real, below + jax.random.randint(key, below.shape, 0, ties, jnp.int32), -1)


def log_survival(total: Any, *, num_shards: int, num_shuffles: int, dtype: Any = None) -> jax.Array:
    """log P(S >= total) for the sum S of `num_shards` independent uniforms on 0..num_shuffles, element-wise.

    0 for a total of 0 and below, -inf above num_shards·num_shuffles (both static); `dtype` is JAX's default float by
    default. Raises ValueError where the exact distribution is out of reach.
    """
    table = jnp.asarray(_table(num_shards, num_shuffles), dtype or jnp.result_type(float))
    total = jnp.asarray(total)
    inside = table[jnp.clip(total, 0, len(table) - 1)]
    return jnp.where(total > num_shards * num_shuffles, -jnp.inf, inside)


@functools.lru_cache(maxsize=64)
def _table(r: int, k: int) -> np.ndarray:
    """[r k + 1] float64: log P(S >= s) for s = 0..r k."""
    top = r * k
    bits = r * math.log2(k + 1) * (top // 2 + 1)
    if bits > _MAX_BITS or top > _MAX_ENTRIES:
        raise ValueError(
            f"the exact null distribution of {r} ranks among {k} shuffles is out of reach; use fewer shards or "
            'shuffles, or the tests "exact" or "t"'
        )
    log_all = r * math.log(k + 1)
    table = np.zeros(top + 1)
    at_most = 0
    for d, ways in zip(range((top + 1) // 2), _ways(r, k), strict=False):
        at_most += ways  # P(S <= d) = P(S >= top - d) = at_most / (k+1)^r, below 1/2
        table[top - d] = math.log(at_most) - log_all
        if d + 1 <= top - d - 1:
            table[d + 1] = math.log1p(-math.exp(table[top - d]))
    if top and top % 2 == 0:
        table[top // 2] = math.log1p(-math.exp(table[top // 2 + 1]))
    return table


@functools.lru_cache(maxsize=8)
def _tables_up_to(r: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The tables of 0..r shards one after another, and where each begins."""
    if r * (r + 1) // 2 * k > _MAX_ENTRIES:
        raise ValueError(
            f"masks over {r} shards with {k} shuffles need the null distribution of every number of shards, which is "
            "out of reach; leave out the masked shards before the call"
        )
    tables = [_table.__wrapped__(q, k) for q in range(r + 1)]
    starts = np.cumsum([0, *(len(table) for table in tables[:-1])]).astype(np.int32)
    return np.concatenate(tables), starts


def _ways(r: int, k: int) -> Iterator[int]:
    """N(s) = #{(rho_1..rho_r) in {0..k}^r with sum s} for s = 0, 1, ...

    From Q P' = r Q' P for P = Q^r, Q = (1 - x^(k+1))/(1 - x):
    (s + 1) N(s+1) = (s + r) N(s) + (s - k - r(k+1)) N(s-k) + (r k - s + k + 1) N(s-k-1).
    """
    recent = deque([0] * (k + 1) + [1], maxlen=k + 2)  # N(s-k-1), ..., N(s)
    s = 0
    while True:
        yield recent[-1]
        following = (s + r) * recent[-1] + (s - k - r * (k + 1)) * recent[1] + (r * k - s + k + 1) * recent[0]
        s += 1
        recent.append(following // s)
