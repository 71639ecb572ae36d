"""Tests of canonical order that may stop while the shuffles come in: counts of exceedances, and what they allow.

A shuffle exceeds where its log-probability reaches that of the canonical order; ties count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import platforms
from tdd.kernels.permutation import tie_tolerance

__all__ = ["Exceedances", "besag_clifford", "default_looks", "exceedances", "look_weights", "spend"]


class Exceedances(NamedTuple):
    """Numbers of shuffles that reached the canonical order, after every draw."""

    shards: jax.Array  # [r, B] int32, exceedances of each shard among the draws up to this one
    shard_draws: jax.Array  # [r, B] int32, draws that count there; 0 in shards that are left out
    total: jax.Array  # [B] int32, exceedances of the sum over shards
    total_draws: jax.Array  # [B] int32, draws that count there
    num_shards: jax.Array  # [] int32, shards that are used


def exceedances(
    canonical: jax.Array, shuffled: jax.Array, *, mask: jax.Array | None = None, tolerance: Any = None
) -> Exceedances:
    """Count the shuffles that reach the canonical order, by shard and for the sum over shards.

    Draw b of a shard exceeds if l_ib >= l_i0 - tolerance max(|l_i0|, |l_ib|), the sum if the sum of differences does
    with the sum of those magnitudes: what is counted at b depends on the first b draws alone.

    Args:
      canonical: [r] log-probability of each shard in canonical order; a shard with a NaN is left out.
      shuffled: [r, B] log-probabilities of its shuffles in the order of drawing. A NaN is a draw that does not count in
        its shard, nor in the sum.
      mask: [r] bool, True = real shard.
      tolerance: Relative tolerance of a tie; None for that of the float type.

    Raises ValueError: B = 0.
    Cost: O(r B).
    """
    canonical, shuffled = jnp.asarray(canonical), jnp.asarray(shuffled)
    if shuffled.shape[1] == 0:
        raise ValueError("shuffled has no column: at least one shuffle a shard is needed")
    used = ~jnp.isnan(canonical)
    used = used if mask is None else used & mask
    counts = used[:, None] & ~jnp.isnan(shuffled)
    relative = jnp.asarray(tie_tolerance(shuffled.dtype) if tolerance is None else tolerance, shuffled.dtype)
    slack = relative * jnp.where(counts, jnp.maximum(jnp.abs(canonical)[:, None], jnp.abs(shuffled)), 0)
    difference = jnp.where(counts, shuffled - canonical[:, None], 0)
    whole = jnp.all(counts | ~used[:, None], axis=0) & jnp.any(used)
    reached = whole & (jnp.sum(difference, axis=0) >= -jnp.sum(slack, axis=0))
    return Exceedances(
        _running(counts & (difference >= -slack)),
        _running(counts),
        _running(reached),
        _running(whole),
        jnp.sum(used, dtype=jnp.int32),
    )


def besag_clifford(counted: Exceedances, num_exceedances: int, dtype: Any = None) -> tuple[jax.Array, jax.Array]:
    """p = h / l if the h-th exceedance of the sum came at draw l, and (1 + x) / (1 + b) before.

    **Guarantee**: for each b that was fixed beforehand, P(p_b <= t) <= t for every t, finite-sample, if the sums over
    shards of the canonical order and of the shuffles are exchangeable: p_b is the p-value of the rule "stop at h
    exceedances, at draw b at the latest". Stopping because p is small is not that rule.

    `num_exceedances` is h >= 1, static; `dtype` is JAX's default float by default. Cost: O(B).

    Returns: ([B], [B]) p-values and their logarithms.
    References: Besag & Clifford (1991), section 3.
    """
    if num_exceedances < 1:
        raise ValueError(f"num_exceedances must be at least 1, got {num_exceedances!r}")
    dtype = dtype or jnp.result_type(float)
    stopped = counted.total >= num_exceedances
    at = jnp.sum(jnp.where(stopped, 0, 1), dtype=jnp.int32)  # draws before the one that stops
    last = counted.total_draws[jnp.minimum(at, counted.total.shape[0] - 1)]
    over = jnp.where(stopped, num_exceedances, 1 + counted.total)
    under = jnp.where(stopped, last, 1 + counted.total_draws)
    p = over.astype(dtype) / under.astype(dtype)
    return p, jnp.log(p)


def spend(log_p_value: jax.Array, weights: Any) -> tuple[jax.Array, jax.Array]:
    """p_l = min(1, min over looks j <= l of p_j / w_j): valid at all looks at once.

    **Guarantee**: P(some p_l <= t) <= t for every t if each p_j is valid by itself and the weights were fixed
    beforehand and sum to at most 1, under any dependence (union bound).

    `log_p_value` [L] are logarithms of the p-values of the looks, in order; `weights` [L] fractions of the level.

    Returns: ([L], [L]) p-values and their logarithms; NaN from the first NaN on.
    Cost: O(L).
    """
    log_p_value = jnp.asarray(log_p_value)
    weighted = log_p_value - jnp.log(jnp.asarray(weights, log_p_value.dtype))
    log_p = jnp.minimum(platforms.cummin(weighted), 0)
    log_p = jnp.where(platforms.cummax(jnp.isnan(weighted).astype(jnp.int32)) > 0, jnp.nan, log_p)
    return jnp.maximum(jnp.exp(log_p), jnp.finfo(log_p.dtype).tiny), log_p


def default_looks(horizon: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, ... below the horizon, and the horizon."""
    steps = [first * 10**power for power in range(len(str(horizon))) for first in (1, 2, 5)]
    return (*(step for step in steps if step < horizon), horizon)


def look_weights(looks: Sequence[int]) -> np.ndarray:
    """[L] float64 fractions of the level, in proportion to the shuffles of each look."""
    return np.asarray(looks, np.float64) / sum(looks)


def _running(indicator: jax.Array) -> jax.Array:
    return jnp.cumsum(indicator, axis=-1, dtype=jnp.int32)
