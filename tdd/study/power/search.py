"""The smallest number of targets at which an audit finds what is wanted: a search on an increasing curve."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["Crossing", "smallest"]

_FINE = 0.01  # a bracket narrower than this share of its upper end is not halved again


@dataclasses.dataclass(frozen=True)
class Crossing:
    """Where an increasing curve reaches a wanted height.

    Attributes:
      count: smallest number of targets found to reach it; None where even all candidates do not.
      low: the curve plus two standard errors reaches it here, at most `count`.
      high: the curve minus two standard errors reaches it here; None where nowhere.
      value: of the curve at `count`, or at the end.
      error: standard error of that value.
    """

    count: int | None
    low: int | None
    high: int | None
    value: float
    error: float


def smallest(
    curve: Callable[[int], tuple[float, float]], known: Sequence[int], most: int, wanted: float, *, fewest: int = 1
) -> Crossing:
    """Search fewest..most for the smallest count at which the curve is at least `wanted`.

    The curve is evaluated at the end, then between the known places that enclose the crossing, in halves (of the
    logarithm while the ends are far apart), until the bracket is one item or 1 % wide. With common random numbers in
    all evaluations the differences between neighbours are far better known than the values, so that the search does
    not go astray; the values' own errors are in `low` and `high`, by linear interpolation.

    Args:
      curve: `count -> (value, standard error)`, increasing up to noise; it keeps what it has computed.
      known: counts that were evaluated before.
      most: number of candidates.
      wanted: the height.
      fewest: the smallest count that can be evaluated.
    """
    end, error = curve(most)
    if end < wanted:
        return Crossing(None, None, None, end, error)
    seen = {count: curve(count) for count in sorted({*known, most}) if fewest <= count <= most}
    high = min(count for count, (value, _) in seen.items() if value >= wanted)
    low = max((count for count in seen if count < high), default=fewest - 1)
    while high - low > max(1, _FINE * high):
        middle = math.isqrt(low * high) if high > 2 * low > 0 else (low + high) // 2
        middle = min(max(middle, low + 1), high - 1)
        seen[middle] = curve(middle)
        low, high = (low, middle) if seen[middle][0] >= wanted else (middle, high)
    counts = np.array(sorted(seen))
    values, errors = np.array([seen[int(count)] for count in counts]).T
    near = _first(counts, values + 2 * errors, wanted)
    far = _first(counts, values - 2 * errors, wanted)
    return Crossing(high, min(near or high, high), None if far is None else max(far, high), *seen[high])


def _first(counts: np.ndarray, values: np.ndarray, wanted: float) -> int | None:
    """The first count at which the line through the points reaches a height, rounded outwards by less than one."""
    above = np.flatnonzero(values >= wanted)
    if not above.size:
        return None
    i = int(above[0])
    if i == 0:
        return int(counts[0])
    share = (wanted - values[i - 1]) / (values[i] - values[i - 1])
    return round(float(counts[i - 1] + share * (counts[i] - counts[i - 1])))
