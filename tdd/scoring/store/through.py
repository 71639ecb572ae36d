"""The one place that decides which batches are computed, and which are read from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from tdd.scoring.store.space import VALUE, Space

__all__ = ["through"]

_Batch = TypeVar("_Batch")


def through(
    space: Space | None,
    batches: Iterable[tuple[int, _Batch]],
    compute: Callable[[Iterator[tuple[int, _Batch]]], Iterator[tuple[int, _Batch, Sequence[np.ndarray]]]],
    keys_of: Callable[[_Batch], Sequence[bytes]],
    fields_of: Callable[[_Batch], Sequence[str]] = lambda batch: VALUE,
) -> Iterator[tuple[_Batch, Sequence[np.ndarray]]]:
    """Every batch with its rows [fields, columns], from the store where all of them are there, else computed.

    A batch is computed whole or not at all, so that its rows do not depend on what is stored of them; but a row that
    is stored stays as it is, and is what the batch yields.

    Args:
      space: where rows are read and kept, or None.
      batches: with their numbers.
      compute: computes those batches that it pulls, in order, maybe several before it yields the first.
      keys_of: the keys of a batch's rows.
      fields_of: the fields of its rows.

    Yields:
      (batch, rows), the computed ones in order, read ones among them.
    """
    if space is None:
        for _, batch, rows in compute(iter(batches)):
            yield batch, rows
        return
    stored: list[_Batch] = []

    def missing() -> Iterator[tuple[int, _Batch]]:
        for number, batch in batches:
            fields = fields_of(batch)
            if all(space.has(key, fields) for key in keys_of(batch)):
                stored.append(batch)
            else:
                yield number, batch

    def read() -> Iterator[tuple[_Batch, Sequence[np.ndarray]]]:
        batches = sorted(stored, key=lambda batch: min(map(space.place, keys_of(batch)), default=0))  # file after file
        stored.clear()
        for batch in batches:
            yield batch, [space.read(key, fields_of(batch)) for key in keys_of(batch)]

    for _, batch, rows in compute(missing()):
        yield from read()
        yield batch, space.append(keys_of(batch), rows, fields_of(batch))
    yield from read()
