"""The one runner of studies: cells of repetitions → totals, kept in a folder → the result.

An engine gives `sum_over_blocks` what a block of repetitions adds. Which ranges are run, when totals are saved, when a
cell stops and what the record says is the same for all engines, and is here.

Repetition i is lane i mod L of block i div L and has its own random numbers, one program serves every block, and sums
are integers: the numbers depend neither on the devices nor on how a study is cut into calls. `simulate` is for numbers
that are no counts, on one device.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import datetime
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypedDict

import jax
import jax.numpy as jnp
import numpy as np

from tdd.cores import available_cores
from tdd.kernels.platforms import one_device
from tdd.runs.display import progress_bar
from tdd.study import checks
from tdd.study.results import StudyResult, Totals
from tdd.study.store import TotalsStore, gaps
from tdd.validate.arrays import key_of_seed
from tdd.validate.options import KnownFields

_DIVISOR = 64  # a piece is this part of the repetitions before it
_PATIENCE = 0.5  # seconds that a call should take, and after which the totals are saved


class StudyRunOptions(TypedDict, total=False):
    """The fields of `StudyRun` as keywords of a call."""

    folder: str | os.PathLike[str] | None
    shard: tuple[int, int] | str | None
    devices: Sequence[Any] | None
    progress: bool


@dataclasses.dataclass(frozen=True)
class StudyRun(KnownFields):
    """Where the repetitions of a study run, and what is kept of them; no number depends on it. See `tdd.study.run`."""

    folder: str | os.PathLike[str] | None = None
    shard: tuple[int, int] | str | None = None
    devices: Sequence[Any] | None = None
    progress: bool = False

    def find_devices(self) -> tuple[Any, ...]:
        """The devices that share the repetitions.

        Raises:
          InputError: none, or something else than devices.
        """
        return checks.as_devices(self.devices)


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
    how: StudyRun,
    fingerprint: Mapping[str, Any],
    provenance: Mapping[str, Any],
    devices: Sequence[Any],
    started: float,
    title: str,
) -> StudyResult:
    """Run the repetitions of each cell, or those of a shard, and save the result of a whole study.

    There is a cell for each of the grid's `points` (None without a grid); all plans have one `repetitions` and one
    `target_se`. `fingerprint` holds the plain values on which the numbers depend, `provenance` begins the record,
    `devices` are those of `how`, and `title` is that of its bar.
    """
    store = TotalsStore(how.folder, fingerprint, how.shard)
    total = sum(cell.plan.repetitions for cell in cells) // (store.shard.count if store.shard else 1)
    zero = Totals.zero((len(methods), len(alphas)))
    with progress_bar(title, total, enabled=how.progress, unit="repetitions") as advance:
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
    if how.folder is not None and store.shard is None:
        result.save(how.folder)
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


_AXIS = "repetitions"

BlockSums: TypeAlias = Callable[[Any, int, int], Any]


def sum_over_blocks(
    one_block: Callable[[Any, jax.Array, jax.Array, Any], Any],
    zero: Callable[[], Any],
    *,
    lanes: int,
    devices: Sequence[Any],
) -> BlockSums:
    """Make a compiled function that runs a range of repetitions and returns its sums.

    Args:
      one_block: `(operands, index, real, totals) -> totals` with index [L] uint32, the numbers of the repetitions of
        this block, real [L] bool, which of them are asked for, and totals the sums so far, to which the block adds.
      zero: `() -> totals`, integers.
      lanes: L, repetitions a block; part of the program, not of the results.
      devices: devices that share the blocks.

    Returns:
      `(operands, first, last) -> totals` for the repetitions first..last-1. Every leaf has a leading axis over the
      devices, or over the threads that share one host: sum over it. Every range runs in the same compiled program.
    """
    count = len(devices)

    @one_device()
    def own_blocks(operands: Any, bounds: jax.Array, own: jax.Array) -> Any:
        first, last = bounds[0], bounds[1]
        blocks = (last - first + jnp.uint32(lanes - 1)) // jnp.uint32(lanes)
        mine = (blocks + jnp.uint32(count - 1) - own) // jnp.uint32(count)

        def body(step: jax.Array, totals: Any) -> Any:
            block = step.astype(jnp.uint32) * jnp.uint32(count) + own
            index = first + block * jnp.uint32(lanes) + jnp.arange(lanes, dtype=jnp.uint32)
            return one_block(operands, index, index < last, totals)

        totals = jax.lax.fori_loop(0, mine.astype(jnp.int32), body, zero())
        return jax.tree.map(lambda leaf: leaf[None], totals)

    if count == 1:
        alone = jax.jit(lambda operands, bounds: own_blocks(operands, bounds, jnp.uint32(0)))
        return _on_threads(alone, devices[0], lanes, available_cores() if devices[0].platform == "cpu" else 1)
    mesh = jax.make_mesh((count,), (_AXIS,), axis_types=(jax.sharding.AxisType.Auto,), devices=devices)
    spread, everywhere = jax.sharding.PartitionSpec(_AXIS), jax.sharding.PartitionSpec()
    sharded = jax.shard_map(
        lambda operands, bounds: own_blocks(operands, bounds, jax.lax.axis_index(_AXIS).astype(jnp.uint32)),
        mesh=mesh,
        in_specs=(everywhere, everywhere),
        out_specs=spread,
        check_vma=False,
    )
    compiled, whole = jax.jit(sharded), jax.sharding.NamedSharding(mesh, everywhere)
    return lambda operands, first, last: compiled(*jax.device_put((operands, _bounds(first, last)), whole))


def _on_threads(alone: Any, device: Any, lanes: int, threads: int) -> BlockSums:
    """One program on one device, each thread with a part of the range: XLA's loops use one core of a host.

    It is compiled, and its operands are put on the device, by the thread that asks for it: JAX's settings, such as
    double precision, are those of a thread.
    """
    compiled: dict[Any, Any] = {}

    def run(operands: Any, first: int, last: int) -> Any:
        operands, bounds = jax.device_put((operands, _bounds(first, last)), device)
        leaves, structure = jax.tree.flatten(operands)
        kind = (structure, *map(jax.typeof, leaves))
        if kind not in compiled:
            compiled[kind] = alone.lower(operands, bounds).compile()
        call = compiled[kind]
        size = -(-(last - first) // (threads * lanes)) * lanes
        cuts = [*range(first, last, size), last]
        if len(cuts) <= 2:
            return call(operands, bounds)
        parts = [jax.device_put(_bounds(*cut), device) for cut in itertools.pairwise(cuts)]
        with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
            sums = list(pool.map(lambda part: jax.device_get(call(operands, part)), parts))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *sums)

    return run


def _bounds(first: int, last: int) -> np.ndarray:
    return np.asarray([first, last], np.uint32)


def simulate(one: Callable[[jax.Array], Any], *, seed: int, repetitions: int, batch: int = 2_000) -> Any:
    """Run a pure function `one(key) -> pytree of scalars` many times; leaves are [repetitions], float64 NumPy arrays.

    Repetition i has the same key for any `batch`, the largest number of repetitions side by side: it bounds the memory
    and changes no result.
    """
    batches = -(-repetitions // batch)
    batch = -(-repetitions // batches)  # equal ones: the rest of a division would be compiled too

    def run(keys: jax.Array) -> Any:
        again = keys[np.arange(batches * batch) % repetitions]
        return jax.tree.map(lambda leaf: leaf[:repetitions], jax.lax.map(one, again, batch_size=batch))

    draws = jax.jit(run)(jax.random.split(key_of_seed(seed), repetitions))
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), draws)
