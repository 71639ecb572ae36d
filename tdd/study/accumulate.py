"""The repetitions of a grid point: those of a shard, or all that no shard has run.

The repetitions are cut into pieces whose boundaries do not depend on the number of shards; a shard runs every n-th,
counted over all grid points.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

from tdd.study.blocks import BlockSums
from tdd.study.parts import missing
from tdd.study.results import Totals
from tdd.study.store import TotalsStore

__all__ = ["Plan", "accumulate", "pieces"]

_SHARE = 64  # of the repetitions so far: the size of a piece
_PATIENCE = 0.5  # seconds that a call should take, and after which the totals are saved


@dataclasses.dataclass(frozen=True)
class Plan:
    """How many repetitions, and how they are cut. No number depends on the cuts.

    Attributes:
      repetitions: at most.
      step: repetitions of the first call.
      largest: repetitions of a call, at most.
      smallest: repetitions of a piece, at least.
      next_stop: done -> the first number of repetitions beyond it at which the study may stop; None: at the end alone.
      enough: totals -> whether it stops there.
    """

    repetitions: int
    step: int
    largest: int
    smallest: int
    next_stop: Callable[[int], int] | None = None
    enough: Callable[[Totals], bool] = lambda totals: False

    def stop(self, done: int) -> int:
        """The first number of repetitions beyond `done` at which all are counted."""
        return self.repetitions if self.next_stop is None else min(self.next_stop(done), self.repetitions)


def pieces(plan: Plan, until: int) -> Iterator[tuple[int, int]]:
    """The pieces of the repetitions 0..until-1 in order: a 64th of what lies before them, in powers of two."""
    first = 0
    while first < until:
        size = plan.smallest
        while 2 * size <= min(first // _SHARE, plan.largest):
            size *= 2
        yield first, min(first + size, until)
        first += size


def accumulate(
    plan: Plan,
    sums: BlockSums,
    operands: Any,
    store: TotalsStore,
    cell: int,
    zero: Totals,
    advance: Callable[[int], None] = lambda count: None,
) -> Totals:
    """The totals of a grid point: of a shard those of its own repetitions, else those of all.

    Args:
      plan: of the repetitions.
      sums: runs a range of them.
      operands: of `sums`.
      store: what there is already, and where to save.
      cell: number of the grid point.
      zero: totals of no repetition.
      advance: told how many repetitions there are more; without a shard `plan.repetitions` in all.

    Raises:
      InputError: a damaged file; the folder is gone.
    """
    shard = store.shard
    own, others = store.read(cell, zero, plan.repetitions)
    shown = own.repetitions + (0 if shard else others.repetitions)
    advance(shown)
    until, step, saved, dirty = plan.stop(max(own.end, others.end, 1) - 1), plan.step, time.perf_counter(), False
    while True:
        wanted = [(0, until)]
        if shard:
            cut = list(pieces(plan, until))
            wanted = [piece for i, piece in enumerate(cut, cell * len(cut)) if shard.owns(i)]
        for first, last in missing(wanted, (*own.ranges, *others.ranges)):
            while first < last:
                stop, began = min(first + step, last), time.perf_counter()
                own = own.add(first, stop, sums(operands, first, stop))
                now = time.perf_counter()
                advance(stop - first)
                first, shown, dirty = stop, shown + stop - first, True
                if now - saved > _PATIENCE:
                    store.write(cell, own)
                    saved, dirty = time.perf_counter(), False
                if now - began < _PATIENCE:
                    step = min(2 * step, plan.largest)
        if dirty:
            store.write(cell, own)
            dirty = False
        if shard:
            return own.totals
        whole = own.plus(others).totals
        if until == plan.repetitions or plan.enough(whole):
            advance(plan.repetitions - shown)
            return whole
        until = plan.stop(until)
