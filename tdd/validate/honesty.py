"""Checks of what is passed to the honesty checks of an audit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = ["check_groups", "check_near", "check_sizes", "exact_fraction", "score_vector"]


def check_groups(groups: tuple[Sequence[Any], Sequence[Any]], num_calibration: int, num_candidates: int) -> None:
    """One group a text, calibration groups first."""
    sizes = tuple(len(part) for part in groups)
    if sizes != (num_calibration, num_candidates):
        raise InputError(
            f"groups must be a pair with one group a text: expected lengths {(num_calibration, num_candidates)}, "
            f"got {sizes}"
        )


def check_near(near: float) -> None:
    """A similarity above 0 and up to 1."""
    if not 0 < near <= 1:
        raise InputError(f"near={near!r} must be a Jaccard similarity above 0 and at most 1")


def check_sizes(num_calibration: int, num_tests: int) -> None:
    """Counts of items."""
    for name, value in (("num_calibration", num_calibration), ("num_tests", num_tests)):
        if value < 0 or value != int(value):
            raise InputError(f"{name}={value!r} must be a whole number, 0 or more")


def exact_fraction(name: str, value: float | Fraction, *, below_one: bool) -> Fraction:
    """The decimal that a number is written as, exactly: 0.1 is 1/10."""
    fraction = value if isinstance(value, Fraction) else None
    if fraction is None and math.isfinite(value):
        fraction = Fraction(repr(float(value)))
    if fraction is None or fraction < 0 or (below_one and not 0 < fraction < 1):
        raise InputError(f"{name}={value!r} must be {'between 0 and 1' if below_one else 'finite and not negative'}")
    return fraction


def score_vector(scores: Any, texts: Sequence[str] | None) -> np.ndarray:
    """Scores as [n] float64, one a text where texts are given."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1:
        raise InputError(f"scores must have one axis, got shape {values.shape}")
    if texts is not None and len(texts) != values.size:
        raise InputError(f"{values.size} scores but {len(texts)} texts: they must belong to the same items")
    return values
