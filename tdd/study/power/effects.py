"""The smallest effect that a test of canonical order detects: a search on an increasing curve over effects."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Curve", "smallest_effects", "told"]

Curve: TypeAlias = Callable[[float], tuple[np.ndarray, np.ndarray]]
"""Effect -> (power, standard error), each [tests, levels]."""

_LARGEST, _SMALLEST = 64.0, 1 / 64  # effects that are tried
_NARROW = 1.2


def told(curve: Curve, tell: Callable[[], None]) -> Curve:
    """Every effect computed once, and told."""
    kept: dict[float, tuple[np.ndarray, np.ndarray]] = {}

    def at(size: float) -> tuple[np.ndarray, np.ndarray]:
        if size not in kept:
            kept[size] = curve(size)
            tell()
        return kept[size]

    return at


def smallest_effects(
    curve: Curve, r: int, share: float, wanted: float, num_tests: int, num_levels: int, search: bool
) -> list[list[dict[str, float | None]]]:
    """By test and level: where the power reaches what is wanted, and where it does plus and minus two s.e."""
    names = ("smallest_effect", "smallest_effect_low", "smallest_effect_high")
    nothing: list[list[dict[str, float | None]]] = [
        [dict.fromkeys(names) for _ in range(num_levels)] for _ in range(num_tests)
    ]
    shown = round(share * r)
    if not search or not shown:
        return nothing
    start = 2.0 ** round(math.log2(min(max(3 * math.sqrt(r) / shown, _SMALLEST), 8.0)))
    for i in range(num_tests):
        for j in range(num_levels):
            seen = _bracketed(lambda size, i=i, j=j: tuple(part[i, j] for part in curve(size)), start, wanted)  # type: ignore[misc]
            sizes = sorted(seen)
            values, errors = np.array([seen[size] for size in sizes]).T
            crossings = [_crossing(sizes, values + sign * errors, wanted) for sign in (0, 2, -2)]
            nothing[i][j] = dict(zip(names, crossings, strict=True))
    return nothing


def _bracketed(curve: Callable[[float], Any], start: float, wanted: float) -> dict[float, tuple[float, float]]:
    """Effects and (power, s.e.), two of them close together on both sides of what is wanted, if there are such."""
    seen = {start: curve(start)}
    low = high = start
    if seen[start][0] >= wanted:
        while seen[low][0] >= wanted and low > _SMALLEST:
            high, low = low, low / 2
            seen[low] = curve(low)
    else:
        while seen[high][0] < wanted and high < _LARGEST:
            low, high = high, high * 2
            seen[high] = curve(high)
    if not seen[low][0] < wanted <= seen[high][0]:
        return seen
    top = high
    while high / low > _NARROW:
        middle = math.sqrt(low * high)
        seen[middle] = curve(middle)
        low, high = (low, middle) if seen[middle][0] >= wanted else (middle, high)
    if seen[top][0] - 2 * seen[top][1] < wanted:  # for the far end of the interval
        seen[2 * top] = curve(2 * top)
    return seen


def _crossing(sizes: Sequence[float], values: np.ndarray, wanted: float) -> float | None:
    """The first effect at which the line through the points, over the logarithm of the effect, reaches a height."""
    above = np.flatnonzero(values >= wanted)
    if not above.size:
        return None
    i = int(above[0])
    if i == 0:
        return float(sizes[0])
    share = (wanted - values[i - 1]) / (values[i] - values[i - 1])
    return float(sizes[i - 1] * (sizes[i] / sizes[i - 1]) ** share)
