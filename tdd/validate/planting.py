"""Checks of what is planted: numbers of copies, sets of examples, shares and blocks."""

from __future__ import annotations

from collections.abc import Sequence

from tdd.validate.errors import InputError
from tdd.validate.lab import check_count, check_range

__all__ = ["check_copies", "check_shares"]


def check_copies(name: str, value: object, *, minimum: int) -> tuple[int, ...]:
    """Numbers of copies: one whole number, or a non-empty sequence of them."""
    counts = tuple(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else (value,)
    if not counts:
        raise InputError(f"{name} is empty; give at least one number of copies")
    for index, count in enumerate(counts):
        check_count(name if len(counts) == 1 else f"{name}[{index}]", count, minimum=minimum)
    return tuple(int(count) for count in counts)  # type: ignore[arg-type]


def check_shares(name: str, value: object, count: int) -> tuple[float, ...]:
    """A share of 0..1 for each of `count` models: one number for all, or one for each."""
    shares = tuple(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else (value,) * count
    if len(shares) != count:
        raise InputError(f"{name} holds {len(shares)} numbers for {count} models; give one number, or one a model")
    for index, share in enumerate(shares):
        check_range(f"{name}[{index}]" if isinstance(value, Sequence) else name, share, 0.0, 1.0)
    return tuple(float(share) for share in shares)  # type: ignore[arg-type]
