"""The rows of one address: those that are finished, and those that are to be a shard."""

from __future__ import annotations

import contextlib
import logging
import pathlib
import re
import secrets
import time
from collections.abc import Iterable, Sequence

import numpy as np

from tdd.scoring.store.files import write_durably
from tdd.scoring.store.finished import Finished, digest
from tdd.scoring.store.manifest import Manifest
from tdd.scoring.store.shards import encode

__all__ = ["VALUE", "Space"]

_logger = logging.getLogger("tdd")

VALUE = ("value",)
"""The field of rows that have but one kind of number."""

_SECONDS, _SHARE, _MOST_SECONDS = 2.0, 0.01, 30.0
_MOST_BYTES = 2**26
"""When rows become a shard: after so many seconds, or a share of the time that the space has been open where that is
more, so that long runs do not make thousands of shards; or as soon as they are so many bytes."""

_SHARD = re.compile(r"[0-9]{6,12}-[0-9a-f]{12}-[0-9]{6,12}-[0-9a-f]{64}\.parquet")
"""What a shard is called. A manifest is another process's word: no other name in it is opened or renamed."""

_STALE = 3600.0
"""Age in seconds of a temporary file that no living process is still writing."""


class Space:
    """Rows of numbers under keys: what is the same for all of them is the address, what tells them apart the key.

    Rows are kept in memory until they become a shard; what a kill can lose is these, seconds of work. A shard is
    finished once it is on the disk under its name, which holds a SHA-256; a line of the manifest then says so. A
    shard whose line a kill prevented is taken in all the same. Reading checks the SHA-256 of every shard: one that
    does not fit is renamed to end in ".damaged", and its rows are as if they had never been scored.

    Args:
      folder: of the space; made if absent.

    Raises:
      InputError: the folder cannot be written.

    Cost: opening reads all of the space once, a shard at a time; about 250 bytes of memory a row stay.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        there = [*(folder / "manifest").glob("*.jsonl"), *folder.glob("*.parquet")]
        self._writer = f"{_generation(path.name for path in there):06d}-{secrets.token_hex(6)}"
        self._manifest = Manifest(folder / "manifest", self._writer)
        self._finished = Finished(self._manifest)
        self._waiting: dict[bytes, np.ndarray] = {}
        self._fields: tuple[str, ...] = ()
        self._bytes, self._since, self._opened = 0, 0.0, time.monotonic()
        shards = {path.name for path in folder.glob("*.parquet")}  # some may lack their line
        self._take_in({name for name in shards if _SHARD.fullmatch(name)})
        for path in folder.glob(".*.part"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE:
                    path.unlink()

    def __len__(self) -> int:
        return len(self._finished.places.keys() | self._waiting.keys())

    def __contains__(self, key: bytes) -> bool:
        return self.has(key)

    def has(self, key: bytes, fields: Sequence[str] = VALUE) -> bool:
        """Whether all the fields of a row are here."""
        return all(self._place(key, field) is not None for field in fields)

    def append(
        self, keys: Sequence[bytes], rows: Sequence[np.ndarray], fields: Sequence[str] = VALUE
    ) -> list[np.ndarray]:
        """Take in rows [fields, columns] float32 of one batch; they come into the same shard.

        What is here of a row already stays as it is. Returns the rows as they are here now.
        """
        if tuple(fields) != self._fields:
            self.flush()
            self._fields = tuple(fields)
        if not self._waiting:
            self._since = time.monotonic()
        kept = []
        for key, row in zip(keys, rows, strict=True):
            known = key in self._finished.places or key in self._waiting
            if not known or not self.has(key, fields):
                self._waiting[key] = np.asarray(row, np.float32)
                self._bytes += row.nbytes
            kept.append(self.read(key, fields) if known else self._waiting[key])
        now = time.monotonic()
        patience = min(max(_SECONDS, _SHARE * (now - self._opened)), _MOST_SECONDS)
        if self._bytes >= _MOST_BYTES or (self._waiting and now - self._since >= patience):
            self.flush()
            self.refresh()
        return kept

    def read(self, key: bytes, fields: Sequence[str] = VALUE) -> np.ndarray:
        """[fields, columns] float32 of a row that is here.

        Raises:
          KeyError: it is not.
          InputError: its shard was damaged since it was taken in.
        """
        places = [self._place(key, field) for field in fields]
        if None in places:
            raise KeyError(key)
        if len(set(places)) == 1:
            return self._row(key, places[0], fields)
        return np.concatenate([self._row(key, place, [field]) for place, field in zip(places, fields, strict=True)])

    def place(self, key: bytes) -> int:
        """Where a row is: rows that are read in ascending order of it open each shard once."""
        return min(self._finished.places.get(key, (0,)))

    def flush(self) -> None:
        """Make a shard of the rows in memory; on return they are on the disk.

        Raises:
          InputError: the disk is full, or the folder cannot be written. The rows stay in memory.
        """
        if not self._waiting:
            return
        keys = [*self._waiting]
        data = encode(keys, [*self._waiting.values()], self._fields)
        name = f"{self._writer}-{len(self._finished):06d}-{digest(self.folder, data)}.parquet"
        path = self.folder / name
        write_durably(path, data)
        self._manifest.add({"shard": path.name, "bytes": len(data), "rows": len(keys), "fields": [*self._fields]})
        self._waiting, self._bytes = {}, 0
        self._finished.enter(path, keys, self._fields)

    def refresh(self) -> int:
        """Take in the shards that other writers have finished since; returns how many rows are new.

        Cost: one look at each writer's manifest, and reading what is new.
        """
        before = len(self._finished.places)
        self._take_in(set())
        return len(self._finished.places) - before

    def _take_in(self, found: set[str]) -> None:
        """Enter the shards that were found, and those of which manifests have news; the oldest first."""
        lost = set()
        for entry in self._manifest.news():
            name = entry.get("shard")
            if not isinstance(name, str) or not _SHARD.fullmatch(name):
                _logger.warning("%s: a line that names no shard, %.80r, is left out", self._manifest.folder, name)
            else:
                (found if "rows" in entry else lost).add(name)
        for name in sorted(found):
            path = self.folder / name
            if path.exists():
                self._finished.take_in(path)
            elif name not in lost and path not in self._finished:
                _logger.warning("%s is missing; its rows are scored again", path)
                self._finished.lose(path)

    def _place(self, key: bytes, field: str) -> int | None:
        """Where a field of a row is; -1 is memory."""
        place = self._finished.place(key, field)
        if place is None and field in self._fields and key in self._waiting:
            return -1
        return place

    def _row(self, key: bytes, place: int | None, fields: Sequence[str]) -> np.ndarray:
        assert place is not None
        if place < 0:
            return self._waiting[key][[self._fields.index(field) for field in fields]]
        return self._finished.row(place, fields)


def _generation(names: Iterable[str]) -> int:
    """One more than any writer's that has left a file: names in ascending order are from old to new."""
    numbers = [name.partition("-")[0] for name in names]
    return 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)
