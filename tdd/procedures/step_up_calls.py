"""How every public step-up procedure runs: p-values checked, one family or many rows of them, in their own precision.

NumPy float64 p-values are decided in float64 whatever JAX's default type; the numbers returned come in that default
type. Values are checked by the compiled function that decides, in the pass that it makes anyway.
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
from tdd.kernels import lattice, stepup
from tdd.kernels.rows import map_rows
from tdd.kernels.stepup_parts import StepUp
from tdd.procedures.batches import in_pieces
from tdd.procedures.calls import level_operand, to_common_size, tracing
from tdd.validate import arrays

__all__ = ["PROCEDURES", "run_step_up"]

PROCEDURES: dict[str, Callable[..., StepUp]] = {
    **{name: getattr(stepup, name) for name in ("bh", "storey_bh", "by", "holm", "hochberg", "bonferroni")},
    "hommel": hommels.hommel,
    "sidak": stepup.sidak,
    "holm_sidak": stepup.holm_sidak,
    "two_stage_bh": stepup.two_stage_bh,
}

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
    """One procedure on checked p-values.

    Args:
      procedure: a name in `PROCEDURES`.
      p_values: [..., m]; every row along the last axis is a family of its own.
      alpha: level in (0, 1); may be traced.
      mask: [..., m] or [m] bool, or None.
      static: options of the kernel that are compiled in.
      operands: its other options.
      only_reject: whether the decisions are all that is wanted: without adjusted p-values nothing is sorted.

    Returns:
      `StepUp` with leading axes, or its `reject`.

    Raises:
      InputError: a value outside [0, 1], alpha outside (0, 1), wrong shapes.
    """
    p_values = arrays.as_rows(p_values, "p_values")
    if mask is not None and np.ndim(mask) == 1 < p_values.ndim:
        for_each = arrays.as_mask(mask, np.empty(p_values.shape[-1]), "mask")
        mask = None if for_each is None else jnp.broadcast_to(for_each, p_values.shape)
    mask = arrays.as_mask(mask, p_values, "mask")
    compiled = _compiled(procedure, static, only_reject)
    run = lambda p, mask: compiled(p, level_operand(alpha), mask, operands or {})  # noqa: E731
    if not jnp.issubdtype(p_values.dtype, jnp.floating):
        p_values = p_values.astype(jnp.result_type(float))
    if not isinstance(p_values, np.ndarray) or tracing(alpha, mask):
        found, outside = run(jnp.asarray(p_values), mask)
    else:
        wide = p_values.dtype == np.float64 and jnp.result_type(float) == np.float32
        with jax.enable_x64(True) if wide else contextlib.nullcontext():
            found, outside = _from_host(run, p_values, mask)
        found = jax.tree.map(jnp.asarray, _narrow(found, alpha) if wide and not only_reject else found)
    if isinstance(outside, Tracer) or np.any(outside):
        arrays.check_p_values(p_values)
    return found


@functools.cache
def _compiled(procedure: str, static: Static, only_reject: bool) -> Callable[..., tuple[Any, jax.Array]]:
    """[..., m] p-values to the decisions, and whether a value lies outside [0, 1]."""
    kernel = functools.partial(PROCEDURES[procedure], **dict(static))

    def run(p_values: jax.Array, alpha: Any, mask: jax.Array | None, operands: dict[str, Any]) -> tuple[Any, jax.Array]:
        def family(p_values: jax.Array, mask: jax.Array | None = None) -> tuple[Any, jax.Array]:
            step = kernel(p_values, alpha, mask=mask, **operands)
            return step.reject if only_reject else step, jnp.any((p_values < 0) | (p_values > 1))

        given = (p_values,) if mask is None else (p_values, mask)
        if p_values.ndim == 1:
            return family(*given)
        lead, rows = p_values.shape[:-1], int(np.prod(p_values.shape[:-1]))
        found = map_rows(family, *(array.reshape(rows, p_values.shape[-1]) for array in given))
        return jax.tree.map(lambda leaf: leaf.reshape(lead + leaf.shape[1:]), found)

    return jax.jit(run)


def _from_host(run: Callable[..., Any], p_values: np.ndarray, mask: Any) -> Any:
    """`run` on NumPy p-values, large ones in pieces; NumPy arrays out."""
    if p_values.ndim == 1:
        number, (p_values, mask) = p_values.size, to_common_size(p_values, mask)
        found = jax.tree.map(np.asarray, run(p_values, mask))
        return jax.tree.map(lambda leaf: leaf[:number] if leaf.ndim else leaf, found)
    if p_values.size == 0:
        return jax.tree.map(np.asarray, run(p_values, mask))
    lead, m = p_values.shape[:-1], p_values.shape[-1]
    masks = None if mask is None else np.asarray(mask).reshape(-1, m)
    found = in_pieces(run, p_values.reshape(-1, m), masks)
    return jax.tree.map(lambda leaf: leaf.reshape(lead + leaf.shape[1:]), found)


def _narrow(step: StepUp, alpha: Any) -> StepUp:
    """Results in single precision; rounding may not carry an adjusted value across alpha."""
    level = jax.tree.map(np.asarray, lattice.as_level(alpha))
    adjusted = step.adjusted.astype(np.float32)
    adjusted = np.where(step.reject, np.minimum(adjusted, level.below32), np.maximum(adjusted, level.above32))
    return step._replace(
        adjusted=adjusted.astype(np.float32),
        threshold=step.threshold.astype(np.float32),
        null_proportion=step.null_proportion.astype(np.float32),
    )
