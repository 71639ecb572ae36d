"""The one runner of studies: cells of repetitions → totals, kept in a folder → the result.

An engine gives compiled sums over ranges of repetitions. Which ranges are run, when totals are saved, when a cell
stops and what the record says is the same for all engines, and is here.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.runs.display import progress_bar
from tdd.study.blocks import BlockSums
from tdd.study.results import StudyResult, Totals
from tdd.study.store import TotalsStore, gaps

__all__ = ["Cell", "Plan", "accumulate", "pieces", "run_study"]

_DIVISOR = 64  # a piece is this part of the repetitions before it
_PATIENCE = 0.5  # seconds that a call should take, and after which the totals are saved


@dataclasses.dataclass(frozen=True)
class Plan:
    """The repetitions of a cell, and how they are cut into calls and pieces. No number depends on the cuts."""

    repetitions: int  # largest number of repetitions
    first_call: int  # repetitions of the first call
    largest_call: int  # largest number of repetitions of a call
    smallest_piece: int  # smallest number of repetitions of a piece of a shard
    target_se: float | None = None  # stop once `largest_error` is at most this
    # done -> the first number of repetitions beyond it at which the cell may stop
    next_stop: Callable[[int], int] | None = None

    def stop(self, done: int) -> int:
        """The first number of repetitions beyond `done` at which the totals are looked at."""
        if self.target_se is None or self.next_stop is None:
            return self.repetitions
        return min(self.next_stop(done), self.repetitions)

    def enough(self, totals: Totals) -> bool:
        """Whether the cell stops with these totals."""
        return self.target_se is not None and largest_error(totals) <= self.target_se


class Cell(NamedTuple):
    """A grid point that is ready to run: its compiled sums and their operands, its test items, and its plan."""

    sums: BlockSums
    operands: Any
    num_items: int
    plan: Plan


def run_study(
    cells: Sequence[Cell],
    *,
    methods: Sequence[str],
    alphas: Sequence[float],
    points: Sequence[Mapping[str, Any]] | None = None,
    folder: str | os.PathLike[str] | None,
    shard: tuple[int, int] | str | None,
    fingerprint: Mapping[str, Any],
    provenance: Mapping[str, Any],
    devices: Sequence[Any],
    started: float,
    progress: str = "",
) -> StudyResult:
    """Run the repetitions of each cell, or those of a shard, and save the result of a whole study.

    There is a cell for each of the grid's `points` (None without a grid); all plans have one `repetitions` and one
    `target_se`. `folder` and `shard` are as in `tdd.study.run`, `fingerprint` holds the plain values on which the
    numbers depend, `provenance` begins the record, and `progress` is the title of a bar; "" shows none.
    """
    store = TotalsStore(folder, fingerprint, shard)
    total = sum(cell.plan.repetitions for cell in cells) // (store.shard.count if store.shard else 1)
    zero = Totals.zero((len(methods), len(alphas)))
    with progress_bar(progress, total, enabled=bool(progress), unit="repetitions") as advance:
        totals = [accumulate(cell, store, number, zero, advance) for number, cell in enumerate(cells)]
    record = dict(provenance)
    if (target_se := cells[0].plan.target_se) is not None:
        errors = [largest_error(cell_totals) for cell_totals in totals]
        record["stopping"] = {
            "target_se": target_se,
            "met": [bool(error <= target_se) for error in errors],
            "largest_se": errors,
            "early": [done.repetitions < cell.plan.repetitions for done, cell in zip(totals, cells, strict=True)],
        }
    result = Totals.result(
        totals,
        methods=methods,
        alphas=alphas,
        num_items=[cell.num_items for cell in cells],
        cells=points,
        seconds=time.perf_counter() - started,
        provenance={
            **record,
            "shard": None if store.shard is None else str(store.shard),
            "devices": [str(device) for device in devices],
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        },
    )
    if folder is not None and store.shard is None:
        result.save(folder)
    return result


def largest_error(totals: Totals) -> float:
    """The largest standard error of FDR and power, of all methods and levels."""
    return float(np.max(totals.standard_errors(cautious=True)[..., :2]))


def pieces(plan: Plan, until: int) -> Iterator[tuple[int, int]]:
    """The pieces of the repetitions 0..until-1 in order: a 64th of what lies before them, in powers of two.

    Their boundaries do not depend on the number of shards; a shard runs every n-th, counted over all cells.
    """
    first = 0
    while first < until:
        size = plan.smallest_piece
        while 2 * size <= min(first // _DIVISOR, plan.largest_call):
            size *= 2
        yield first, min(first + size, until)
        first += size


def accumulate(
    cell: Cell, store: TotalsStore, number: int, zero: Totals, advance: Callable[[int], None] = lambda count: None
) -> Totals:
    """The totals of a cell: for a shard those of its own repetitions, otherwise those of all.

    `advance` is called with the number of further repetitions; without a shard `plan.repetitions` in all.
    """
    plan, shard = cell.plan, store.shard
    own, others = store.read(number, zero, plan.repetitions)
    shown = own.repetitions + (0 if shard else others.repetitions)
    advance(shown)
    until, step = plan.stop(max(own.end, others.end, 1) - 1), plan.first_call
    saved, unsaved = time.perf_counter(), False
    while True:
        wanted = [(0, until)]
        if shard:
            cut = list(pieces(plan, until))
            wanted = [piece for i, piece in enumerate(cut, number * len(cut)) if shard.owns(i)]
        for first, last in gaps(wanted, (*own.ranges, *others.ranges)):
            while first < last:
                stop, began = min(first + step, last), time.perf_counter()
                own = own.add(first, stop, cell.sums(cell.operands, first, stop))
                now = time.perf_counter()
                advance(stop - first)
                first, shown, unsaved = stop, shown + stop - first, True
                if now - saved > _PATIENCE:
                    store.write(number, own)
                    saved, unsaved = time.perf_counter(), False
                if now - began < _PATIENCE:
                    step = min(2 * step, plan.largest_call)
        if unsaved:
            store.write(number, own)
            unsaved = False
        if shard:
            return own.totals
        whole = own.plus(others).totals
        if until == plan.repetitions or plan.enough(whole):
            advance(plan.repetitions - shown)
            return whole
        until = plan.stop(until)
