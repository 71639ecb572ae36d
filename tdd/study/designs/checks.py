"""Checks of the fields of designs: sizes, numbers in ranges, names out of fixed sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = ["NULLS", "check_counts", "check_names", "check_number", "check_numbers", "is_known"]

NULLS = ("nonmember", "member")


def is_known(value: Any) -> bool:
    """Whether a field holds values, rather than a tracer or a stand-in for a leaf of a pytree."""
    if isinstance(value, (list, tuple)):
        return all(is_known(item) for item in value)
    return isinstance(value, (bool, int, float, str, np.ndarray, np.generic))


def check_counts(design: Any, *names: str) -> None:
    """Check sizes of a design: whole numbers of at least 1."""
    for name in names:
        value = getattr(design, name)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise InputError(
                f"{type(design).__name__}: {name} must be a whole number of at least 1, got {value!r}; sizes are "
                "static, a change of them compiles anew"
            )


def check_numbers(design: Any, **ranges: tuple[float | None, float | None]) -> None:
    """Check numbers of a design against closed ranges; None is no limit, and None as a value is left alone."""
    for name, (low, high) in ranges.items():
        value = getattr(design, name)
        if value is None or not is_known(value) or np.ndim(value) > 0:
            continue
        check_number(f"{type(design).__name__}: {name}", value, low, high)


def check_number(name: str, value: Any, low: float | None, high: float | None) -> None:
    """Check for a finite number within a closed range."""
    number = math.nan if isinstance(value, (bool, str)) else float(value)
    if math.isfinite(number) and (low is None or number >= low) and (high is None or number <= high):
        return
    span = {
        (True, True): "",
        (False, True): f" of at least {low}",
        (True, False): f" of at most {high}",
        (False, False): f" from {low} to {high}",
    }[low is None, high is None]
    raise InputError(f"{name} must be a finite number{span}, got {value!r}")


def check_names(design: Any, **choices: Sequence[str]) -> None:
    """Check names against fixed sets."""
    for name, allowed in choices.items():
        value = getattr(design, name)
        if value not in allowed:
            raise InputError(
                f"{type(design).__name__}: {name} must be one of {', '.join(map(repr, allowed))}; got {value!r}"
            )
