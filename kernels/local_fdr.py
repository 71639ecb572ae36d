"""Grenander's estimate of the density of p-values, and the local and tail false discovery rates read from it.

With F the least concave majorant of the empirical distribution of the p-values (through (0, 0) and (1, 1)) and f its
left slope, lfdr(p) = min(1, pi0/f(p)) and Fdr(p) = min(1, pi0·p/F(p)).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import ranks
from tdd.kernels.majorant import concave_majorant

__all__ = ["LocalFdr", "local_fdr"]


class LocalFdr(NamedTuple):
    """Estimates at every p-value."""

    local_fdr: jax.Array  # [m] estimated probability that this item is null, NaN for masked items
    # [m] estimated fraction of nulls among the items with p-values up to this one, NaN for masked items
    tail_fdr: jax.Array
    density: jax.Array  # [m] f at the item, +inf at p = 0, NaN for masked items
    num_tests: jax.Array  # [] int32, m without masked and NaN items


def local_fdr(p_values: jax.Array, *, null_proportion: Any = 1.0, mask: jax.Array | None = None) -> LocalFdr:
    """Local and tail false discovery rates by Grenander's density estimate; tied p-values share their values.

    Guarantee, for `null_proportion=1`, finite-sample: if the p-values of the nulls are uniform, and independent of each
    other and of the others, the least extreme of the items with local_fdr <= alpha is a null with probability at most
    alpha·m0/m, for an alpha fixed beforehand. (These items are the selection of Soloff, Xiang & Fithian, which ends at
    the k that maximises alpha·k/m - p_(k).)
    As estimates both are consistent at p-values that stay away from 0, for independent draws of a mixture with a
    decreasing density, if `null_proportion` is the fraction of nulls, and too large if it is larger. At the smallest
    p-values they are not, at any m: where all items are nulls, the smallest local_fdr is below t with probability t.
    With a `null_proportion` below 1, and for tail_fdr, no error rate is controlled.

    Args:
      p_values, mask: [m] in [0, 1], NaN masked out; bool, True = real item.
      null_proportion: [] pi0 in (0, 1]; 1 is conservative. One out of range gives NaN.

    Cost: a sort and the least concave majorant of m points.
    References: Grenander (1956); Efron et al. (2001); Strimmer (2008); Soloff, Xiang & Fithian (2024), "The edge of
    discovery: controlling the local false discovery rate at the margin", theorem 1.
    """
    values = ranks.at_least_single(p_values)
    valid = ranks.real(values, mask)
    size, dtype = values.shape[0], values.dtype
    pi0 = jnp.asarray(null_proportion, dtype)
    pi0 = jnp.where((pi0 > 0) & (pi0 <= 1), pi0, jnp.nan)
    m = jnp.sum(valid, dtype=jnp.int32)
    place = jnp.arange(size, dtype=jnp.int32)
    ordered, order = jax.lax.sort_key_val(jnp.where(valid, values, jnp.inf), place)
    # (0, 0), the p-values with their counts, (1, m); masked items repeat the last point.
    x = jnp.concatenate([jnp.zeros(1, dtype), jnp.minimum(ordered, 1), jnp.ones(1, dtype)])
    y = jnp.minimum(jnp.arange(size + 2, dtype=jnp.int32), m)
    left, right = concave_majorant(x, y)
    left, right = left[1:-1], right[1:-1]
    rise, run = (y[right] - y[left]).astype(dtype), x[right] - x[left]
    total = jnp.maximum(m, 1).astype(dtype)
    density = rise / (run * total)
    height = (y[left].astype(dtype) + rise * jnp.where(run > 0, (ordered - x[left]) / run, 1)) / total
    lfdr = jnp.minimum(pi0 * (run * total) / rise, 1)
    tail = jnp.minimum(pi0 * ordered / height, 1)

    def restored(values: jax.Array) -> jax.Array:
        return jnp.where(valid, jnp.zeros(size, dtype).at[order].set(values, unique_indices=True), jnp.nan)

    return LocalFdr(restored(lfdr), restored(tail), restored(density), m)
