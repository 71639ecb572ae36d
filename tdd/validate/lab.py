"""Checks of the laboratory's arguments: corpora, splits, training and its saved state."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

from tdd.validate.errors import InputError

__all__ = [
    "check_count",
    "check_out",
    "check_range",
    "check_texts",
]


def check_count(name: str, value: object, *, minimum: int) -> None:
    """`value` is a whole number of at least `minimum` that 32 bits hold."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < minimum:
        raise InputError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
    if int(value) >= 2**32:
        raise InputError(f"{name} must be a whole number below 2^32, got {value!r}")


def check_range(name: str, value: Any, low: float, high: float = math.inf) -> None:
    """`value` is a finite number of low..high."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not low <= float(value) <= high:
        bound = f"between {low:g} and {high:g}" if high < math.inf else f"of at least {low:g}"
        raise InputError(f"{name} must be a number {bound}, got {value!r}")
    if not math.isfinite(value):
        raise InputError(f"{name} must be finite, got {value!r}")


def check_texts(name: str, texts: Sequence[Any]) -> None:
    """`texts` is a non-empty sequence of non-empty strings."""
    if isinstance(texts, (str, bytes)):
        raise InputError(f"{name} must be a sequence of texts, got a single {type(texts).__name__}")
    if len(texts) == 0:
        raise InputError(f"{name} is empty; give at least one text")
    for index, text in enumerate(texts):
        if not isinstance(text, str) or not text:
            raise InputError(f"{name}[{index}] must be a non-empty string, got {text!r}")


def check_out(out: Any, is_file: bool) -> None:
    """`out` can be a folder."""
    if is_file:
        raise InputError(f"out={str(out)!r} is a file; name a folder")
