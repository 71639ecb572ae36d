"""Checks of knockoffs: the fields that hold them, and the scores of items and of their knockoffs."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.core import Tracer

from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = [
    "as_scores_with_knockoffs",
    "check_some_complete",
]


def as_scores_with_knockoffs(original: Any, knockoffs: Any, mask: Any, prefix: str = "") -> tuple[Any, Any, Any]:
    """Scores [n] and [n, k] and a mask [n] or None, of one item a row.

    Args:
      original: scores of the items.
      knockoffs: scores of their knockoffs.
      mask: True = real item, or None.
      prefix: "" or "calibration", for the names in messages.

    Raises:
      InputError: wrong shapes, no knockoffs, infinite scores.
    """
    names = ("original", "knockoffs", "mask") if not prefix else (prefix, f"{prefix}_knockoffs", f"{prefix}_mask")
    original = arrays.as_vector(original, names[0])
    knockoffs = arrays.as_matrix(knockoffs, names[1], "[items, knockoffs of an item]")
    if knockoffs.shape[1] == 0:
        raise InputError(f"{names[1]} has shape {tuple(knockoffs.shape)}: every item needs at least one knockoff")
    if knockoffs.shape[0] != original.shape[0]:
        turned = "; it looks transposed" if knockoffs.shape[1] == original.shape[0] else ""
        raise InputError(
            f"{names[1]} has {knockoffs.shape[0]} rows and {names[0]} has {original.shape[0]} items; give one row of "
            f"knockoff scores an item, in the same order{turned}"
        )
    mask = arrays.as_mask(mask, original, names[2])
    arrays.check_finite(original, names[0])
    arrays.check_finite(knockoffs, names[1])
    return original, knockoffs, mask


def check_some_complete(original: Any, knockoffs: Any, mask: Any, name: str, why: str) -> None:
    """At least one item is not masked out and has all its scores."""
    arrays.check_some(original, mask, name, why)
    if any(isinstance(value, Tracer) for value in (original, knockoffs, mask)):
        return
    complete = ~np.isnan(np.asarray(original, float)) & ~np.isnan(np.asarray(knockoffs, float)).any(axis=1)
    arrays.check_some(np.where(complete, 0.0, np.nan), mask, f"{name} with its knockoffs", why)
