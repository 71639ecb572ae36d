"""The knockoff filter: which items look more like members than their knockoffs do.

Scores are loss-like. The statistic W_j = mean_i(S~_j^(i)) - S_j of an item and its k knockoffs is large for a member.
The threshold is

    tau = min{t in {|W_j| > 0}: (offset + #{W <= -t}) / (k'·max(1, #{W >= t})) <= alpha},

k' = 1 for W, and +inf where no t qualifies: then nothing is selected. Each count takes whole groups of ties, and
W = 0 is never selected.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import lattice
from tdd.kernels.knockoff_path import Path, path

__all__ = ["KnockoffFilter", "adjust", "first_place", "select", "threshold", "w_statistics"]


class KnockoffFilter(NamedTuple):
    """Decisions of one threshold.

    Attributes:
      reject: [n] bool, in input order; False for masked items.
      adjusted: [n] the smallest level at which the item is selected, in [0, 1] (1: at no level below 1), NaN for masked
        items; `reject == (adjusted <= alpha)`.
      threshold: [] tau, +inf where nothing qualifies.
      num_rejected: [] int32.
      num_tests: [] int32, n without masked and NaN items.
    """

    reject: jax.Array
    adjusted: jax.Array
    threshold: jax.Array
    num_rejected: jax.Array
    num_tests: jax.Array


def w_statistics(original: jax.Array, knockoffs: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
    """W_j = mean over i of S~_j^(i) - S_j, computed as a mean of differences: equal copies give exactly 0.

    Args:
      original: [n] loss-like scores S of the items.
      knockoffs: [n, k] scores S~ of their knockoffs, k at least 1.
      mask: [n] bool, True = real item.

    Returns:
      [n] W, large = member; NaN for items that are masked out or have a NaN among their k + 1 scores.

    Raises:
      ValueError: k = 0.

    Guarantee: for k = 1 the signs of the W of non-members are fair coins given |W| if an item and its knockoff are
    exchangeable; for k > 1 they are so only where the law of a score within an item is symmetric.

    References: KTD, eq. 5 and 8.
    """
    if knockoffs.shape[1] == 0:
        raise ValueError("knockoffs has no column: its shape must be [n, k] with k at least 1")
    dtype = jnp.promote_types(jnp.promote_types(original.dtype, knockoffs.dtype), jnp.float32)
    difference = knockoffs.astype(dtype) - original.astype(dtype)[:, None]
    w = jnp.sum(difference, axis=1) / knockoffs.shape[1]
    return w if mask is None else jnp.where(mask, w, jnp.nan)


def threshold(
    w: jax.Array, alpha: Any, *, offset: int = 1, num_knockoffs: int = 1, mask: jax.Array | None = None
) -> jax.Array:
    """The knockoff threshold tau alone; see `select`.

    Cost: one sort of n integers.

    >>> threshold(jnp.array([-2.0, -1, 1, 2, 3, 4, 5, 6, 7, 8]), 0.2)
    Array(3., dtype=float32)
    """
    along = path(w, mask=mask)
    first = first_place(along, lattice.as_level(alpha), offset, num_knockoffs)
    return _cut_at(along, first)


def select(
    w: jax.Array, alpha: Any, *, offset: int = 1, num_knockoffs: int = 1, mask: jax.Array | None = None
) -> KnockoffFilter:
    """Select W_j >= tau. For a static alpha each ratio is compared with it between integers, exactly.

    Guarantee: if the signs of the null statistics are independent given all |W| and the other signs, each positive with
    probability at most 1/(1 + k'): with offset 1 FDR <= alpha; with offset 0 E[V/(R + 1/(alpha k'))] <= alpha only.
    Finite-sample.

    Args:
      w: [n] statistics, large = member; NaN is masked out.
      alpha: level in (0, 1); a Python number is a static level, a JAX array may be traced.
      offset: 1 (knockoff+) or 0.
      num_knockoffs: k'; more than 1 for the signed statistics of `knockoff_multi.multi_statistics` only.
      mask: [n] bool, True = real item.

    Returns:
      `KnockoffFilter`; adjusted_j is the minimum of the ratio over the t <= W_j. At least offset/(alpha k') items
      are selected, or none.

    Raises:
      ValueError: alpha outside (0, 1) where it is static; offset other than 0 and 1; num_knockoffs below 1.

    Cost: one sort of n integers and n binary searches.

    References: Barber & Candès (2015), eq. 1.8-1.9 and theorems 1-2; KTD, eq. 7 and 10 (where no t
    qualifies the authors' code takes the best one, which no theorem covers).
    """
    along = path(w, mask=mask)
    level = lattice.as_level(alpha)
    first = first_place(along, level, offset, num_knockoffs)
    reject = along.positive & (along.place >= first)
    # Products of counts stay below 2^24 in small cases: one rounding.
    ratio = (offset + along.against).astype(along.cut.dtype) / (
        num_knockoffs * jnp.maximum(along.favourable, 1).astype(along.cut.dtype)
    )
    lowest = jax.lax.cummin(jnp.where(along.start, ratio, jnp.inf))
    own = lowest[along.place] if w.shape[0] else lowest
    adjusted = adjust(reject, jnp.where(along.positive, own, 1), along.valid, level)
    return KnockoffFilter(
        reject,
        adjusted,
        _cut_at(along, first),
        jnp.sum(reject, dtype=jnp.int32),
        jnp.sum(along.valid, dtype=jnp.int32),
    )


def first_place(along: Path, level: lattice.Level, offset: int = 1, num_knockoffs: int = 1) -> jax.Array:
    """[] int32 place of tau in the path: the first group whose ratio is at most alpha; n where none is.

    Raises:
      ValueError: offset other than 0 and 1; num_knockoffs below 1.
    """
    if offset not in (0, 1):
        raise ValueError(f"offset must be 0 or 1, got {offset!r}")
    if num_knockoffs < 1:
        raise ValueError(f"num_knockoffs must be at least 1, got {num_knockoffs!r}")
    found = jnp.maximum(along.favourable, 1)
    if lattice.is_exact(level):
        passes = lattice.product_le(
            (offset + along.against, level.denominator), (level.numerator, num_knockoffs, found)
        )
    else:
        dtype = along.cut.dtype
        eps = max(float(jnp.finfo(kind).eps) for kind in (dtype, level.value.dtype))
        value = jnp.where((level.value > 0) & (level.value < 1), level.value, jnp.nan).astype(dtype) * (1 + 4 * eps)
        passes = (offset + along.against).astype(dtype) <= value * num_knockoffs * found.astype(dtype)
    size = along.start.shape[0]
    return jnp.min(jnp.where(along.start & passes, jnp.arange(size, dtype=jnp.int32), size), initial=size)


def adjust(reject: jax.Array, adjusted: jax.Array, valid: jax.Array, level: lattice.Level) -> jax.Array:
    """Adjusted values in [0, 1] on the side of alpha where the decision put them; NaN where nothing was tested."""
    single = adjusted.dtype == jnp.float32
    below, above = (level.below32, level.above32) if single else (level.below64, level.above64)
    below, above = jnp.asarray(below).astype(adjusted.dtype), jnp.asarray(above).astype(adjusted.dtype)
    settled = jnp.where(reject, jnp.minimum(adjusted, below), jnp.clip(adjusted, above, jnp.maximum(above, 1)))
    usable = valid if lattice.is_exact(level) else valid & (level.value > 0) & (level.value < 1)
    return jnp.where(usable, settled, jnp.nan)


def _cut_at(along: Path, place: jax.Array) -> jax.Array:
    size = along.cut.shape[0]
    if size == 0:
        return jnp.asarray(jnp.inf, along.cut.dtype)
    return jnp.where(place < size, along.cut[jnp.minimum(place, size - 1)], jnp.inf).astype(along.cut.dtype)
