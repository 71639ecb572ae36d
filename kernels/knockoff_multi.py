"""Several knockoffs at once without averaging: which of the k + 1 copies is the most member-like, and by how much.

If the k + 1 copies of a non-member are exchangeable, each is the smallest with probability 1/(k + 1) whatever the gap:
a win of the original goes with k losses. An average over the knockoffs has no such symmetry.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import knockoff

__all__ = ["MultiStatistics", "multi_statistics", "multi_threshold"]


class MultiStatistics(NamedTuple):
    """Winner and gap of each item's k + 1 copies.

    Attributes:
      kappa: [n] int32, the copy with the smallest score: 0 the original, i its i-th knockoff; -1 for masked items. In a
        tie for the smallest (tau = 0, never selected) a knockoff, the first.
      tau: [n] gap between the smallest score and the second smallest; NaN for masked items.
      statistic: [n] tau where the original wins, -tau where a knockoff does; what `knockoff.select` takes.
    """

    kappa: jax.Array
    tau: jax.Array
    statistic: jax.Array


def multi_statistics(original: jax.Array, knockoffs: jax.Array, *, mask: jax.Array | None = None) -> MultiStatistics:
    """kappa_j and tau_j of Gimenez & Zou, for loss-like scores: the smallest score wins.

    Args:
      original: [n] loss-like scores.
      knockoffs: [n, k] scores of the knockoffs, k at least 1.
      mask: [n] bool, True = real item.

    Returns:
      `MultiStatistics`; items with a NaN among their k + 1 scores count as masked.

    Raises:
      ValueError: k = 0.

    Guarantee: given everything else, kappa of a non-member is uniform on 0..k where tau > 0, if its k + 1 copies are
    exchangeable.

    References: Gimenez & Zou (2019), section 3.2.
    """
    if knockoffs.shape[1] == 0:
        raise ValueError("knockoffs has no column: its shape must be [n, k] with k at least 1")
    dtype = jnp.promote_types(jnp.promote_types(original.dtype, knockoffs.dtype), jnp.float32)
    # Knockoffs first: argmin takes the first of equals, and a tie is never the original's.
    copies = jnp.concatenate([knockoffs.astype(dtype), original.astype(dtype)[:, None]], axis=1)
    winner = jnp.argmin(copies, axis=1).astype(jnp.int32)
    others = jnp.where(jnp.arange(copies.shape[1])[None] == winner[:, None], jnp.inf, copies)
    tau = jnp.min(others, axis=1) - jnp.min(copies, axis=1)
    valid = ~jnp.isnan(copies).any(axis=1)
    valid = valid if mask is None else valid & mask
    original_wins = winner == knockoffs.shape[1]
    kappa = jnp.where(original_wins, 0, winner + 1)
    tau = jnp.where(valid, tau, jnp.nan)
    return MultiStatistics(jnp.where(valid, kappa, -1), tau, jnp.where(original_wins, tau, -tau))


def multi_threshold(
    kappa: jax.Array, tau: jax.Array, alpha: Any, *, num_knockoffs: int, offset: int = 1, mask: jax.Array | None = None
) -> jax.Array:
    """min{t > 0: (offset + #{kappa >= 1, tau >= t}) / (k·max(1, #{kappa = 0, tau >= t})) <= alpha}, or +inf.

    Guarantee: selecting kappa = 0 and tau >= t has FDR <= alpha if the k + 1 copies of a non-member are exchangeable
    given all other items; finite-sample (offset 1).

    Args:
      kappa: [n] int, 0 where the original wins.
      tau: [n] non-negative gaps; 0 and NaN are left out.
      alpha: level in (0, 1); may be traced.
      num_knockoffs: k.
      offset: 1 or 0.
      mask: [n] bool, True = real item.

    Returns:
      [] threshold on tau.

    Raises:
      ValueError: as `knockoff.select`.

    References: Gimenez & Zou (2019), algorithm 1.
    """
    signed = jnp.where(kappa == 0, tau, -tau)
    return knockoff.threshold(signed, alpha, offset=offset, num_knockoffs=num_knockoffs, mask=mask)
