"""Checks of the log-probabilities of shards and their shuffles."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = ["as_draws", "as_shards"]

_MAX_DRAWS = 10**9


def as_shards(canonical: Any, shuffled: Any, mask: Any) -> tuple[Any, Any, Any]:
    """[r] and [r, k] log-probabilities and a mask [r] or None, checked.

    Raises:
      InputError: wrong or mismatched shapes, no shard, no shuffle, infinite values, every shard masked out or NaN.
    """
    canonical = arrays.as_vector(canonical, "canonical")
    _check_axes(canonical, shuffled)
    shuffled = arrays.as_matrix(shuffled, "shuffled", "[shards, shuffles]")
    r, (rows, k) = canonical.shape[0], shuffled.shape
    if r == 0:
        raise InputError("canonical is empty; at least one shard is needed")
    if rows != r:
        turned = "; it looks transposed: pass shuffled.T" if k == r else ""
        raise InputError(
            f"canonical has {r} shards and shuffled has shape {(rows, k)}; shuffled needs one row a shard and one "
            f"column a shuffle, [{r}, shuffles]{turned}"
        )
    if k == 0:
        raise InputError(f"shuffled has shape {(rows, k)}: at least one shuffle a shard is needed")
    for name, values in (("canonical", canonical), ("shuffled", shuffled)):
        _check_finite(values, name)
    mask = arrays.as_mask(mask, canonical, "mask")
    if not isinstance(canonical, Tracer) and not isinstance(shuffled, Tracer) and not isinstance(mask, Tracer):
        unknown = np.isnan(np.asarray(canonical, float)) | np.isnan(np.asarray(shuffled, float)).any(axis=1)
        if not (~unknown if mask is None else ~unknown & np.asarray(mask)).any():
            raise InputError(
                f"no shard is left: {int(unknown.sum())} of {r} have a NaN in canonical or shuffled, the others are "
                "masked out"
            )
    return canonical, shuffled, mask


def as_draws(num_draws: Any) -> int:
    """A whole number of draws, from 1 to 1e9."""
    whole = isinstance(num_draws, (int, np.integer)) and not isinstance(num_draws, bool)
    if not whole or not 1 <= num_draws <= _MAX_DRAWS:
        raise InputError(f"num_draws must be a whole number from 1 to {_MAX_DRAWS:,}, got {num_draws!r}")
    return int(num_draws)


def _check_axes(canonical: Any, shuffled: Any) -> None:
    """One axis too few is the common mistake: say which of its two meanings needs which brackets."""
    try:
        ndim = np.ndim(shuffled)
    except ValueError:  # rows of different lengths: reported with the other checks
        return
    if ndim == 1:
        length, r = np.shape(shuffled)[0], canonical.shape[0]
        fix = "shuffled[:, None] for one shuffle of each shard" if length == r else "one row a shard"
        if r == 1:
            fix = "[shuffled] for the shuffles of the only shard"
        raise InputError(f"shuffled must have two axes, [shards, shuffles]; got shape ({length},): pass {fix}")


def _check_finite(values: Any, name: str) -> None:
    if isinstance(values, Tracer) or not jnp.issubdtype(values.dtype, jnp.floating):
        return
    host = np.asarray(values, float)
    bad = np.argwhere(np.isinf(host))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        raise InputError(
            f"{name}[{', '.join(map(str, where))}] is {host[where]}; {len(bad)} of {host.size} log-probabilities are "
            "infinite. A model that gives a text probability 0 (or 1 to an overflow) cannot be tested; use NaN for a "
            "value that is missing: its shard is left out and counted"
        )
