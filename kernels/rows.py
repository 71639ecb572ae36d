"""Many rows through one kernel, a few at a time, so that the rows at work stay in the processor's cache.

A kernel that passes over its items several times, as a step-up decision does, is bound by memory where `jax.vmap` sends
all rows through every pass together, and runs as long as the slowest row of all. In blocks each row is read from memory
once, and a block waits only for its own slowest row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["BLOCK_ITEMS", "map_rows"]

BLOCK_ITEMS = 2**14  # 128 KiB of float64


def map_rows(fun: Callable[..., Any], *arrays: jax.Array, block_items: int = BLOCK_ITEMS) -> Any:
    """`jax.vmap(fun)(*arrays)`: on a CPU in blocks of rows, elsewhere all rows together.

    Args:
      fun: a function of one row of each array; pure, any pytree of arrays out.
      *arrays: [B, ...], at least one, all with the same B.
      block_items: Static, how many elements of the widest array a block holds, at least; never less than a row.

    Returns: What `jax.vmap(fun)` returns, for any B. The last block overlaps the one before it where B is no multiple.
    Raises ValueError: no arrays, or arrays whose leading axes differ.
    """
    sizes = {array.shape[:1] for array in arrays}
    if len(sizes) != 1 or sizes == {()}:
        raise ValueError(f"every array needs the same leading axis, got shapes {[array.shape for array in arrays]}")
    together = jax.vmap(fun)
    num_rows = arrays[0].shape[0]
    widest = max((array.size for array in arrays), default=0) // max(num_rows, 1)
    block = min(max(1, block_items // max(widest, 1)), num_rows)
    if block == num_rows:
        return together(*arrays)

    def blocks(*arrays: jax.Array) -> Any:
        def one(index: jax.Array, done: Any) -> Any:
            first = jnp.minimum(index * block, num_rows - block)
            block_results = together(*(jax.lax.dynamic_slice_in_dim(array, first, block) for array in arrays))
            write = lambda every, some: jax.lax.dynamic_update_slice_in_dim(every, some, first, 0)  # noqa: E731
            return jax.tree.map(write, done, block_results)

        shapes = jax.eval_shape(together, *arrays)
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.fori_loop(0, -(-num_rows // block), one, empty)

    return jax.lax.platform_dependent(*arrays, cpu=blocks, default=together)
