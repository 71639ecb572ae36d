"""The rows of one address: those in finished shards, and those in memory that become the next shard."""

from __future__ import annotations

import contextlib
import pathlib
import re
import secrets
import time
from collections.abc import Sequence

import numpy as np

from tdd.scoring.store.shards import ShardIndex, digest, encode, write_durably

VALUE = ("value",)
"""The field of rows with a single kind of number."""

_SECONDS, _FRACTION, _MOST_SECONDS = 2.0, 0.01, 30.0
_MOST_BYTES = 2**26
"""Rows become a shard after so many seconds, or after a fraction of the time that the namespace has been open if that
is more, so that long runs do not make thousands of shards; or as soon as they are so many bytes."""

_SHARD = re.compile(r"[0-9]{6,12}-[0-9a-f]{12}-[0-9]{6,12}-[0-9a-f]{64}\.parquet")
"""Generation, writer, number and SHA-256 of a shard. Files of other names are left alone."""

_STALE = 3600.0
"""Age in seconds of a temporary file that no living process is still writing."""


class Namespace:
    """Rows of numbers under keys: the address is what all rows have in common, the key tells them apart.

    Rows are kept in memory until they become a shard; a kill loses these alone, seconds of work. A shard is finished
    once it is on the disk under its name, which holds a SHA-256. Reading checks it: a shard that does not fit is
    renamed to end in ".damaged", and its rows are scored again.

    Raises:
      InputError: the folder cannot be written.

    Cost: opening reads all shards once, one at a time; about 250 bytes of memory a row stay.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        generations = [path.name.partition("-")[0] for path in folder.glob("*.parquet")]
        generation = 1 + max((int(number) for number in generations if number.isdecimal()), default=0)
        self._writer = f"{generation:06d}-{secrets.token_hex(6)}"  # names in ascending order are from old to new
        self._shards = ShardIndex()
        self._waiting: dict[bytes, np.ndarray] = {}
        self._fields: tuple[str, ...] = ()
        self._bytes, self._since, self._opened = 0, 0.0, time.monotonic()
        self.refresh()
        for path in folder.glob(".*.part"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE:
                    path.unlink()

    def __len__(self) -> int:
        return len(self._shards.places.keys() | self._waiting.keys())

    def has(self, key: bytes, fields: Sequence[str] = VALUE) -> bool:
        """True if all the fields of a row are here."""
        return all(self._place(key, field) is not None for field in fields)

    def append(
        self, keys: Sequence[bytes], rows: Sequence[np.ndarray], fields: Sequence[str] = VALUE
    ) -> list[np.ndarray]:
        """Add the rows [fields, columns] float32 of one batch; they come into the same shard.

        Fields that are here of a row stay as they are. Returns the rows as they are here now.
        """
        if tuple(fields) != self._fields:
            self.flush()
            self._fields = tuple(fields)
        if not self._waiting:
            self._since = time.monotonic()
        stored = []
        for key, row in zip(keys, rows, strict=True):
            known = key in self._shards.places or key in self._waiting
            if not known or not self.has(key, fields):
                self._waiting[key] = np.asarray(row, np.float32)
                self._bytes += row.nbytes
            stored.append(self.read(key, fields) if known else self._waiting[key])
        now = time.monotonic()
        patience = min(max(_SECONDS, _FRACTION * (now - self._opened)), _MOST_SECONDS)
        if self._bytes >= _MOST_BYTES or (self._waiting and now - self._since >= patience):
            self.flush()
            self.refresh()
        return stored

    def read(self, key: bytes, fields: Sequence[str] = VALUE) -> np.ndarray:
        """[fields, columns] float32 of a row.

        Raises:
          KeyError: the row is not here.
          InputError: its shard was damaged after it was added.
        """
        places = [self._place(key, field) for field in fields]
        if None in places:
            raise KeyError(key)
        if len(set(places)) == 1:
            return self._row(key, places[0], fields)
        return np.concatenate([self._row(key, place, [field]) for place, field in zip(places, fields, strict=True)])

    def place(self, key: bytes) -> int:
        """Sort key of a row: rows that are read in ascending order open each shard once."""
        return min(self._shards.places.get(key, (0,)))

    def flush(self) -> None:
        """Write the rows in memory as a shard; on return they are on the disk.

        Raises:
          InputError: the disk is full, or the folder cannot be written. The rows stay in memory.
        """
        if not self._waiting:
            return
        keys = [*self._waiting]
        data = encode(keys, [*self._waiting.values()], self._fields)
        path = self.folder / f"{self._writer}-{len(self._shards):06d}-{digest(self.folder, data)}.parquet"
        write_durably(path, data)
        self._waiting, self._bytes = {}, 0
        self._shards.add_rows(path, keys, self._fields)

    def refresh(self) -> int:
        """Add the shards that other writers have finished, the oldest first; returns how many rows are new."""
        before = len(self._shards.places)
        for name in sorted(path.name for path in self.folder.glob("*.parquet")):
            if _SHARD.fullmatch(name):
                self._shards.add(self.folder / name)
        return len(self._shards.places) - before

    def _place(self, key: bytes, field: str) -> int | None:
        """The place of a field of a row; -1 is memory."""
        place = self._shards.place(key, field)
        if place is None and field in self._fields and key in self._waiting:
            return -1
        return place

    def _row(self, key: bytes, place: int | None, fields: Sequence[str]) -> np.ndarray:
        assert place is not None
        if place < 0:
            return self._waiting[key][[self._fields.index(field) for field in fields]]
        return self._shards.row(place, fields)
