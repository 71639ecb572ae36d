"""E-values from knockoffs: one knockoff+ run a draw, averaged over the draws, then e-BH."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tdd.kernels import evalues, lattice
from tdd.kernels.knockoff import first_place
from tdd.kernels.knockoff_path import path

__all__ = ["derandomized_e_values"]


def derandomized_e_values(w: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> jax.Array:
    """e_j = the mean over the k draws of p·1{W_j >= T} / (1 + #{W <= -T}), p the number of items.

    T is the knockoff+ threshold of the draw at level `alpha`, which is not the level of the e-BH that follows: with
    k > 1 use half of that (the same level leaves no power).

    Guarantee: the e-values of the non-members sum to at most p in expectation if, in each draw, the signs of their W
    are fair coins given everything else; the draws may depend on one another in any way. Finite-sample.

    Args:
      w: [n, k] statistics of each item against each knockoff, large = member; a NaN masks the item in every draw.
      alpha: level in (0, 1) that places T; it costs no validity.
      mask: [n] bool, True = real item.

    Returns:
      [n] e-values; 0 where no draw selects, NaN for masked items and everywhere for a traced alpha out of range.

    Raises:
      ValueError: k = 0; static alpha outside (0, 1).

    Cost: k sorts of n integers.

    References: Ren & Barber (2024), eq. 6-7 and theorem 1.
    """
    level = lattice.as_level(alpha)
    valid = ~jnp.isnan(w).any(axis=1)
    valid = valid if mask is None else valid & mask
    num_items = jnp.sum(valid, dtype=jnp.int32)

    def one(draw: jax.Array) -> jax.Array:
        along = path(draw, mask=valid)
        first = first_place(along, level)
        size = draw.shape[0]
        against = along.against[jnp.minimum(first, size - 1)] if size else jnp.int32(0)
        value = num_items.astype(along.cut.dtype) / (1 + against).astype(along.cut.dtype)
        return jnp.where(along.positive & (along.place >= first), value, 0)

    usable = valid if lattice.is_exact(level) else valid & (level.value > 0) & (level.value < 1)
    return jnp.where(usable, evalues.average(jax.vmap(one, in_axes=1)(w)), jnp.nan)
