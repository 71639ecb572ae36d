"""Checks that several files of the laboratory share: counts, ranges, texts, output folders."""

from __future__ import annotations

import math
import numbers
import pathlib
from collections.abc import Collection, Sequence
from typing import Any

from tdd.validate import InputError
from tdd.validate.options import suggestion


def check_count(name: str, value: object, *, minimum: int) -> None:
    """Require a whole number of at least `minimum` that fits in 32 bits."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < minimum:
        raise InputError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
    if int(value) >= 2**32:
        raise InputError(f"{name} must be a whole number below 2^32, got {value!r}")


def check_counts(record: object, *names: str, minimum: int) -> None:
    """Require such numbers in some fields of a record."""
    for name in names:
        check_count(name, getattr(record, name), minimum=minimum)


def check_range(name: str, value: Any, low: float, high: float = math.inf) -> None:
    """Require a finite number between `low` and `high`, both included."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not low <= float(value) <= high:
        bound = f"between {low:g} and {high:g}" if high < math.inf else f"of at least {low:g}"
        raise InputError(f"{name} must be a number {bound}, got {value!r}")
    if not math.isfinite(value):
        raise InputError(f"{name} must be finite, got {value!r}")


def check_dropout(value: Any) -> None:
    """Require a probability below 1."""
    check_range("dropout", value, 0.0, 1.0)
    if value == 1:
        raise InputError(f"dropout must be below 1, got {value!r}; nothing would be left to train on")


def check_texts(name: str, texts: Sequence[Any]) -> None:
    """Require a non-empty sequence of non-empty strings."""
    if isinstance(texts, (str, bytes)):
        raise InputError(f"{name} must be a sequence of texts, got a single {type(texts).__name__}")
    if len(texts) == 0:
        raise InputError(f"{name} is empty; give at least one text")
    for index, text in enumerate(texts):
        if not isinstance(text, str) or not text:
            raise InputError(f"{name}[{index}] must be a non-empty string, got {text!r}")


def check_out(out: pathlib.Path) -> None:
    """Require a path that is a folder or can become one."""
    if out.exists() and not out.is_dir():
        raise InputError(f"out={str(out)!r} is a file; name a folder")


def check_named(kind: str, name: str, known: Collection[str]) -> None:
    """Require a known name of its kind."""
    if name not in known:
        raise InputError(f"there is no {kind} {name!r}; {suggestion(name, known)}choose one of {', '.join(known)}")
