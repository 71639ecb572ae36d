"""Checks of the sizes of models, of token arrays, and of what foreign readers raise."""

from __future__ import annotations

import contextlib
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = ["check_choice", "check_divides", "check_positive", "check_tokens", "panics", "reading"]


def check_positive(**values: float) -> None:
    """Check that every named number is above zero, and finite."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise InputError(f"{name} must be a positive number, got {value!r}")


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Check that `value` is one of `choices`."""
    if value not in choices:
        raise InputError(f"{name}={value!r} is not supported; supported: {', '.join(map(str, choices))}")


def check_divides(**sizes: int) -> None:
    """Check that the first named size divides the second."""
    (part_name, part), (whole_name, whole) = sizes.items()
    check_positive(**sizes)
    if whole % part:
        raise InputError(f"{whole_name}={whole} must be a multiple of {part_name}={part}")


def check_tokens(shape: Sequence[int], dtype: Any, max_length: int | None) -> None:
    """Check that token ids are integers [B, T] with T within the model's positions."""
    if len(shape) != 2 or not np.issubdtype(dtype, np.integer) or shape[1] == 0:
        raise InputError(f"tokens must be an integer array [B, T], T >= 1; got {dtype} {tuple(shape)}")
    if max_length is not None and shape[1] > max_length:
        raise InputError(
            f"tokens have length {shape[1]}, but the model accepts at most {max_length}; "
            "truncate the texts or score them in windows"
        )


@contextlib.contextmanager
def reading(path: pathlib.Path, wanted: str) -> Iterator[None]:
    """Turn whatever a foreign reader raises into an InputError that names the file."""
    try:
        with panics(f"{path} does not hold {wanted}"):
            yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path} does not hold {wanted}: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def panics(message: str) -> Iterator[None]:
    """Turn a panic of a library in Rust, which is no `Exception`, into an InputError."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise InputError(f"{message}: {error}; mend or replace tokenizer.json") from error
