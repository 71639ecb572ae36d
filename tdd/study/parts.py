"""Totals over some of the repetitions of a study, and their union: exact, since the totals are integers."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

from tdd.study.results import Totals

__all__ = ["Part", "Ranges", "joined", "merge", "missing", "overlap"]

Ranges: TypeAlias = tuple[tuple[int, int], ...]


class Part(NamedTuple):
    """Totals, and of which repetitions they are.

    Attributes:
      ranges: (first, last) pairs of the repetitions first..last-1: sorted, none touches the next.
      totals: over exactly these.
    """

    ranges: Ranges
    totals: Totals

    @property
    def repetitions(self) -> int:
        """How many."""
        return self.totals.repetitions

    @property
    def end(self) -> int:
        """The last repetition and one; 0 where there is none."""
        return self.ranges[-1][1] if self.ranges else 0

    def add(self, first: int, last: int, tally: Any) -> Part:
        """With the tally of the repetitions first..last-1, none of which it had."""
        return Part(joined([*self.ranges, (first, last)]), self.totals.add(tally))

    def plus(self, other: Part) -> Part:
        """With a part of other repetitions."""
        return Part(joined([*self.ranges, *other.ranges]), self.totals.plus(other.totals))


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Disjoint ranges in order, those that touch made one."""
    out: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if out and out[-1][1] == first:
            out[-1] = (out[-1][0], last)
        elif first < last:
            out.append((first, last))
    return tuple(out)


def missing(wanted: Iterable[tuple[int, int]], done: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What of some ranges is not in `done`, which may overlap itself."""
    out = []
    covering: list[tuple[int, int]] = []
    for low, high in sorted(done):
        if covering and low <= covering[-1][1]:
            covering[-1] = covering[-1][0], max(covering[-1][1], high)
        else:
            covering.append((low, high))
    starts = [low for low, _ in covering]
    for at, last in wanted:
        for i in range(max(0, bisect.bisect_right(starts, at) - 1), bisect.bisect_left(starts, last)):
            low, high = covering[i]
            if high <= at:
                continue
            if at < low:
                out.append((at, low))
            at = high
        if at < last:
            out.append((at, last))
    return out


def overlap(one: Ranges, other: Ranges) -> bool:
    """Whether a repetition is in both, each sorted and disjoint."""
    i = j = 0
    while i < len(one) and j < len(other):
        if max(one[i][0], other[j][0]) < min(one[i][1], other[j][1]):
            return True
        if one[i][1] <= other[j][1]:
            i += 1
        else:
            j += 1
    return False


def merge(parts: Iterable[Part], zero: Totals, beside: Ranges = ()) -> Part:
    """The sum of parts, from the first on; one that shares a repetition with `beside` or an earlier one is left out."""
    whole = Part((), zero)
    for part in parts:
        if not overlap(beside, part.ranges) and not overlap(whole.ranges, part.ranges):
            whole = whole.plus(part)
    return whole
