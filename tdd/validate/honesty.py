"""Checks of what is passed to the honesty checks of an audit."""

from __future__ import annotations

from tdd.validate.errors import InputError

__all__ = ["check_near"]


def check_near(near: float) -> None:
    """A similarity above 0 and up to 1."""
    if not 0 < near <= 1:
        raise InputError(f"near={near!r} must be a Jaccard similarity above 0 and at most 1")
