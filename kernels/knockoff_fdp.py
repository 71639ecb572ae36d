"""A bound on the false-discovery proportion of every cut of knockoff statistics at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import lattice
from tdd.kernels.knockoff_path import path

__all__ = ["KnockoffBound", "fdp_bound"]


class KnockoffBound(NamedTuple):
    """What holds for every cut at once, with probability 1 - delta.

    Attributes:
      num_selected: [n] int32, #{W >= W_j}: the size of the selection whose cut is at the item; 0 where W_j <= 0.
      false_bound: [n] int32, at most this many of them are non-members.
      fdp_bound: [n] false_bound / num_selected; NaN where W_j <= 0 or the item is masked.
      min_true: [] int32, at least this many of all items are members.
    """

    num_selected: jax.Array
    false_bound: jax.Array
    fdp_bound: jax.Array
    min_true: jax.Array


def fdp_bound(w: jax.Array, delta: Any, *, mask: jax.Array | None = None) -> KnockoffBound:
    """Non-members among {W >= t}: at most c·(1 + #{W <= -t}) for all t > 0, c = log(1/delta)/log(2 - delta).

    The bounds are sharpened by one another: members found beyond one cut are beyond every smaller one too.

    Guarantee: P(the bound holds for all cuts at once) >= 1 - delta if the signs of the null W are fair coins given
    everything else; finite-sample. The cut may be chosen after seeing everything.

    Args:
      w: [n] statistics, large = member; NaN is masked out.
      delta: probability of failure, in (0, 1); a traced one out of range bounds nothing (fdp_bound NaN).
      mask: [n] bool, True = real item.

    Returns:
      `KnockoffBound`.

    Raises:
      ValueError: static delta outside (0, 1).

    Cost: one sort of n integers and n binary searches.

    References: Katsevich & Ramdas (2020), theorem 2 and section 3.2.
    """
    delta = delta.value if isinstance(delta, lattice.Level) else delta
    if not isinstance(delta, jax.Array) and not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta!r}")
    along = path(w, mask=mask)
    dtype = along.cut.dtype
    chance = jnp.asarray(delta, dtype)
    chance = jnp.where((chance > 0) & (chance < 1), chance, jnp.nan)
    factor = -jnp.log(chance) / jnp.log1p(1 - chance)
    # Rounding may not take a whole item off the bound.
    raw = jnp.floor(factor * (1 + along.against).astype(dtype) * (1 + 16 * float(jnp.finfo(dtype).eps)))
    found = along.favourable.astype(dtype)
    false = jnp.where(raw <= found, raw, found).astype(jnp.int32)  # NaN bounds nothing
    members = jnp.where(along.start, along.favourable - false, 0)
    members = jax.lax.cummax(members, reverse=True)
    if w.shape[0] == 0:
        nothing = jnp.zeros(0, jnp.int32)
        return KnockoffBound(nothing, nothing, jnp.zeros(0, dtype), jnp.int32(0))
    selected = jnp.where(along.positive, along.favourable[along.place], 0)
    false_bound = jnp.where(along.positive, selected - members[along.place], 0)
    share = false_bound.astype(dtype) / jnp.maximum(selected, 1).astype(dtype)
    known = along.positive & ~jnp.isnan(chance)
    return KnockoffBound(selected, false_bound, jnp.where(known, share, jnp.nan), members[0])
