"""Checks of the guards of a training run: watched texts, batches of tokens, numbers in their order of arrival."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = [
    "as_step",
    "rows_of_ids",
    "some_texts",
    "wrong_state",
]


def some_texts(name: str, texts: Any, *, may_be_empty: bool) -> list[Any]:
    """Strings alone or rows of token ids alone, as a list."""
    if isinstance(texts, (str, bytes)) or not hasattr(texts, "__len__") or not hasattr(texts, "__iter__"):
        raise InputError(f"{name} must be a list of texts or of rows of token ids, got {_short(texts)}")
    found = list(texts)
    if not found and not may_be_empty:
        raise InputError(f"{name} is empty; give at least one text")
    strings = [isinstance(text, str) for text in found]
    if any(strings) and not all(strings):
        odd = strings.index(not strings[0])
        raise InputError(
            f"{name} mixes strings and rows of token ids: {name}[{odd}] is {_short(found[odd])}; give one kind"
        )
    return found


def rows_of_ids(name: str, rows: Sequence[Any]) -> list[np.ndarray]:
    """Token ids of each text: one axis of non-negative whole numbers, not empty."""
    arrays = []
    for index, row in enumerate(rows):
        array = np.asarray(row)
        whole = array.ndim == 1 and array.size > 0 and np.issubdtype(array.dtype, np.integer)
        if not whole or array.min() < 0 or array.max() >= 2**31:
            raise InputError(
                f"{name}[{index}] must be a row of one or more token ids (whole numbers from 0), got {_short(row)}"
            )
        arrays.append(array.astype(np.int32))
    return arrays


def as_step(step: Any, last: int | None) -> int:
    """A step from 0 that does not go back."""
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if isinstance(step, (bool, np.bool_)) or not 0 <= number < 2**31:
        raise InputError(f"step must be a whole number from 0 to 2^31 - 1, got {step!r}")
    if last is not None and number < last:
        raise InputError(
            f"step={number} comes after step {last}: what it holds would be counted twice; after a restart give the "
            "guard the state that was saved with the checkpoint (load_state_dict)"
        )
    return number


def wrong_state(what: str, expected: Any, found: Any) -> InputError:
    """A saved state of a guard that watches something else."""
    return InputError(
        f"state is of another guard: its {what} is {found!r}, this guard's is {expected!r}; make the guard with the "
        "arguments of the run that saved the state"
    )


def _short(value: object, length: int = 60) -> str:
    shown = repr(value)
    return shown if len(shown) <= length else shown[: length - 3] + "..."
