"""Checks of a power plan: sizes, shares, levels, scores with labels, laws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = [
    "as_counts",
    "check_name",
    "check_one_source",
    "check_proportion",
]


def check_name(argument: str, value: Any, known: Sequence[str]) -> str:
    """One of a fixed set of names."""
    if value not in known:
        raise InputError(f"{argument} must be one of {', '.join(known)}; got {value!r}")
    return value


def check_one_source(given: dict[str, bool]) -> str:
    """Exactly one of several sources."""
    names = [name for name, there in given.items() if there]
    if len(names) != 1:
        found = " and ".join(names) or "none of them"
        raise InputError(f"give exactly one of {', '.join(given)}; got {found}")
    return names[0]


def as_counts(argument: str, value: Any) -> tuple[int, ...]:
    """One whole number of at least 1, or several, each once, in order."""
    given = [value] if np.ndim(value) == 0 else list(value)
    for each in given:
        if isinstance(each, bool) or not isinstance(each, (int, np.integer)) or each < 1:
            raise InputError(f"{argument} must be whole numbers of at least 1, got {each!r}")
        if each >= 2**24:
            raise InputError(f"{argument} must be below {2**24:,}, got {each:,}")
    if not given:
        raise InputError(f"{argument} is empty; give at least one number, for example 1000")
    return tuple(dict.fromkeys(int(each) for each in given))


def check_proportion(argument: str, value: Any) -> float:
    """A wanted probability."""
    number = math.nan if isinstance(value, (bool, str)) else float(value)
    if not 0 < number < 1:
        raise InputError(f"{argument} must lie strictly between 0 and 1, got {value!r}")
    return number
