"""The rows of one address: shards that only ever come to be, and an index of them in memory."""

from __future__ import annotations

import collections
import contextlib
import errno
import hashlib
import logging
import os
import pathlib
import secrets
import time
from collections.abc import Sequence

import numpy as np

from tdd.atomic import disk_errors
from tdd.audit.store.files import write_durably
from tdd.audit.store.manifest import Manifest
from tdd.audit.store.shards import Shard, decode, decode_keys, encode
from tdd.validate.store import damaged_during_run

__all__ = ["VALUE", "Space"]

_logger = logging.getLogger("tdd")

VALUE = ("value",)
"""The field of rows that have but one kind of number."""

_SECONDS, _SHARE, _MOST_SECONDS = 2.0, 0.01, 30.0
_MOST_BYTES = 2**26
"""When rows become a shard: after so many seconds, or a share of the time that the space has been open where that is
more, so that long runs do not make thousands of shards; or as soon as they are so many bytes."""

_HELD = 4
"""Shards whose numbers are held in memory."""

_STALE = 3600.0
"""Age in seconds of a temporary file that no living process is still writing."""


class Space:
    """Rows of numbers under keys: what is the same for all of them is the address, what tells them apart the key.

    Rows are kept in memory until they become a shard; what a kill can lose is these, seconds of work. A shard is
    finished once it is on the disk under its name, which holds its SHA-256; a line of the manifest then says so. A
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
        self._writer = secrets.token_hex(6)
        self._manifest = Manifest(folder / "manifest", self._writer)
        self._names: set[str] = set()
        self._shards: list[tuple[pathlib.Path, tuple[str, ...]]] = []
        self._index: dict[bytes, tuple[int, ...]] = {}
        self._held: collections.OrderedDict[int, Shard] = collections.OrderedDict()
        self._waiting: dict[bytes, np.ndarray] = {}
        self._fields: tuple[str, ...] = ()
        self._bytes, self._since, self._opened = 0, 0.0, time.monotonic()
        self.refresh()
        for path in sorted(folder.glob("*.parquet")):
            self._take_in(path)  # finished, but for its line
        for path in folder.glob(".*.part"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE:
                    path.unlink()

    def __len__(self) -> int:
        return len(self._index.keys() | self._waiting.keys())

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
            known = key in self._index or key in self._waiting
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
        return min(self._index.get(key, (0,)))

    def flush(self) -> None:
        """Make a shard of the rows in memory; on return they are on the disk.

        Raises:
          InputError: the disk is full, or the folder cannot be written. The rows stay in memory.
        """
        if not self._waiting:
            return
        keys = [*self._waiting]
        data = encode(keys, [*self._waiting.values()], self._fields)
        digest = hashlib.sha256(data).hexdigest()
        path = self.folder / f"{self._writer}-{len(self._names):06d}-{digest}.parquet"
        write_durably(path, data)
        self._manifest.add({"shard": path.name, "bytes": len(data), "rows": len(keys), "fields": [*self._fields]})
        self._waiting, self._bytes = {}, 0
        self._enter(path, keys, self._fields)

    def refresh(self) -> int:
        """Take in the shards that other writers have finished since; returns how many rows are new.

        Cost: one look at each writer's manifest, and reading what is new.
        """
        before = len(self._index)
        finished, lost = [], set()
        for entry in self._manifest.news():
            (finished.append if "rows" in entry else lost.add)(entry["shard"])
        for name in finished:
            path = self.folder / name
            if path.exists():
                self._take_in(path)
            elif name not in lost and name not in self._names:
                _logger.warning("%s is missing; its rows are scored again", path)
                self._lose(path)
        return len(self._index) - before

    def _place(self, key: bytes, field: str) -> int | None:
        """Shard and row of a field; -1 is memory."""
        for place in self._index.get(key, ()):
            if field in self._shards[place >> 32][1]:
                return place
        return -1 if field in self._fields and key in self._waiting else None

    def _row(self, key: bytes, place: int | None, fields: Sequence[str]) -> np.ndarray:
        assert place is not None
        if place < 0:
            return self._waiting[key][[self._fields.index(field) for field in fields]]
        return self._load(place >> 32).row(place & 0xFFFFFFFF, fields)

    def _load(self, number: int) -> Shard:
        """The numbers of a shard, from memory or, checked again, from the disk."""
        if number not in self._held:
            path = self._shards[number][0]
            data = _checked(path)
            if data is None:
                self._lose(path)
                raise damaged_during_run(path)
            self._held[number] = decode(data)
            if len(self._held) > _HELD:
                self._held.popitem(last=False)
        self._held.move_to_end(number)
        return self._held[number]

    def _take_in(self, path: pathlib.Path) -> None:
        """Enter a shard that somebody else wrote, or set it aside."""
        if path.name in self._names:
            return
        data = _checked(path)
        if data is None:
            _logger.warning("%s is damaged; it is set aside, and its rows are scored again", path)
            self._lose(path)
            return
        keys, fields = decode_keys(data)
        self._enter(path, keys, fields)

    def _enter(self, path: pathlib.Path, keys: Sequence[bytes], fields: tuple[str, ...]) -> None:
        self._names.add(path.name)
        number = len(self._shards)
        self._shards.append((path, fields))
        for row, key in enumerate(keys):
            known = self._index.get(key, ())
            if not known or any(self._place(key, field) is None for field in fields):
                self._index[key] = (*known, number << 32 | row)

    def _lose(self, path: pathlib.Path) -> None:
        """Set a shard aside, and write down that it is gone."""
        self._names.add(path.name)
        with disk_errors(path), contextlib.suppress(FileNotFoundError):
            os.replace(path, path.with_name(path.name + ".damaged"))
        self._manifest.add({"shard": path.name, "lost": True})


def _checked(path: pathlib.Path) -> bytes | None:
    """The bytes of a shard, if they are those that its name tells."""
    try:
        data = path.read_bytes()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EIO):
            raise
        return None
    return data if hashlib.sha256(data).hexdigest() == path.stem.rpartition("-")[2] else None
