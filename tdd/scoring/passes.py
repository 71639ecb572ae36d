"""Batches of token rows through a model: two in flight, one on each device, memory errors halved."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from tdd.scoring.buckets import Batch
from tdd.scoring.devices import out_of_memory_in_step
from tdd.scoring.programs import PassProgram, Rows
from tdd.validate.scoring import is_memory_error

__all__ = ["BatchRunner"]

_logger = logging.getLogger("tdd")

IN_FLIGHT = 2

_Numbered = tuple[int, Batch]


class BatchRunner:
    """Runs the batches of one model and kind of pass.

    Args:
      program: how they are computed.
      num_devices: batches that are computed side by side.
      halve: go on with smaller batches where memory does not suffice; not where other processes compute in step.
    """

    def __init__(self, program: PassProgram, num_devices: int = 1, *, halve: bool = True) -> None:
        self.program, self.num_devices, self.halve = program, num_devices, halve
        self.halvings = 0

    def run(
        self, batches: Iterable[_Numbered], rows_of: Callable[[str], Rows]
    ) -> Iterator[tuple[int, Batch, np.ndarray]]:
        """Yield (number, batch, [fields, columns] float32) in order; columns row after row, left to right.

        A batch is taken from `batches` when its turn comes to start, or one before it.
        """
        groups = self._groups(batches)
        again: collections.deque[list[_Numbered]] = collections.deque()
        in_flight: collections.deque[tuple[list[_Numbered], list[Any] | None]] = collections.deque()
        while True:
            while len(in_flight) < IN_FLIGHT:
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
                    parts = [self.program.fetch(one, rows) for one in started]
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
            if group and (len(group) == self.num_devices or _shape(entry[1]) != _shape(group[0][1])):
                yield group
                group = []
            group.append(entry)
        if group:
            yield group

    def _dispatch(self, group: list[_Numbered], rows_of: Callable[[str], Rows]) -> list[Any] | None:
        """Start a group, in pieces after memory errors; None where a device is out of memory at once."""
        batch, rows = group[0][1], rows_of(group[0][1].kind)
        size = max(1, batch.size >> self.halvings)
        most = max(len(entry.rows) for _, entry in group)
        try:
            return [
                self.program.start(self._pieces(group, first, size), size, batch.length, rows, self.halvings)
                for first in range(0, most, size)
            ]
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
            raise out_of_memory_in_step(batch.size, batch.length) from error
        self.halvings += 1
        rows = max(1, batch.size >> self.halvings)
        _logger.warning(
            "out of memory: going on with batches of %d row%s of %d tokens; a smaller token_budget avoids the retry",
            rows,
            "" if rows == 1 else "s",
            batch.length,
        )


def _shape(batch: Batch) -> tuple[str, int, int]:
    return batch.kind, batch.size, batch.length
