"""Checks of a labelled pool that is resampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = ["as_labelled_pool", "as_proportions"]

_LARGEST = 2**24


def as_labelled_pool(scores: Any, is_member: Any) -> tuple[np.ndarray, np.ndarray]:
    """Scores [N], finite, in their own type, and labels [N] bool with both values.

    Raises:
      InputError: anything else.
    """
    values = np.asarray(scores)
    if values.ndim != 1 or values.dtype.kind not in "fiu":
        raise InputError(
            f"scores must be one number an item, shape [N]; got {values.dtype} of shape {values.shape}. One pool holds "
            "one score: study several one by one"
        )
    if not 2 <= len(values) < _LARGEST:
        raise InputError(f"scores must hold from 2 to {_LARGEST - 1:,} items, got {len(values):,}")
    bad = int((~np.isfinite(values)).sum()) if values.dtype.kind == "f" else 0
    if bad:
        raise InputError(
            f"scores has {bad} missing or infinite values among {len(values)} items; leave these items out"
        )
    labels = np.asarray(is_member)
    if labels.shape != values.shape:
        raise InputError(f"is_member must be one label an item, shape {values.shape}; got shape {labels.shape}")
    if labels.dtype != np.bool_ and not np.isin(labels, (0, 1)).all():
        raise InputError(f"is_member must hold True and False (or 1 and 0), got {np.unique(labels)[:5].tolist()}")
    labels = labels.astype(bool)
    if labels.all() or not labels.any():
        kind = "members" if labels[0] else "non-members"
        raise InputError(f"is_member says that all {len(labels)} items are {kind}; a pool needs both")
    return values, labels


def as_proportions(methods: Any, known: Sequence[str]) -> tuple[str, ...]:
    """Names of proportion estimates, without repeats; one may stand alone.

    Raises:
      InputError: an unknown or repeated name, or none.
    """
    names = (methods,) if isinstance(methods, str) else tuple(methods)
    if not names:
        raise InputError(f"methods is empty; choose among {', '.join(known)}")
    for name in names:
        if name not in known:
            raise InputError(
                f"methods must be among {', '.join(known)}, got {name!r}; tdd.study.run takes any other method"
            )
        if names.count(name) > 1:
            raise InputError(f"methods names {name!r} twice")
    return names
