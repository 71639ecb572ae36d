"""Randomisation test of canonical order: relabel in every shard which of the k + 1 orders is the canonical one.

With l_i0 the log-probability of shard i in its canonical order and l_i1..l_ik those of its shuffles, the statistic
T = sum of l_i0 is compared with T_b = sum of l_{i, J_i}, J_i uniform on 0..k and independent over shards: no further
call of the model is needed.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tdd.kernels.permutation import PermutationP, complete_p_value, counted, nan_where, tie_tolerance

__all__ = ["is_enumerable", "shard_permutation", "shard_randomization"]

_TABLE = 4096  # entries of one table of partial sums: it stays in the fastest cache
_CHUNK = 2**15  # draws times tables side by side


def shard_randomization(
    canonical: jax.Array,
    shuffled: jax.Array,
    *,
    num_draws: int,
    key: jax.Array | None = None,
    mask: jax.Array | None = None,
    tolerance: Any = None,
) -> PermutationP:
    """p = (1 + #{b: T_b >= T}) / (1 + B), or over all (k + 1)^r relabellings where these are at most 1 + B.

    **Guarantee**: P(p <= t) <= t for every t, finite-sample, if in every shard the canonical order and its k shuffles
    are exchangeable given all other shards.

    Sums are taken of differences from the canonical value, which keep their digits where the log-probabilities
    themselves are large. Ties (within `tolerance` times the sum over shards of the largest magnitude) count against.

    Args:
      canonical: [r] log-probability of each shard in its canonical order.
      shuffled: [r, k] log-probabilities of its shuffles.
      num_draws: B, static.
      key: PRNG key; not needed where `is_enumerable`.
      mask: [r] bool, True = real shard; a shard with a NaN is left out too. Without a mask a NaN anywhere makes the
        p-value NaN.
      tolerance: Relative; None for that of the float type.

    Returns: `PermutationP`; `num_draws` is (k + 1)^r where all relabellings were listed. No shard left: p = 1.
    Raises ValueError: k = 0, B < 1, or no key where one is needed.
    Cost: O(B r / g), g the number of shards whose joint relabellings fit one table of 4,096 sums (12 for k = 1, 2 for
    k = 50); memory O(r k + 2^15). The draws of a table of K sums are 32-bit words modulo K: no relabelling is more
    likely than another by more than a factor of 1 + r·2^-20.
    References: the sharded exchangeability test, section 3.2, for the shards; Lehmann & Romano (2005), section 15.2.
    """
    canonical, shuffled = jnp.asarray(canonical), jnp.asarray(shuffled)
    r, k = shuffled.shape
    if num_draws < 1:
        raise ValueError(f"num_draws must be at least 1, got {num_draws!r}")
    differences, slack, known = _differences(canonical, shuffled, mask, tolerance)
    choices = jnp.pad(differences, ((0, 0), (1, 0)))  # the canonical order itself comes first
    if is_enumerable(r, k, num_draws):
        result = complete_p_value(0.0, _all_sums(choices), tolerance=1.0, scale=slack)
    else:
        if key is None:
            raise ValueError(f"{k + 1}^{r} relabellings are too many to list: key, a PRNG key, is needed")
        result = counted(_count_draws(choices, slack, key, num_draws), jnp.int32(num_draws), shuffled.dtype)
    return result if mask is not None else nan_where(~known, result)


def shard_permutation(
    canonical: jax.Array, shuffled: jax.Array, *, mask: jax.Array | None = None, tolerance: Any = None
) -> PermutationP:
    """p = (1 + #{b: sum over i of l_ib >= T}) / (1 + k): the b-th shuffles of all shards are one order of the whole.

    **Guarantee**: as `permutation.p_value`, for any number of shards, one included.

    Arguments and sums as `shard_randomization`. Cost: O(r k).

    References: the sharded exchangeability test, section 3.1.
    """
    canonical, shuffled = jnp.asarray(canonical), jnp.asarray(shuffled)
    differences, slack, known = _differences(canonical, shuffled, mask, tolerance)
    reached = jnp.sum(jnp.sum(differences, axis=0) >= -slack, dtype=jnp.int32)
    result = counted(reached, jnp.int32(shuffled.shape[1]), shuffled.dtype)
    return result if mask is not None else nan_where(~known, result)


def is_enumerable(num_shards: int, num_shuffles: int, num_draws: int) -> bool:
    """True if all (k + 1)^r relabellings are listed instead of B being drawn. Static."""
    return (num_shuffles + 1) ** num_shards <= num_draws + 1


def _differences(
    canonical: jax.Array, shuffled: jax.Array, mask: jax.Array | None, tolerance: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """l_ij - l_i0 (0 in shards that are left out), the tolerance of their sum, and whether nothing is NaN."""
    if shuffled.shape[1] == 0:
        raise ValueError("shuffled has no column: at least one shuffle a shard is needed")
    not_nan = ~(jnp.isnan(canonical) | jnp.isnan(shuffled).any(axis=1))
    real = not_nan if mask is None else not_nan & mask
    differences = jnp.where(real[:, None], shuffled - canonical[:, None], 0)
    relative = jnp.asarray(tie_tolerance(shuffled.dtype) if tolerance is None else tolerance, shuffled.dtype)
    largest = jnp.maximum(jnp.abs(canonical), jnp.max(jnp.abs(shuffled), axis=1))
    return differences, relative * jnp.sum(jnp.where(real, largest, 0)), not_nan.all()


def _all_sums(choices: jax.Array) -> jax.Array:
    """[(k + 1)^g] sums of one entry of each of the g rows."""
    sums = jnp.zeros(1, choices.dtype)
    for i in range(choices.shape[0]):
        sums = (sums[:, None] + choices[i][None, :]).reshape(-1)
    return sums


def _count_draws(choices: jax.Array, slack: jax.Array, key: jax.Array, num_draws: int) -> jax.Array:
    """Number of B random relabellings with a sum of differences >= -slack."""
    r, width = choices.shape
    joined = 1
    while joined < r and width ** (joined + 1) <= _TABLE:
        joined += 1
    blocks = -(-r // joined)
    choices = jnp.pad(choices, ((0, blocks * joined - r), (0, 0)))  # rows of zeros: whatever is drawn adds nothing
    tables = jax.vmap(_all_sums)(choices.reshape(blocks, joined, width))
    entries = tables.shape[1]
    starts = (jnp.arange(blocks, dtype=jnp.int32) * entries)[:, None]
    tables = tables.reshape(-1)
    chunk = min(num_draws, max(1, _CHUNK // blocks))
    chunks = -(-num_draws // chunk)

    def add(i: jax.Array, count: jax.Array) -> jax.Array:
        words = jax.random.bits(jax.random.fold_in(key, i), (blocks, chunk), jnp.uint32)
        drawn = (words % jnp.uint32(entries)).astype(jnp.int32) + starts
        reached = jnp.sum(tables[drawn], axis=0) >= -slack
        wanted = i * chunk + jnp.arange(chunk, dtype=jnp.int32) < num_draws
        return count + jnp.sum(reached & wanted, dtype=jnp.int32)

    return jax.lax.fori_loop(0, chunks, add, jnp.int32(0))
