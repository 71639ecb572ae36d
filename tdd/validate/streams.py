"""Checks of what a stream is tested with: levels of wealth, horizons, logarithms, what chance decides."""

from __future__ import annotations

from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = [
    "as_size",
]

_LARGEST = 10**7


def as_size(value: Any, name: str, why: str) -> int:
    """A whole number from 1 to ten million: how much memory a stream has."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not 1 <= value <= _LARGEST:
        raise InputError(f"{name} must be a whole number from 1 to {_LARGEST:,} ({why}), got {value!r}")
    return int(value)
