"""The driver of all step-up procedures: checked p-values, one family or many rows of them, in their own precision.

The compiled function that decides also checks the values, in a pass that it makes anyway.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import hommel as hommels
from tdd.kernels import stepup
from tdd.kernels.rows import map_rows
from tdd.kernels.stepup_parts import StepUp
from tdd.procedures.calls import level_operand, narrowed, operand, to_common_size, tracing
from tdd.validate import arrays

PROCEDURES: dict[str, Callable[..., StepUp]] = {
    **{name: getattr(stepup, name) for name in ("bh", "storey_bh", "by", "holm", "hochberg", "bonferroni")},
    "hommel": hommels.hommel,
    "sidak": stepup.sidak,
    "holm_sidak": stepup.holm_sidak,
    "two_stage_bh": stepup.two_stage_bh,
}

PIECE_ITEMS = 2**20  # all pieces have one shape: the last may overlap the one before it

Static = tuple[tuple[str, Any], ...]


def run_step_up(
    procedure: str,
    p_values: Any,
    alpha: Any,
    mask: Any,
    *,
    static: Static = (),
    operands: dict[str, Any] | None = None,
    only_reject: bool = False,
) -> Any:
    """Run one of `PROCEDURES` on p-values [..., m], checked with their mask ([..., m], [m] or None).

    `static` are options of the kernel that are compiled in, `operands` its others. With `only_reject` nothing is
    sorted, and the decisions are returned without their `StepUp`.
    """
    p_values = arrays.as_rows(p_values, "p_values")
    if mask is not None and np.ndim(mask) == 1 < p_values.ndim:
        row_mask = arrays.as_mask(mask, np.empty(p_values.shape[-1]), "mask")
        mask = None if row_mask is None else jnp.broadcast_to(row_mask, p_values.shape)
    mask = arrays.as_mask(mask, p_values, "mask")
    compiled = _compiled(procedure, static, only_reject)
    run = lambda p, mask: compiled(p, level_operand(alpha), mask, operands or {})  # noqa: E731
    if not jnp.issubdtype(p_values.dtype, jnp.floating):
        p_values = p_values.astype(jnp.result_type(float))
    if not isinstance(p_values, np.ndarray) or tracing(alpha, mask):
        decisions, outside = run(operand(p_values), mask)
    else:
        wide = p_values.dtype == np.float64 and jnp.result_type(float) == np.float32
        with jax.enable_x64(True) if wide else contextlib.nullcontext():
            decisions, outside = _from_host(run, p_values, mask)
        decisions = jax.device_put(narrowed(decisions, alpha) if wide and not only_reject else decisions)
    if isinstance(outside, Tracer) or np.any(outside):
        arrays.check_p_values(p_values)
    return decisions


@functools.cache
def _compiled(procedure: str, static: Static, only_reject: bool) -> Callable[..., tuple[Any, jax.Array]]:
    """Compile a function from p-values [..., m] to the decisions and whether a value lies outside [0, 1]."""
    kernel = functools.partial(PROCEDURES[procedure], **dict(static))

    def run(p_values: jax.Array, alpha: Any, mask: jax.Array | None, operands: dict[str, Any]) -> tuple[Any, jax.Array]:
        def family(p_values: jax.Array, mask: jax.Array | None = None) -> tuple[Any, jax.Array]:
            step = kernel(p_values, alpha, mask=mask, **operands)
            return step.reject if only_reject else step, jnp.any((p_values < 0) | (p_values > 1))

        given = (p_values,) if mask is None else (p_values, mask)
        if p_values.ndim == 1:
            return family(*given)
        lead, rows = p_values.shape[:-1], int(np.prod(p_values.shape[:-1]))
        by_row = map_rows(family, *(array.reshape(rows, p_values.shape[-1]) for array in given))
        return jax.tree.map(lambda leaf: leaf.reshape(lead + leaf.shape[1:]), by_row)

    return jax.jit(run)


def _from_host(run: Callable[..., Any], p_values: np.ndarray, mask: Any) -> Any:
    """Apply `run` to NumPy p-values, large ones in pieces, and return NumPy arrays."""
    if p_values.ndim == 1:
        number, (p_values, mask) = p_values.size, to_common_size(p_values, mask, coarse=True)
        padded = jax.tree.map(np.asarray, run(p_values, mask))
        return jax.tree.map(lambda leaf: leaf[:number] if leaf.ndim else leaf, padded)
    if p_values.size == 0:
        return jax.tree.map(np.asarray, run(p_values, mask))
    lead, m = p_values.shape[:-1], p_values.shape[-1]
    masks = None if mask is None else np.asarray(mask).reshape(-1, m)
    by_row = in_pieces(run, p_values.reshape(-1, m), masks)
    return jax.tree.map(lambda leaf: leaf.reshape(lead + leaf.shape[1:]), by_row)


def in_pieces(run: Callable[..., Any], rows: np.ndarray, mask: Any) -> Any:
    """Apply a compiled `run` to NumPy rows [B, m] and their mask, a few megabytes at a time.

    A piece that fits the processor's cache is copied to where the one before lay, while that one is being worked on.
    """
    total = rows.shape[0]
    step = max(1, PIECE_ITEMS // max(rows.shape[1], 1))
    if step >= total:
        return jax.tree.map(np.asarray, run(rows, mask))
    firsts = [min(first, total - step) for first in range(0, total, step)]
    pieces = [run(rows[i : i + step], None if mask is None else mask[i : i + step]) for i in firsts]
    repeated = len(firsts) * step - total  # rows of the last piece that the one before has

    def join(*leaves: jax.Array) -> np.ndarray:
        *whole, last = map(np.asarray, leaves)
        return np.concatenate([*whole, last[repeated:]])

    return jax.tree.map(join, *pieces)
