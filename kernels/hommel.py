"""Hommel's procedure: the closed test of all Simes tests.

With s_i = min_j i·p_(m-i+j)/j the Simes p-value of the i largest p-values, h(alpha) = max{i: s_i > alpha} bounds the
number of true nulls, and p_j is rejected iff h(alpha)·p_j <= alpha. More powerful than Hochberg and Holm.

The s_i come from one pass: s_i is the slope of the tangent from the point (m - i, 0) to the lower convex hull of the
points (l, p_(l)), and the tangent points follow from a binary search among the places where the hull's edges meet
the axis.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tdd.kernels import lattice
from tdd.kernels import stepup_parts as parts
from tdd.kernels.majorant import concave_majorant
from tdd.kernels.stepup_parts import StepUp

__all__ = ["hommel"]


def hommel(p_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> StepUp:
    """Hommel's procedure: reject p_j <= alpha/h(alpha), every p_j where h(alpha) = 0.

    Guarantee: family-wise error rate <= alpha for p-values for which Simes' inequality holds among the true nulls:
    independent or PRDS, conformal ones among them; finite-sample. Arguments and errors as `stepup.bh`.

    Cost: a sort, the hull of m points (`majorant.concave_majorant`), O(m log m) searches.
    References: Hommel (1988); Meijer, Krebs & Goeman (2019) for fast forms.
    """
    values, valid, m = parts.items(p_values, mask)
    level = lattice.as_level(alpha)
    critical = parts.critical(level, values.dtype)
    simes = _simes(jnp.sort(values), m)
    place = jnp.arange(simes.size, dtype=jnp.int32)
    free = jnp.max(jnp.where(simes > critical, place, 0), initial=0)
    reject = valid & (values * free.astype(values.dtype) <= critical)
    return parts.result(reject, _adjusted(values, m, simes), values, valid, m, level)


def _simes(ordered: jax.Array, m: jax.Array) -> jax.Array:
    """s_i for i = 0..M (0 for i = 0 and beyond m) of p-values in order, the masked ones last."""
    size, dtype = ordered.shape[0], ordered.dtype
    if size == 0:
        return jnp.zeros(1, dtype)
    l = jnp.minimum(jnp.arange(1, size + 1, dtype=jnp.int32), m)  # noqa: E741 (the paper's letter)
    y = ordered[jnp.maximum(l - 1, 0)]
    y = jnp.where(m > 0, y, 0)
    x = l.astype(dtype)
    left, right = concave_majorant(x, -y)
    # The place where the edge that leaves the vertex at or after each point meets the axis; ascending.
    following = right[jnp.minimum(right + 1, size - 1)]
    run, rise = x[following] - x[right], y[following] - y[right]
    meets = jnp.where(rise > 0, x[right] - y[right] * (run / rise), -jnp.inf)
    meets = jax.lax.cummax(jnp.where(x[right] >= m.astype(dtype), jnp.inf, meets))
    i = jnp.arange(1, size + 1, dtype=jnp.int32)
    origin = (m - i).astype(dtype)
    vertex = right[jnp.minimum(jnp.searchsorted(meets, origin, side="right"), size - 1)]
    # The neighbours too: a rounded meeting place may point one vertex aside.
    around = jnp.stack([left[vertex], vertex, right[jnp.minimum(vertex + 1, size - 1)]])
    steps = x[around] - origin[None]
    simes = jnp.where(steps > 0, i.astype(dtype)[None] * y[around] / jnp.maximum(steps, 1), jnp.inf)
    return jnp.concatenate([jnp.zeros(1, dtype), jnp.where(i <= m, jnp.min(simes, axis=0), 0)])


def _adjusted(values: jax.Array, m: jax.Array, simes: jax.Array) -> jax.Array:
    """min over i = 0..m of max(i·p_j, s_(i+1)), s made decreasing: found where i·p_j, rising, crosses s, falling."""
    falling = jnp.append(jax.lax.cummax(simes, reverse=True), 0)
    dtype = values.dtype

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        crossed = middle.astype(dtype) * values >= falling[middle + 1]
        return jnp.where(crossed, low, middle + 1), jnp.where(crossed, middle, high)

    start = jnp.zeros(values.shape, jnp.int32), jnp.broadcast_to(m, values.shape)
    _, i = jax.lax.fori_loop(0, max(1, values.size).bit_length() + 1, halve, start)
    product = jnp.where(i > 0, i.astype(dtype) * values, 0)
    return jnp.minimum(jnp.where(i > 0, jnp.minimum(product, falling[i]), 0), 1)
