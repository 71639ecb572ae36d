"""Checks of a sequential test: its schedule of looks, and the plan before it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = ["as_count", "as_looks"]


def as_count(value: Any, name: str, largest: int = 10**9) -> int:
    """A whole number from 1 to `largest`."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not 1 <= value <= largest:
        raise InputError(f"{name} must be a whole number from 1 to {largest:,}, got {value!r}")
    return int(value)


def as_looks(looks: Any, horizon: int | None) -> tuple[int, ...]:
    """Looks that rise from 1 or more, up to the horizon where there is one."""
    if isinstance(looks, (str, bytes)) or not isinstance(looks, (Sequence, np.ndarray)) or len(looks) == 0:
        raise InputError(f"looks must be whole numbers of shuffles in rising order, as (1, 5, 25); got {looks!r}")
    wanted = tuple(as_count(look, f"looks[{i}]") for i, look in enumerate(looks))
    for before, after in itertools.pairwise(wanted):
        if after <= before:
            raise InputError(f"looks must rise, got {after} after {before}; name each number of shuffles once")
    if horizon is not None and wanted[-1] > horizon:
        raise InputError(
            f"the last look is at {wanted[-1]} shuffles, beyond horizon={horizon}; raise horizon, or leave it out"
        )
    return wanted
