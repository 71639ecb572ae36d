"""Checks of what simultaneous bounds are asked for: offered where a proof covers them, refused elsewhere."""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.validate.errors import InputError

__all__ = ["check_one_score", "check_ranks", "check_size", "check_template"]


def check_size(value: Any, name: str, why: str) -> int:
    """A positive whole number."""
    try:
        size = 0 if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        size = 0
    if size < 1:
        raise InputError(f"{name} must be a positive whole number ({why}), got {value!r}")
    return size


def check_one_score(calibration: Any, scores: Any) -> None:
    """One score an item: the law of the ranks is known for one score alone."""
    for name, values in (("calibration", calibration), ("scores", scores)):
        if np.ndim(values) == 2:
            raise InputError(
                f"{name} has shape {tuple(np.shape(values))}: simultaneous bounds are for one score chosen before its "
                "results were seen. For several detectors pass the conformal ranks of their pooled score to "
                "tdd.fdp_bounds_of_ranks; for Cauchy or largest p-values no such bound is known"
            )


def check_ranks(ranks: Any, num_calibration: int) -> jax.Array | np.ndarray:
    """Conservative conformal ranks: whole numbers from 1 to n + 1."""
    array: Any = ranks if isinstance(ranks, jax.Array) else np.asarray(ranks)
    if array.ndim != 1 or (array.size and not jnp.issubdtype(array.dtype, jnp.integer)):
        raise InputError(
            f"ranks must be a one-dimensional array of whole numbers, got dtype {array.dtype} and shape "
            f"{tuple(array.shape)}; weighted, randomised and combined p-values have no ranks and no such bound"
        )
    if isinstance(array, Tracer):
        return array
    host = np.asarray(array)
    bad = np.flatnonzero((host < 1) | (host > num_calibration + 1))
    if bad.size:
        raise InputError(
            f"ranks[{bad[0]}] is {host[bad[0]]}; with num_calibration={num_calibration} ranks lie in "
            f"1..{num_calibration + 1}. Leave items out by mask"
        )
    return array.astype(np.int32)


def check_template(template: Any, num_calibration: Any, num_tests: int) -> None:
    """A template made for this many calibration scores and for at least this many items."""
    made_for, largest = template.num_calibration, template.num_nulls
    if isinstance(made_for, Tracer) or isinstance(num_calibration, Tracer) or np.ndim(made_for):
        return
    if int(made_for) != int(num_calibration):
        raise InputError(
            f"template was made for num_calibration={int(made_for)}, but {int(num_calibration)} calibration scores are "
            "real (neither NaN nor masked out)"
        )
    top = int(np.max(np.asarray(largest), initial=0))
    if num_tests > top:
        raise InputError(f"template was made for at most {top} items, but scores has {num_tests}")
