"""Checks of score paths over many looks at the same items."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import lattice
from tdd.validate import arrays
from tdd.validate.errors import InputError
from tdd.validate.sequential import as_count

__all__ = ["as_horizon", "as_paths", "as_relabellings", "as_suspects"]

_MAX_ITEMS = 2**18 - 1
_MAX_LABELS = 2**32  # bytes of the table of labellings


def as_paths(scores: Any) -> jax.Array | np.ndarray:
    """[T, N] finite scores or NaN, with some item to rank at every look."""
    array = arrays.as_matrix(scores, "scores", "[looks, items]")
    arrays.check_finite(array, "scores")
    num_looks, num_items = array.shape
    if num_looks == 0:
        raise InputError("scores has no look: it must hold one row of scores a look, [looks, items]")
    if num_items > _MAX_ITEMS:
        raise InputError(f"scores has {num_items:,} items; ranks are exact up to {_MAX_ITEMS:,}: take a sample of them")
    if isinstance(array, Tracer) or not jnp.issubdtype(array.dtype, jnp.floating):
        return array
    empty = np.flatnonzero(np.isnan(np.asarray(array)).all(axis=1))
    if len(empty):
        raise InputError(f"scores[{empty[0]}] has no item to rank: all {num_items} are NaN; leave this look out")
    return array


def as_suspects(is_suspect: Any, num_items: int) -> np.ndarray:
    """[N] bool with at least one suspect and one reference item."""
    if isinstance(is_suspect, Tracer):
        raise InputError("is_suspect must be known before tracing: the labellings are drawn on the host")
    array = np.asarray(is_suspect)
    if array.dtype != np.bool_:
        raise InputError(f"is_suspect must be boolean (True = suspect, False = reference), got dtype {array.dtype}")
    if array.shape != (num_items,):
        raise InputError(f"is_suspect has shape {array.shape}, but scores has {num_items} items a look")
    count = int(array.sum())
    if not 0 < count < num_items:
        missing = "suspect" if count == 0 else "reference"
        raise InputError(f"is_suspect names {count} of {num_items} items: at least one {missing} item is needed")
    return array


def as_relabellings(num_draws: Any, alpha: Any, num_items: int) -> int:
    """A number of random labellings at which the level can be reached, and whose table can be held."""
    count = as_count(num_draws, "num_draws")
    level = lattice.as_level(alpha)
    if int(level.numerator) * (count + 1) < int(level.denominator):
        needed = math.ceil(int(level.denominator) / int(level.numerator)) - 1
        raise InputError(
            f"num_draws={count} random labellings cannot give a p-value of alpha={alpha} or below; at least {needed} "
            "are needed, and 20 times as many for looks that share the level"
        )
    if (count + 1) * num_items > _MAX_LABELS:
        raise InputError(
            f"num_draws={count:,} labellings of {num_items:,} items take {(count + 1) * num_items / 2**30:.1f} GiB; "
            f"at most {_MAX_LABELS // num_items - 1:,} draws fit in {_MAX_LABELS // 2**30} GiB"
        )
    return count


def as_horizon(horizon: Any, num_looks: int) -> int | None:
    """A number of looks fixed beforehand, at least those that were taken."""
    if horizon is None:
        return None
    wanted = as_count(horizon, "horizon")
    if wanted < num_looks:
        raise InputError(
            f"scores has {num_looks} looks, more than horizon={wanted}: a horizon is fixed before the first look; "
            f"pass scores[:{wanted}], or horizon=None where none was fixed"
        )
    return wanted
