"""Checks of the test of canonical order: examples, templates, shards, context, options."""

from __future__ import annotations

from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = [
    "check_count",
    "check_target",
]


def check_count(name: str, value: Any, minimum: int = 1) -> int:
    """A whole number of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < minimum:
        raise InputError(f"{name}={value!r} must be a whole number, at least {minimum}")
    return int(value)


def check_target(value: Any, stop: str | None = None) -> None:
    """A level at which a sequential run stops; with `stop`, by a rule that stops for evidence."""
    if value is not None and not (isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1):
        raise InputError(f"target_p={value!r} must be a number between 0 and 1")
    if value is not None and stop in ("none", "besag_clifford"):
        raise InputError(
            f'target_p={value!r} asks to stop for evidence, which stop="{stop}" never does; use stop="spending" or '
            'stop="e_process", or leave target_p out'
        )
