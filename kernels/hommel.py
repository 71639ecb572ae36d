"""Hommel's procedure: the closed test of all Simes tests.

With s_i = min_j i·p_(m-i+j)/j the Simes p-value of the i largest p-values, h(alpha) = max{i: s_i > alpha} bounds the
number of true nulls, and p_j is rejected iff h(alpha)·p_j <= alpha. More powerful than Hochberg and Holm.

The decision needs no order of the items: the i largest p-values fail from some i on, the first of which follows for
each p-value from its place l, about (m - l)·alpha/(alpha - p_(l)). The least of these is found among bins of
[0, alpha], of which those that may hold it are divided again. The s_i of the adjusted p-values come from one pass: s_i
is the slope of the tangent from the point (m - i, 0) to the lower convex hull of the points (l, p_(l)), and the tangent
points follow from a binary search among the places where the hull's edges meet the axis.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tdd.kernels import lattice, platforms, ranks
from tdd.kernels import stepup_parts as parts
from tdd.kernels.majorant import concave_majorant
from tdd.kernels.stepup_parts import StepUp

__all__ = ["hommel"]

_FEW = 2**10  # p-values that are faster put in order than divided into bins
_MAX_BINS = 2**13
_MAX_DIVISIONS = 16
_ROUNDING = 2  # by so many a rounded number of hypotheses may be wrong, for up to two million of them


def hommel(p_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> StepUp:
    """Hommel's procedure: reject p_j <= alpha/h(alpha), every p_j where h(alpha) = 0.

    Guarantee: family-wise error rate <= alpha for p-values for which Simes' inequality holds among the true nulls:
    independent or PRDS, conformal ones among them; finite-sample. Arguments and errors as `stepup.bh`.

    Cost: a few passes over the items for `reject`; for `adjusted` a sort, the hull of m points
    (`majorant.concave_majorant`) and O(m log m) searches.
    References: Hommel (1988); Meijer, Krebs & Goeman (2019) for fast forms.
    """
    values, valid, m = parts.items(p_values, mask)
    level = lattice.as_level(alpha)
    critical = parts.critical(level, values.dtype)
    free = jnp.minimum(_first_failure(values, m, critical) - 1, m)
    reject = valid & (values * free.astype(values.dtype) <= critical)
    return parts.result(reject, _adjusted(values, m, _simes(jnp.sort(values), m)), values, valid, m, level)


def _first_failure(values: jax.Array, m: jax.Array, critical: jax.Array) -> jax.Array:
    """The least i for which Simes' test rejects the i largest p-values, above m where there is none, [] int32."""
    size, dtype = values.shape[0], values.dtype
    if size == 0:
        return jnp.int32(1)
    if size <= _FEW:
        keys, _ = ranks.order_keys(values)
        return _first_of_order(ranks.scores_of_keys(jnp.sort(keys), dtype), m, critical)
    num_bins = min(_MAX_BINS, 1 << size.bit_length())
    place = jnp.arange(num_bins, dtype=jnp.int32)

    def divide(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        low, high, below, least, passes = state
        # Rounded, yet in the order of the values; the ends fall into the first and the last bin.
        width = jnp.where(high > low, high - low, 1)
        inside = (values >= low) & (values <= high)
        own = jnp.clip(((values - low) / width * (num_bins - 1)).astype(jnp.int32), 0, num_bins - 1)
        own = jnp.where(inside, own, num_bins)
        held = jnp.zeros(num_bins, jnp.int32).at[own].add(1, mode="drop")
        largest = jnp.zeros(num_bins, dtype).at[own].max(values, mode="drop")
        upto = below + platforms.cumsum(held)
        # The largest of a bin stands at the bin's last place; none of its others fails before one at its edge would.
        least = jnp.minimum(least, jnp.min(jnp.where(held > 0, _failure(largest, upto, m, critical), size + 1)))
        edge = low + width * (place.astype(dtype) / (num_bins - 1))
        edge = jnp.maximum(low, edge * (1 - parts.tolerance(dtype)) - width * parts.tolerance(dtype))
        may = (held > 1) & (edge < largest) & (_failure(edge, upto, m, critical) < least)
        first = jnp.min(jnp.where(may, place, num_bins - 1))
        last = jnp.max(jnp.where(may, place, 0))
        below = upto[first] - held[first]
        low = jnp.where(jnp.any(may), edge[first], jnp.inf)
        return low, largest[last], below, least, passes + 1

    start = jnp.zeros((), dtype), critical, jnp.int32(0), jnp.int32(size + 1), jnp.int32(0)
    state = jax.lax.while_loop(lambda state: (state[0] <= state[1]) & (state[4] < _MAX_DIVISIONS), divide, start)

    def order_items(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        ordered = jnp.sort(values + (state[0] > state[1]).astype(dtype))  # by 0: so that the sort stays in the loop
        return jnp.full((), jnp.inf, dtype), *state[1:3], _first_of_order(ordered, m, critical), state[4]

    return jax.lax.while_loop(lambda state: state[0] <= state[1], order_items, state)[3]


def _first_of_order(ordered: jax.Array, m: jax.Array, critical: jax.Array) -> jax.Array:
    """`_first_failure` of p-values in order."""
    size = ordered.shape[0]
    place = jnp.arange(1, size + 1, dtype=jnp.int32)
    return jnp.min(jnp.where(ordered <= critical, _failure(ordered, place, m, critical), size + 1))


def _failure(p: jax.Array, place: jax.Array, m: jax.Array, critical: jax.Array) -> jax.Array:
    """The least i that fails by the p-value p <= critical at place l of all m: i·p/(i - (m - l)) <= critical."""
    above = m - place
    gap = critical - p
    about = above.astype(p.dtype) * (critical / jnp.where(gap > 0, gap, 1))
    about = jnp.where(gap > 0, about, jnp.where(above > 0, jnp.inf, 0))
    start = jnp.maximum(jnp.minimum(about, m.astype(p.dtype)).astype(jnp.int32) - _ROUNDING, above + 1)
    fails = lambda i: i.astype(p.dtype) * p / (i - above).astype(p.dtype) <= critical  # noqa: E731
    answer = start + 2 * _ROUNDING + 1
    for step in range(2 * _ROUNDING, -1, -1):
        answer = jnp.where(fails(start + step), start + step, answer)
    return answer


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
    meets = platforms.cummax(jnp.where(x[right] >= m.astype(dtype), jnp.inf, meets))
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
    falling = jnp.append(platforms.cummax(simes, reverse=True), 0)
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
