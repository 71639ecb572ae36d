"""NumPy scores in double precision are computed with in double precision, whatever JAX's default type.

Differences of scores, unlike their order, do not survive rounding: single precision ties gaps that the data tell apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import lattice
from tdd.procedures.calls import tracing
from tdd.records import KnockoffSelection

__all__ = ["computed", "single_selection"]

_T = TypeVar("_T")


def computed(run: Callable[[list[Any]], _T], samples: Sequence[Any], *others: Any) -> _T:
    """run(samples) in double precision if any sample is a NumPy array of 64 bits, else in JAX's own.

    Args:
      run: makes its level operands itself, inside the precision in which it is called.
      samples: arrays as `arrays.as_vector` and `as_matrix` return them, or None.
      others: whatever else the run uses that may be traced.

    Returns:
      The result of `run`: NumPy arrays with float64 leaves in the first case.
    """
    given = [sample for sample in samples if sample is not None]
    wide = (
        jnp.result_type(float) == np.float32
        and all(isinstance(sample, np.ndarray) for sample in given)
        and any(sample.dtype.itemsize == 8 for sample in given)
        and not tracing(*others)
    )
    if not wide:
        return run([None if sample is None else jnp.asarray(sample) for sample in samples])
    with jax.enable_x64(True):
        result = run([None if sample is None else jnp.asarray(sample, np.float64) for sample in samples])
        return jax.tree.map(np.asarray, result)


def single_selection(selection: KnockoffSelection, alpha: Any) -> KnockoffSelection:
    """A selection in JAX's default type; rounding carries neither `adjusted` nor `statistic` across its limit."""
    if not isinstance(selection.adjusted, np.ndarray):
        return selection
    level = jax.tree.map(np.asarray, lattice.as_level(alpha))
    narrow = jax.tree.map(lambda leaf: leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf, selection)
    selected, cut = selection.selected, narrow.cut
    adjusted = np.where(
        selected, np.minimum(narrow.adjusted, level.below32), np.maximum(narrow.adjusted, level.above32)
    )
    beneath = np.minimum(narrow.statistic, np.nextafter(cut, np.float32(-np.inf)))
    statistic = np.where(selected, np.maximum(narrow.statistic, cut), beneath)
    changed = {"adjusted": adjusted, "statistic": np.where(np.isinf(cut), narrow.statistic, statistic)}
    narrow = dataclasses.replace(narrow, **{name: value.astype(np.float32) for name, value in changed.items()})
    return jax.tree.map(jnp.asarray, narrow)
