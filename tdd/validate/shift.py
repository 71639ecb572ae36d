"""Checks of weights and labels that come with scores: covariate shift, clusters, groups."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from tdd.validate.errors import InputError

__all__ = ["as_item_weights", "as_labels"]


def as_item_weights(weights: Any, values: Any, mask: Any, name: str, *, some: bool) -> jax.Array | np.ndarray:
    """One weight an item; where the item is real, finite and not negative, with `some` not all zero.

    Args:
      weights: [n] numbers.
      values: [n] the scores that they belong to.
      mask: [n] bool or None.
      name: of the argument, for messages.
      some: whether at least one must be positive.

    Raises:
      InputError: another shape, not numbers, or a bad weight of a real item.
    """
    if isinstance(weights, Tracer):
        _same_length(weights.shape, np.shape(values), name)
        return weights
    try:
        host = np.asarray(weights, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a one-dimensional array of numbers: {error}") from error
    _same_length(host.shape, np.shape(values), name)
    if not isinstance(values, Tracer) and not isinstance(mask, Tracer):
        real = ~np.isnan(np.asarray(values, float)) & (True if mask is None else np.asarray(mask))
        bad = np.flatnonzero(real & ~((host >= 0) & np.isfinite(host)))
        if bad.size:
            raise InputError(
                f"{name}[{bad[0]}] is {float(host[bad[0]])!r}; a weight is a ratio of densities, so each must be "
                f"finite and not negative ({bad.size} of {host.size} are not)"
            )
        if some and real.any() and not (host[real] > 0).any():
            raise InputError(
                f"{name} are all zero; at least one calibration item must be possible among the candidates"
            )
    return weights if isinstance(weights, jax.Array) else host


def as_labels(labels: Any, values: Any, name: str) -> list[Hashable]:
    """One hashable label an item, none of them missing.

    Raises:
      InputError: traced labels, another length, an unhashable or missing label.
    """
    if isinstance(labels, Tracer):
        raise InputError(f"{name} must be known before tracing: pass it as a constant, not as an argument of jax.jit")
    if isinstance(labels, (str, bytes)):
        raise InputError(f"{name} must be a sequence of labels, one an item; got the single text {labels!r}")
    try:
        found: list[Any] = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    except TypeError as error:
        raise InputError(f"{name} must be a sequence of labels, one an item: {error}") from error
    if not isinstance(found, list):
        raise InputError(f"{name} must be a sequence of labels, one an item; got {labels!r}")
    _same_length((len(found),), np.shape(values), name)
    for i, label in enumerate(found):
        if not _hashes(label):
            raise InputError(
                f"{name}[{i}] is {label!r}, which cannot be a label: labels must be hashable and one an item"
            )
        if label is None or type(label).__name__ in ("NAType", "NaTType") or label != label:
            raise InputError(f"{name}[{i}] is missing ({label!r}); give an item without a cluster a label of its own")
    return found


def _hashes(label: Any) -> bool:
    try:
        hash(label)
    except TypeError:
        return False
    return True


def _same_length(shape: tuple[int, ...], expected: tuple[int, ...], name: str) -> None:
    if shape != expected:
        raise InputError(f"{name} has shape {shape}, but there are {expected[0]} scores: one entry a score is needed")
