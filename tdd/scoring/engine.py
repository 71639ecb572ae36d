"""The engine: batches of token rows come from the store or go through a model, two in flight, one on each device."""

from __future__ import annotations

import collections
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from tdd.scoring.buckets import Batch
from tdd.scoring.devices import gathered
from tdd.scoring.programs import PassProgram, Rows
from tdd.scoring.store.namespace import VALUE, Namespace
from tdd.validate import InputError, is_memory_error

_logger = logging.getLogger("tdd")

_IN_FLIGHT = 2

_Numbered = tuple[int, Batch]
_Item = TypeVar("_Item")


def read_or_compute(
    namespace: Namespace | None,
    batches: Iterable[tuple[int, _Item]],
    compute: Callable[[Iterator[tuple[int, _Item]]], Iterable[tuple[int, _Item, Sequence[np.ndarray]]]],
    keys_of: Callable[[_Item], Sequence[bytes]],
    fields_of: Callable[[_Item], Sequence[str]] = lambda batch: VALUE,
    *,
    lockstep: bool = False,
) -> Iterator[tuple[_Item, Sequence[np.ndarray]]]:
    """Every batch with its rows [fields, columns], from the store if all of them are there, else computed.

    A batch is computed whole or not at all, so that its rows do not depend on what is stored of them; but a row that
    is stored stays as it is, and is what the batch yields.

    Args:
      namespace: Where rows are read and stored, or None.
      batches: Batches with their numbers.
      compute: Computes those batches that it pulls, in order, maybe several before it yields the first.
      keys_of: The keys of a batch's rows.
      fields_of: The fields of its rows.
      lockstep: True if several processes compute every batch together. A batch is then read if all of them have it,
        and process 0 stores what is computed.

    Yields:
      (batch, rows): computed ones in order, read ones among them.
    """
    if namespace is None:
        for _, batch, rows in compute(iter(batches)):
            yield batch, rows
        return

    def is_stored(batch: _Item) -> bool:
        return all(namespace.has(key, fields_of(batch)) for key in keys_of(batch))

    decided = ((number, batch, is_stored(batch)) for number, batch in batches)
    if lockstep:
        namespace.refresh()
        here = [*decided]
        everywhere = np.all(gathered(np.array([there for *_, there in here], bool)), axis=0).tolist()
        decided = ((number, batch, there) for (number, batch, _), there in zip(here, everywhere, strict=True))
    stored: list[_Item] = []

    def missing() -> Iterator[tuple[int, _Item]]:
        for number, batch, there in decided:
            if there:
                stored.append(batch)
            else:
                yield number, batch

    def read() -> Iterator[tuple[_Item, Sequence[np.ndarray]]]:
        in_order = sorted(stored, key=lambda batch: min(map(namespace.place, keys_of(batch)), default=0))
        stored.clear()
        for batch in in_order:
            yield batch, [namespace.read(key, fields_of(batch)) for key in keys_of(batch)]

    for _, batch, rows in compute(missing()):
        yield from read()
        stores = not lockstep or jax.process_index() == 0
        yield batch, namespace.append(keys_of(batch), rows, fields_of(batch)) if stores else rows
    yield from read()
    if lockstep:
        namespace.flush()


class BatchRunner:
    """Runs the batches of one model and kind of pass.

    Args:
      make_program: Makes the program that computes them, when the first batch comes.
      num_devices: Batches that are computed side by side.
      halve: True to go on with smaller batches after a memory error; impossible in lockstep with other processes.

    Attributes:
      halvings: Number of memory errors.
    """

    def __init__(self, make_program: Callable[[], PassProgram], num_devices: int = 1, *, halve: bool = True) -> None:
        self._make_program, self.num_devices, self.halve = make_program, num_devices, halve
        self.halvings = 0

    @functools.cached_property
    def program(self) -> PassProgram:
        """The program of the pass."""
        return self._make_program()

    def run(
        self, batches: Iterable[_Numbered], rows_of: Callable[[str], Rows]
    ) -> Iterator[tuple[int, Batch, np.ndarray]]:
        """Yield (number, batch, [fields, columns] float32) in order; columns row after row.

        A batch is taken from `batches` when its turn comes to start, or one before it.
        """
        groups = self._groups(batches)
        again: collections.deque[list[_Numbered]] = collections.deque()
        in_flight: collections.deque[tuple[list[_Numbered], list[Any] | None]] = collections.deque()
        while True:
            while len(in_flight) < _IN_FLIGHT:
                group = again.popleft() if again else next(groups, None)
                if group is None:
                    break
                in_flight.append((group, self._dispatch(group, rows_of)))
            if not in_flight:
                return
            group, started = in_flight.popleft()
            rows = rows_of(group[0][1].kind)
            while True:
                try:
                    if started is None:
                        raise MemoryError("RESOURCE_EXHAUSTED at dispatch")
                    parts = [self.program.fetch(piece, rows) for piece in started]
                    break
                except (jax.errors.JaxRuntimeError, MemoryError) as error:
                    self._halve(group[0][1], error)
                    again.extendleft(other for other, _ in reversed(in_flight))
                    in_flight.clear()
                    started = self._dispatch(group, rows_of)
            for device, (number, batch) in enumerate(group):
                yield number, batch, np.concatenate([part[device] for part in parts], axis=1)

    def _groups(self, batches: Iterable[_Numbered]) -> Iterator[list[_Numbered]]:
        """As many consecutive batches of one shape as there are devices."""
        group: list[_Numbered] = []
        for entry in batches:
            if group and (len(group) == self.num_devices or entry[1].shape != group[0][1].shape):
                yield group
                group = []
            group.append(entry)
        if group:
            yield group

    def _dispatch(self, group: list[_Numbered], rows_of: Callable[[str], Rows]) -> list[Any] | None:
        """Start a group, in pieces after memory errors; None if a device is out of memory at once."""
        batch, rows = group[0][1], rows_of(group[0][1].kind)
        size = max(1, batch.size >> self.halvings)
        most = max(len(entry.rows) for _, entry in group)
        try:
            given = size, batch.length, rows, self.halvings, *(() if batch.capacity is None else (batch.capacity,))
            return [self.program.start(self._pieces(group, first, size), *given) for first in range(0, most, size)]
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            if is_memory_error(error) and size > 1:
                return None
            raise

    def _pieces(self, group: list[_Numbered], first: int, size: int) -> list[np.ndarray]:
        """Rows `first` to `first + size` of each batch; nothing for devices without one."""
        pieces = [batch.rows[first : first + size] for _, batch in group]
        return pieces + [np.zeros(0, np.int64)] * (self.num_devices - len(group))

    def _halve(self, batch: Batch, error: BaseException) -> None:
        if not is_memory_error(error) or batch.size >> self.halvings <= 1:
            raise error
        if not self.halve:
            raise InputError(
                f"out of memory in a batch of {batch.size} rows of {batch.length} tokens; give all processes a smaller "
                "token_budget"
            ) from error
        self.halvings += 1
        rows = max(1, batch.size >> self.halvings)
        _logger.warning(
            "out of memory: going on with batches of %d row%s of %d tokens; a smaller token_budget avoids the retry",
            rows,
            "" if rows == 1 else "s",
            batch.length,
        )
