"""Searches on an increasing curve: the smallest number of targets, and the smallest effect, with the wanted power."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

__all__ = ["Crossing", "Effect", "smallest_count", "smallest_effect"]

_FINE = 0.01  # a bracket narrower than this fraction of its upper end is not halved again
_LARGEST, _SMALLEST = 64.0, 1 / 64  # effects that are tried
_NARROW = 1.2  # ratio of the ends of a bracket of effects


class Crossing(NamedTuple):
    """Where an increasing curve over counts reaches a wanted height."""

    count: int | None  # the smallest count found to reach it; None where even the largest does not
    low: int | None  # the count at which the curve plus two standard errors reaches it, at most `count`
    high: int | None  # the count at which the curve minus two standard errors reaches it; None where none does
    value: float  # of the curve at `count`, or at the end
    error: float  # standard error of that value


def smallest_count(
    curve: Callable[[int], tuple[float, float]], known: Sequence[int], most: int, wanted: float, *, fewest: int = 1
) -> Crossing:
    """Search fewest..most for the smallest count at which the curve is at least `wanted`.

    The curve is evaluated at the end, then between the known counts that enclose the crossing, in halves (of the
    logarithm while the ends are far apart), until the bracket is one item or 1% wide. Common random numbers make the
    differences between neighbours far better known than the values, so that the search does not go astray; the errors
    of the values are in `low` and `high`, by linear interpolation. The curve, `count -> (value, standard error)`,
    increases up to noise and keeps what it has computed; the `known` counts were evaluated before.
    """
    end, error = curve(most)
    if end < wanted:
        return Crossing(None, None, None, end, error)
    points = {count: curve(count) for count in sorted({*known, most}) if fewest <= count <= most}
    high = min(count for count, (value, _) in points.items() if value >= wanted)
    low = max((count for count in points if count < high), default=fewest - 1)
    while high - low > max(1, _FINE * high):
        middle = math.isqrt(low * high) if high > 2 * low > 0 else (low + high) // 2
        middle = min(max(middle, low + 1), high - 1)
        points[middle] = curve(middle)
        low, high = (low, middle) if points[middle][0] >= wanted else (middle, high)
    near, far = (_crossing(points, sign, wanted, _on_line) for sign in (2, -2))
    return Crossing(high, near, None if far is None else max(far, high), *points[high])


class Effect(NamedTuple):
    """The smallest effect with the wanted power, and where the curve plus and minus two s.e. has it; None: nowhere."""

    smallest_effect: float | None
    smallest_effect_low: float | None
    smallest_effect_high: float | None


def smallest_effect(curve: Callable[[float], tuple[float, float]], start: float, wanted: float) -> Effect:
    """Search the effects from 1/64 to 64 for the smallest at which the curve is at least `wanted`.

    The curve, `effect -> (value, standard error)`, increases up to noise; `start`, a power of two, is tried first.
    """
    points = {start: curve(start)}
    low = high = start
    while points[low][0] >= wanted and low > _SMALLEST:
        high, low = low, low / 2
        points[low] = curve(low)
    while points[high][0] < wanted and high < _LARGEST:
        low, high = high, high * 2
        points[high] = curve(high)
    if points[low][0] < wanted <= points[high][0]:
        top = high
        while high / low > _NARROW:
            middle = math.sqrt(low * high)
            points[middle] = curve(middle)
            low, high = (low, middle) if points[middle][0] >= wanted else (middle, high)
        if points[top][0] - 2 * points[top][1] < wanted:  # for the far end of the interval
            points[2 * top] = curve(2 * top)
    return Effect(*(_crossing(points, sign, wanted, _on_log_line) for sign in (0, 2, -2)))


def _on_line(low: int, high: int, fraction: float) -> int:
    return round(float(low + fraction * (high - low)))


def _on_log_line(low: float, high: float, fraction: float) -> float:
    return float(low * (high / low) ** fraction)


def _crossing(
    points: dict[Any, tuple[float, float]], sign: float, wanted: float, between: Callable[[Any, Any, float], Any]
) -> Any:
    """The first place at which the line through value + sign·error reaches a height; None where it does not."""
    places = sorted(points)
    heights = [points[place][0] + sign * points[place][1] for place in places]
    i = next((i for i, height in enumerate(heights) if height >= wanted), None)
    if i is None:
        return None
    if i == 0:
        return places[0]
    fraction = (wanted - heights[i - 1]) / (heights[i] - heights[i - 1])
    return between(places[i - 1], places[i], fraction)
