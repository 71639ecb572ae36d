"""Running sums of integers, running maxima and minima: on a CPU one item after the other, elsewhere as `jax.lax` does.

XLA makes a tree of windows of them. On a CPU one loop takes a tenth of the time, and a batch runs through it side by
side. No result depends on the order of the operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["cummax", "cummin", "cumsum"]


def cumsum(values: jax.Array, *, reverse: bool = False) -> jax.Array:
    """[m] sums of the items up to each one, of integers; `reverse` for those from it on."""
    return _running(jnp.add, jax.lax.cumsum, values, reverse)


def cummax(values: jax.Array, *, reverse: bool = False) -> jax.Array:
    """[m] the largest of the items up to each one; `reverse` for those from it on. After NaN all are NaN."""
    return _running(jnp.maximum, jax.lax.cummax, values, reverse)


def cummin(values: jax.Array, *, reverse: bool = False) -> jax.Array:
    """[m] the smallest of the items up to each one; `reverse` for those from it on. After NaN all are NaN."""
    return _running(jnp.minimum, jax.lax.cummin, values, reverse)


def _running(join: Callable[..., jax.Array], tree: Callable[..., Any], values: jax.Array, reverse: bool) -> jax.Array:
    size = values.shape[0]
    if size < 2:
        return values

    def step(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        place = size - 1 - i if reverse else i
        so_far = join(state[0], state[1][place])
        return so_far, jax.lax.dynamic_update_index_in_dim(state[1], so_far, place, 0)

    def one_by_one(values: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(1, size, step, (values[-1 if reverse else 0], values))[1]

    return jax.lax.platform_dependent(values, cpu=one_by_one, default=lambda values: tree(values, reverse=reverse))
