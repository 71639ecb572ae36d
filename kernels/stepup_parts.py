"""Shared parts of step-up and step-down procedures on p-values: items, levels, fixed points, orders and the result.

A procedure takes its `items`, finds how many it rejects by `fixed_point`, and packs the decision with `result`, which
sees to `reject == (adjusted <= alpha)`. `scaled_bh` and `step_down` are whole families of procedures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import lattice, platforms, ranks

__all__ = [
    "StepUp",
    "count",
    "critical",
    "fixed_point",
    "items",
    "order",
    "result",
    "scaled_bh",
    "step_down",
    "tolerance",
]

_MAX_PASSES = 32


class StepUp(NamedTuple):
    """Decisions of one procedure."""

    reject: jax.Array  # [m] bool, in input order; False for masked items
    adjusted: jax.Array  # [m] adjusted p-values in [0, 1], NaN for masked items; `reject == (adjusted <= alpha)`
    threshold: jax.Array  # [] the largest rejected p-value, 0 where nothing is rejected
    num_rejected: jax.Array  # [] int32
    num_tests: jax.Array  # [] int32, m without masked and NaN items
    null_proportion: jax.Array  # [] the estimate of the proportion of true nulls that was used, 1 where none was


def items(p_values: jax.Array, mask: jax.Array | None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """p-values in at least single precision with masked items at +inf, the mask, and m."""
    p_values = ranks.at_least_single(p_values)
    valid = ranks.real(p_values, mask)
    return jnp.where(valid, p_values, jnp.inf), valid, jnp.sum(valid, dtype=jnp.int32)


def tolerance(*dtypes: Any) -> float:
    """Four machine epsilons of the coarsest of the types."""
    return 4 * max(float(jnp.finfo(dtype).eps) for dtype in dtypes)


def critical(level: lattice.Level, dtype: Any) -> jax.Array:
    """alpha with the tolerance of the floating-point comparisons; NaN for a traced level out of range."""
    value = jnp.asarray(level.value)
    widened = value.astype(dtype) * (1 + tolerance(dtype, value.dtype))
    return widened if lattice.is_exact(level) else jnp.where(lattice.in_range(level), widened, jnp.nan)


def count(valid: jax.Array, passes: jax.Array) -> jax.Array:
    """Number of real items that pass, [] int32."""
    return jnp.sum(valid & passes, dtype=jnp.int32)


def fixed_point(
    count: Callable[[jax.Array], jax.Array],
    start: jax.Array,
    directly: Callable[[jax.Array], jax.Array],
) -> jax.Array:
    """Iterate k <- count(k), monotone in k, from `start` until it stands still.

    A few passes do, except for data made to move k one by one; after 32 the answer comes from `directly(zero)`, which
    orders the items. It must add `zero`, a [] int32 that is 0, to all that costs it time: XLA takes what does not
    depend on the state out of a loop, and would then sort in every call.
    """

    def step(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        k, _, passes = state
        return count(k), k, passes + 1

    def moving(state: tuple[jax.Array, ...]) -> jax.Array:
        return (state[0] != state[1]) & (state[2] < _MAX_PASSES)

    k, last, _ = jax.lax.while_loop(moving, step, (start, start + 1, jnp.int32(0)))

    def order_items(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return (directly((state[0] == state[1]).astype(jnp.int32)),) * 2  # the loop runs where they differ

    # A loop and not a branch: a batch under vmap pays for it only if one of its members is unfinished.
    return jax.lax.while_loop(lambda state: state[0] != state[1], order_items, (k, last))[0]


def order(values: jax.Array) -> tuple[jax.Array, jax.Array, Callable[[jax.Array], jax.Array]]:
    """Sorted values, their places 0..m-1, and the function that takes results from the places back to the items.

    Equal items get the result of the first of their places, which is that of all of them where results are running
    minima or maxima. A sort of integers and one binary search an item stand in for a sort that carries the places.
    """
    place = jnp.arange(values.shape[0], dtype=jnp.int32)
    keys, _ = ranks.order_keys(values)
    ordered = jnp.sort(keys)

    def back(results: jax.Array) -> jax.Array:
        return results[jnp.searchsorted(ordered, keys)] if values.size else results

    return ranks.scores_of_keys(ordered, values.dtype), place, back


def result(
    reject: jax.Array,
    adjusted: jax.Array,
    values: jax.Array,
    valid: jax.Array,
    num_tests: jax.Array,
    level: lattice.Level,
) -> StepUp:
    """Pack a decision; put the adjusted values on their side of alpha and NaN where nothing was tested."""
    adjusted = lattice.settle(reject, adjusted, level)
    return StepUp(
        reject,
        jnp.where(valid & lattice.in_range(level), adjusted, jnp.nan),
        jnp.max(jnp.where(reject, values, 0), initial=0),
        jnp.sum(reject, dtype=jnp.int32),
        num_tests,
        jnp.ones((), values.dtype),
    )


def scaled_bh(p_values: jax.Array, alpha: Any, scale: jax.Array, mask: jax.Array | None) -> StepUp:
    """The step-up procedure that rejects scale·p_(k) <= k·alpha; scale = m is BH, pi0·m is BH at alpha/pi0."""
    values, valid, num_tests = items(p_values, mask)
    level = lattice.as_level(alpha)
    scale = scale.astype(values.dtype)

    def passes(k: jax.Array) -> jax.Array:
        return values * scale <= k.astype(values.dtype) * critical(level, values.dtype)

    def directly(zero: jax.Array) -> jax.Array:
        ordered, place, _ = order(values + zero.astype(values.dtype))
        allowed = ordered * scale <= (place + 1).astype(values.dtype) * critical(level, values.dtype)
        return jnp.max(jnp.where(allowed, place + 1, 0), initial=0)

    # No item that does not count passes: its value is infinite.
    num_rejected = fixed_point(lambda k: jnp.sum(passes(k), dtype=jnp.int32), num_tests, directly)
    reject = valid & passes(num_rejected) & (num_rejected > 0)
    ordered, place, back = order(values)
    adjusted = platforms.cummin(ordered * scale / (place + 1).astype(values.dtype), reverse=True)
    return result(reject, back(jnp.minimum(adjusted, 1)), values, valid, num_tests, level)


def step_down(
    p_values: jax.Array,
    alpha: Any,
    mask: jax.Array | None,
    *,
    cut: Callable[[jax.Array, jax.Array], jax.Array],
    adjust: Callable[[jax.Array, jax.Array], jax.Array],
) -> StepUp:
    """The step-down procedure that rejects while p_(i) <= cut(alpha, m - i + 1).

    `cut` (alpha, l) -> the largest p-value that one of l hypotheses is rejected at, decreasing in l; `adjust` (l, p) ->
    the smallest alpha with p <= cut(alpha, l), increasing in both.
    """
    values, valid, num_tests = items(p_values, mask)
    level = lattice.as_level(alpha)

    def largest(rejected: jax.Array) -> jax.Array:
        left = jnp.maximum(num_tests - rejected, 1).astype(values.dtype)
        return cut(critical(level, values.dtype), left)

    def directly(zero: jax.Array) -> jax.Array:
        ordered, place, _ = order(values + zero.astype(values.dtype))
        fails = (place < num_tests) & (ordered > largest(place))
        return jnp.min(jnp.where(fails, place, num_tests), initial=place.size)

    num_rejected = fixed_point(lambda k: count(valid, values <= largest(k)), jnp.zeros_like(num_tests), directly)
    reject = valid & (values <= largest(num_rejected))
    ordered, place, back = order(values)
    left = jnp.maximum(num_tests - place, 1).astype(values.dtype)
    adjusted = platforms.cummax(adjust(left, ordered))
    return result(reject, back(adjusted), values, valid, num_tests, level)
