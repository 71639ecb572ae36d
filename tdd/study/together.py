"""The repetitions of a grid point, by one process or by several that share a folder.

The repetitions are cut into pieces whose boundaries are the same whatever the number of processes; piece number i is
run by the process that owns i. Each process writes its totals into a file of its own and reads those of all. Where a
study may stop early, all of them wait for each other at the same numbers of repetitions and decide on the same
integers. Nothing else is exchanged: what a process does not deliver that has died is run by the others, it goes on
behind its last file when it is started again, and the next run may have another number of processes.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

from tdd.processes import Watch
from tdd.study.blocks import BlockSums
from tdd.study.parts import Part, missing
from tdd.study.results import Totals
from tdd.study.store import TotalsStore

__all__ = ["Plan", "accumulate", "pieces"]

_SHARE = 64  # of the repetitions so far: the size of a piece
_PATIENCE = 0.5  # seconds that a call should take, and after which totals are saved


@dataclasses.dataclass(frozen=True)
class Plan:
    """How many repetitions, and how they are cut. No number depends on the cuts.

    Attributes:
      repetitions: at most.
      step: repetitions of the first call.
      largest: repetitions of a call, at most.
      smallest: repetitions of a piece that one of several processes runs, at least.
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
    """The totals of a grid point, together with all other processes: each of them gets the same.

    Args:
      plan: of the repetitions.
      sums: runs a range of them.
      operands: of `sums`.
      store: what there is already, and where to save; its `processes` share the work.
      cell: number of the grid point.
      zero: totals of no repetition.
      advance: told how many repetitions there are more, by whomever; `plan.repetitions` in all.

    Raises:
      InputError: a damaged file; two files with the same repetitions; the folder is gone.
    """
    work = _Work(plan, sums, operands, store, cell, zero, advance)
    until = plan.stop(max(work.reached - 1, 0))
    while True:
        work.carry_on(until)
        whole = work.gather(until)
        if until == plan.repetitions or (whole.end == until and plan.enough(whole.totals)):
            work.show(plan.repetitions)
            return whole.totals
        until = plan.stop(until)


class _Work:
    """One process at a grid point."""

    def __init__(
        self, plan: Plan, sums: BlockSums, operands: Any, store: TotalsStore, cell: int, zero: Totals, advance: Any
    ) -> None:
        self.plan, self.sums, self.operands, self.store, self.cell, self.zero = plan, sums, operands, store, cell, zero
        self.own = store.read(cell) or Part((), zero)
        whole = store.union(cell, self.own, zero)
        self.before, self.reached = whole.ranges, whole.end
        self.elsewhere = whole.repetitions - self.own.repetitions
        self.step, self.saved, self.dirty = plan.step, time.perf_counter(), False
        self.advance, self.shown = advance, 0
        self.show(whole.repetitions)

    def show(self, count: int) -> None:
        """On the bar."""
        self.advance(max(count - self.shown, 0))
        self.shown = max(count, self.shown)

    def carry_on(self, until: int) -> None:
        """Run this process's share of the repetitions below `until`, but what was there at the start."""
        processes = self.store.processes
        share = [(0, until)]
        if processes.count > 1:
            share = [piece for i, piece in enumerate(pieces(self.plan, until)) if processes.owns(i)]
        for first, last in missing(share, (*self.own.ranges, *self.before)):
            while first < last:
                stop = min(first + self.step, last)
                began = time.perf_counter()
                self.own = self.own.add(first, stop, self.sums(self.operands, first, stop))
                first, self.dirty, now = stop, True, time.perf_counter()
                self.show(self.own.repetitions + self.elsewhere)
                if processes.count == 1 or now - self.saved > _PATIENCE:
                    self.save()
                if now - began < _PATIENCE:
                    self.step = min(2 * self.step, self.plan.largest)
        if self.dirty:
            self.save()

    def save(self) -> None:
        """The totals so far."""
        self.store.write(self.cell, self.own)
        self.saved, self.dirty = time.perf_counter(), False

    def gather(self, until: int) -> Part:
        """The union of all files, once it holds every repetition below `until`."""
        cut = list(pieces(self.plan, until))
        watch = Watch(self.store.meeting, "pieces of a grid point") if self.store.meeting else None
        while True:
            whole = self.store.union(self.cell, self.own, self.zero)
            self.elsewhere = whole.repetitions - self.own.repetitions
            self.show(whole.repetitions)
            lacking = [i for i, piece in enumerate(cut) if missing([piece], whole.ranges)]
            if not lacking:
                return whole
            for number in watch.wait(lacking) if watch else lacking:
                for first, last in missing([cut[number]], whole.ranges):
                    run = Part((), self.zero).add(first, last, self.sums(self.operands, first, last))
                    self.store.write_spare(self.cell, run)
