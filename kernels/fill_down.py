"""Tables of running counts, filled row by row from the last to the first: lanes side by side, one state a lane.

`fill_down` is a loop of XLA's. On one GPU it is one kernel, which keeps the state of a lane in registers, where every
step of a loop is a launch and sends the state through memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tdd.kernels import platforms

__all__ = ["fill_down"]

_BLOCK = 128
"""Lanes of a program of the kernel: one a thread."""

_Item = Callable[[Any, Any, Any, Any], tuple[Any, Any]]


def fill_down(
    item: _Item, state: Any, fixed: Any, tables: Any, *, rows: int, kinds: tuple[Any, ...], unroll: int = 1
) -> tuple[Any, tuple[jax.Array, ...]]:
    """Fill tables from row `rows - 1` down to row 0.

    Args:
      item: `(place, state, fixed, tables) -> (values, state)`: a value [L] of every table at a place, a [] int32, and
        the state for the place below. It may capture Python's numbers, not arrays.
      state: Pytree of [L] arrays.
      fixed: Pytree of [L] arrays, the same for every place.
      tables: Pytree of [R] or [R, L] arrays; `item` takes elements or rows of them, `table[i]` with i in 0..R-1.
      rows: Rows of the tables, at least 1.
      kinds: Type of each table.
      unroll: Rows in one step of the loop, as in `jax.lax.scan`; the numbers do not depend on it.

    Returns: the state below the first place, and the tables, [rows, L] each.
    """
    looped = functools.partial(_looped, item, rows, kinds, min(unroll, rows))
    lanes = jax.tree.leaves(state)[0].shape[0]
    if lanes % _BLOCK or not platforms.fused_on("gpu"):
        return looped(state, fixed, tables)
    fused = functools.partial(_fused, item, rows, kinds)
    return lax.platform_dependent(state, fixed, tables, cuda=fused, default=looped)


def _looped(
    item: _Item, rows: int, kinds: tuple[Any, ...], unroll: int, state: Any, fixed: Any, tables: Any
) -> tuple[Any, tuple[jax.Array, ...]]:
    lanes = jax.tree.leaves(state)[0].shape[0]

    def step(top: Any, state: Any, filled: tuple[jax.Array, ...], size: int) -> tuple[Any, tuple[jax.Array, ...]]:
        """Fill `size` rows from row `top` down."""
        values = []
        for i in range(size):
            row, state = item(top - i, state, fixed, tables)
            values.append(row)
        blocks = [jnp.stack(column[::-1]) for column in zip(*values, strict=True)]
        place = (top - size + 1, 0)
        put = [lax.dynamic_update_slice(x, y.astype(x.dtype), place) for x, y in zip(filled, blocks, strict=True)]
        return state, tuple(put)

    filled = tuple(jnp.zeros((rows, lanes), kind) for kind in kinds)
    rest = rows % unroll
    if rest:
        state, filled = step(jnp.int32(rows - 1), state, filled, rest)

    def body(i: jax.Array, carry: tuple[Any, tuple[jax.Array, ...]]) -> tuple[Any, tuple[jax.Array, ...]]:
        return step(rows - 1 - rest - i * unroll, *carry, unroll)

    return lax.fori_loop(0, rows // unroll, body, (state, filled))


class _Rows:
    """Rows of a table in a kernel: the lanes of its program."""

    def __init__(self, table: Any, lanes: Any) -> None:
        self._table, self._lanes = table, lanes

    def __getitem__(self, place: Any) -> Any:
        return self._table[place] if len(self._table.shape) == 1 else self._table[place, self._lanes]


def _fused(
    item: _Item,
    rows: int,
    kinds: tuple[Any, ...],
    state: Any,
    fixed: Any,
    tables: Any,
    *,
    interpret: bool = False,
) -> tuple[Any, tuple[jax.Array, ...]]:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    leaves, structure = jax.tree.flatten((state, fixed, tables))
    states, state_structure = jax.tree.flatten(state)
    lanes = states[0].shape[0]

    def kernel(*refs: Any) -> None:
        own = pl.ds(pl.program_id(0) * _BLOCK, _BLOCK)
        given, last, filled = refs[: len(leaves)], refs[len(leaves) : -len(kinds)], refs[-len(kinds) :]
        state, fixed, tables = jax.tree.unflatten(structure, given)
        state, fixed = jax.tree.map(lambda ref: ref[own], (state, fixed))
        tables = jax.tree.map(lambda ref: _Rows(ref, own), tables)

        def step(i: Any, state: Any) -> Any:
            place = rows - 1 - i
            values, state = item(place, state, fixed, tables)
            for ref, value in zip(filled, values, strict=True):
                ref[place, own] = value.astype(ref.dtype)
            return state

        for ref, value in zip(last, jax.tree.leaves(lax.fori_loop(0, rows, step, state)), strict=True):
            ref[own] = value

    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in states]
    shapes += [jax.ShapeDtypeStruct((rows, lanes), kind) for kind in kinds]
    # JAX 0.10 would take Mosaic for a GPU that is not told otherwise.
    options = None if interpret else triton.CompilerParams(num_warps=_BLOCK // 32)
    outputs = pl.pallas_call(
        kernel,
        grid=(lanes // _BLOCK,),
        out_shape=shapes,
        compiler_params=options,
        interpret=interpret,
        name="fill_down",
    )(*leaves)
    return jax.tree.unflatten(state_structure, outputs[: len(states)]), tuple(outputs[len(states) :])
