"""Checks of metric writers."""

from __future__ import annotations

from typing import Any

from tdd.validate.errors import InputError

__all__ = ["METHODS", "check_writer"]

METHODS = ("write_scalars", "add_scalar", "scalar", "log", "log_metrics")
"""What writers of scalars are recognised by, in this order."""


def check_writer(writer: Any) -> None:
    """Something that scalars can be handed to."""
    if not callable(writer) and not any(callable(getattr(writer, name, None)) for name in METHODS):
        raise InputError(
            f"writer {type(writer).__name__} has none of the methods {', '.join(METHODS)} and cannot be called; pass "
            "a function of (step, scalars)"
        )
