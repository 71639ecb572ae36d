"""Checks of what shared prefixes are scored with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tdd.validate.errors import InputError

__all__ = ["check_shares", "check_suffixes"]


def check_shares(lm: Any) -> None:
    """The model computes a prefix apart from what follows it."""
    absent = [name for name in ("prefix", "hidden_after", "hidden", "readout") if getattr(lm, name) is None]
    if absent:
        raise InputError(
            f"the model does not share prefixes: it has no {', '.join(absent)}; score whole sequences instead"
        )


def check_suffixes(num_before: int, lengths: Sequence[int], first_target: int, limit: int | None) -> None:
    """Every suffix has a scored token and fits behind the prefix."""
    if first_target < 1:
        raise InputError(f"first_target must be at least 1, got {first_target}: nothing in a suffix precedes its first")
    for i, length in enumerate(lengths):
        if length <= first_target:
            raise InputError(
                f"suffix {i} has {length} token(s), none from first_target = {first_target} on; share fewer tokens"
            )
        if limit is not None and num_before + length > limit:
            raise InputError(
                f"suffix {i} of {length} tokens after a prefix of {num_before} makes {num_before + length}, but the "
                f"model accepts at most {limit}; score in windows"
            )
