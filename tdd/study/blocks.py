"""Repetitions in blocks of fixed size, spread over devices, summed in integers.

Repetition i is lane i mod L of block i div L and has its own random numbers, one program serves every block, and sums
are integers: the numbers depend neither on the devices nor on how a study is cut into calls. `simulate` is for numbers
that are no counts, on one device.
"""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from tdd.cores import available_cores

__all__ = ["BlockSums", "simulate", "sum_over_blocks"]

_AXIS = "repetitions"

BlockSums: TypeAlias = Callable[[Any, int, int], Any]


def sum_over_blocks(
    one_block: Callable[[Any, jax.Array, jax.Array, Any], Any],
    zero: Callable[[], Any],
    *,
    lanes: int,
    devices: Sequence[Any],
) -> BlockSums:
    """Make a compiled function that runs a range of repetitions and returns its sums.

    Args:
      one_block: `(operands, index, real, totals) -> totals` with index [L] uint32, the numbers of the repetitions of
        this block, real [L] bool, which of them are asked for, and totals the sums so far, to which the block adds.
      zero: `() -> totals`, integers.
      lanes: L, repetitions a block; part of the program, not of the results.
      devices: devices that share the blocks.

    Returns:
      `(operands, first, last) -> totals` for the repetitions first..last-1. Every leaf has a leading axis over the
      devices, or over the threads that share one host: sum over it. Every range runs in the same compiled program.
    """
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

    if count == 1:
        alone = jax.jit(lambda operands, bounds: own_blocks(operands, bounds, jnp.uint32(0)))
        return _on_threads(alone, devices[0], lanes, available_cores() if devices[0].platform == "cpu" else 1)
    mesh = jax.make_mesh((count,), (_AXIS,), axis_types=(jax.sharding.AxisType.Auto,), devices=devices)
    spread, everywhere = jax.sharding.PartitionSpec(_AXIS), jax.sharding.PartitionSpec()
    sharded = jax.shard_map(
        lambda operands, bounds: own_blocks(operands, bounds, jax.lax.axis_index(_AXIS).astype(jnp.uint32)),
        mesh=mesh,
        in_specs=(everywhere, everywhere),
        out_specs=spread,
        check_vma=False,
    )
    compiled, whole = jax.jit(sharded), jax.sharding.NamedSharding(mesh, everywhere)
    return lambda operands, first, last: compiled(*jax.device_put((operands, _bounds(first, last)), whole))


def _on_threads(alone: Any, device: Any, lanes: int, threads: int) -> BlockSums:
    """One program on one device, each thread with a part of the range: XLA's loops use one core of a host.

    It is compiled, and its operands are put on the device, by the thread that asks for it: JAX's settings, such as
    double precision, are those of a thread.
    """
    compiled: dict[Any, Any] = {}

    def run(operands: Any, first: int, last: int) -> Any:
        operands, bounds = jax.device_put((operands, _bounds(first, last)), device)
        leaves, structure = jax.tree.flatten(operands)
        kind = (structure, *map(jax.typeof, leaves))
        if kind not in compiled:
            compiled[kind] = alone.lower(operands, bounds).compile()
        call = compiled[kind]
        size = -(-(last - first) // (threads * lanes)) * lanes
        cuts = [*range(first, last, size), last]
        if len(cuts) <= 2:
            return call(operands, bounds)
        parts = [jax.device_put(_bounds(*cut), device) for cut in itertools.pairwise(cuts)]
        with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
            sums = list(pool.map(lambda part: jax.device_get(call(operands, part)), parts))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *sums)

    return run


def _bounds(first: int, last: int) -> np.ndarray:
    return np.asarray([first, last], np.uint32)


def simulate(one: Callable[[jax.Array], Any], *, seed: int, repetitions: int, batch: int = 2_000) -> Any:
    """Run a pure function `one(key) -> pytree of scalars` many times; leaves are [repetitions], float64 NumPy arrays.

    Repetition i has the same key for any `batch`, the number of repetitions side by side: it bounds the memory and
    changes no result.
    """
    keys = jax.random.split(jax.random.key(seed), repetitions)
    compiled = jax.jit(functools.partial(jax.lax.map, one, batch_size=min(batch, repetitions)))
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), compiled(keys))
