"""Totals over some of the repetitions of a study, and their union: exact, since the totals are integers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from tdd.study.results import Totals
from tdd.validate import studies as checks

__all__ = ["Part", "Ranges", "joined", "missing", "overlap", "unite"]

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


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Disjoint ranges in order, those that touch made one."""
    out: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if out and out[-1][1] == first:
            out[-1] = (out[-1][0], last)
        elif first < last:
            out.append((first, last))
    return tuple(out)


def missing(wanted: Iterable[tuple[int, int]], done: Ranges) -> list[tuple[int, int]]:
    """What of some ranges is not in `done`, which may overlap itself."""
    out = []
    covering = sorted(done)
    for at, last in wanted:
        for low, high in covering:
            if high <= at or low >= last:
                continue
            if at < low:
                out.append((at, low))
            at = high
        if at < last:
            out.append((at, last))
    return out


def overlap(one: Ranges, other: Ranges) -> tuple[int, int] | None:
    """A range that both hold, or None."""
    for low, high in one:
        for first, last in other:
            if max(low, first) < min(high, last):
                return max(low, first), min(high, last)
    return None


def unite(parts: Mapping[str, Part], spare: Mapping[str, Part], zero: Totals) -> Part:
    """The sum of parts of different repetitions.

    Args:
      parts: of the processes, by the name of their place.
      spare: what was run in place of a process that seemed gone; left out where that one has come back meanwhile and
        run the same repetitions. They are the same numbers.
      zero: what a union of nothing is.

    Raises:
      InputError: two of the processes have the same repetitions.
    """
    names = list(parts)
    for i, name in enumerate(names):
        for other in names[:i]:
            shared = overlap(parts[name].ranges, parts[other].ranges)
            if shared:
                raise checks.counted_twice(name, other, shared)
    whole = Part((), zero)
    for part in [*parts.values(), *(spare[name] for name in sorted(spare))]:
        if not overlap(whole.ranges, part.ranges):
            whole = Part(joined([*whole.ranges, *part.ranges]), whole.totals.plus(part.totals))
    return whole
