"""Repetitions in blocks of fixed size, shared out over devices, summed in integers.

Repetition number i is lane i mod L of block i div L and has its own random numbers, whatever runs beside it; the
program of one block is the same on one device and on many; and the sums are integers. So the numbers do not depend
on the devices, nor on how a study is cut into calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

__all__ = ["BlockSums", "sum_over_blocks"]

_AXIS = "repetitions"

BlockSums: TypeAlias = Callable[[Any, int, int], Any]


def sum_over_blocks(
    one_block: Callable[[Any, jax.Array, jax.Array, Any], Any],
    zero: Callable[[], Any],
    *,
    lanes: int,
    devices: Sequence[Any] | None = None,
    compiler_options: Mapping[str, Any] | None = None,
) -> BlockSums:
    """A compiled function that runs a range of repetitions and returns its sums.

    Args:
      one_block: `(operands, index, real, totals) -> totals` with index [L] uint32, the numbers of the repetitions of
        this block, real [L] bool, which of them are asked for, and totals the sums so far, to which the block adds.
      zero: `() -> totals`, integers.
      lanes: L, repetitions a block; part of the program, not of the results.
      devices: to share the blocks out over (default: all of the default backend).
      compiler_options: of XLA, for this function alone.

    Returns:
      `(operands, first, last) -> totals` for the repetitions first..last-1, where first is a multiple of L. Every
      leaf has a leading axis over the devices: sum over it. The call returns before the work is done, and every
      range runs in the same compiled program.
    """
    devices = list(jax.devices() if devices is None else devices)
    count = len(devices)

    def own_blocks(operands: Any, bounds: jax.Array, own: jax.Array) -> Any:
        first, last = bounds[0], bounds[1]
        blocks = (last - first + jnp.uint32(lanes - 1)) // jnp.uint32(lanes)
        mine = (blocks + jnp.uint32(count - 1) - own) // jnp.uint32(count)

        def body(step: jax.Array, totals: Any) -> Any:
            block = step.astype(jnp.uint32) * jnp.uint32(count) + own
            index = first + block * jnp.uint32(lanes) + jnp.arange(lanes, dtype=jnp.uint32)
            return one_block(operands, index, index < last, totals)

        totals = jax.lax.fori_loop(0, mine.astype(jnp.int32), body, zero())
        return jax.tree.map(lambda leaf: leaf[None], totals)

    options = dict(compiler_options or {})
    if count == 1:
        alone = jax.jit(
            lambda operands, bounds: own_blocks(operands, bounds, jnp.uint32(0)), compiler_options=options
        )
        return lambda operands, first, last: alone(operands, _bounds(first, last))
    mesh = jax.make_mesh((count,), (_AXIS,), axis_types=(jax.sharding.AxisType.Auto,), devices=devices)
    spread, everywhere = jax.sharding.PartitionSpec(_AXIS), jax.sharding.PartitionSpec()
    sharded = jax.shard_map(
        lambda operands, bounds: own_blocks(operands, bounds, jax.lax.axis_index(_AXIS).astype(jnp.uint32)),
        mesh=mesh,
        in_specs=(everywhere, everywhere),
        out_specs=spread,
        check_vma=False,
    )
    compiled = jax.jit(sharded, compiler_options=options)
    return lambda operands, first, last: compiled(operands, _bounds(first, last))


def _bounds(first: int, last: int) -> jax.Array:
    return jnp.asarray([first, last], jnp.uint32)
