"""Checks that both kinds of plan share: sizes, probabilities, numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = ["as_counts", "as_float", "as_probability"]

_LARGEST = 2**24


def as_float(value: Any) -> float:
    """A number, or NaN, which fails every comparison, for what is not one."""
    return math.nan if isinstance(value, (bool, str)) else float(value)


def as_counts(name: str, value: Any) -> tuple[int, ...]:
    """One whole number of at least 1, or several, each once, in order."""
    counts = [value] if np.ndim(value) == 0 else list(value)
    for count in counts:
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
            raise InputError(f"{name} must be whole numbers of at least 1, got {count!r}")
        if count >= _LARGEST:
            raise InputError(f"{name} must be below {_LARGEST:,}, got {count:,}")
    if not counts:
        raise InputError(f"{name} is empty; give at least one number, for example 1000")
    return tuple(dict.fromkeys(int(count) for count in counts))


def as_probability(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    number = as_float(value)
    if not 0 < number < 1:
        raise InputError(f"{name} must lie strictly between 0 and 1, got {value!r}")
    return number
