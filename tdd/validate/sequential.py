"""Checks of a sequential test: its schedule of looks, and the plan before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = ["as_count"]


def as_count(value: Any, name: str, largest: int = 10**9) -> int:
    """A whole number from 1 to `largest`."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not 1 <= value <= largest:
        raise InputError(f"{name} must be a whole number from 1 to {largest:,}, got {value!r}")
    return int(value)
