"""The finished shards of a space: checked when they come in, found by key, read again when they are needed."""

from __future__ import annotations

import collections
import contextlib
import errno
import hashlib
import logging
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from tdd.runs.atomic import disk_errors
from tdd.scoring.store.manifest import Manifest
from tdd.scoring.store.shards import Shard, decode, decode_keys
from tdd.validate.errors import InputError

__all__ = ["Finished", "digest"]

_logger = logging.getLogger("tdd")

_HELD = 4
"""Shards whose numbers are held in memory."""


class Finished:
    """Finished shards and an index of their rows.

    A place is the number of a shard and the row in it, as one integer. Of a field that several shards have of a row,
    the one that came first counts.

    Args:
      manifest: where it is written down that a shard is gone.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.places: dict[bytes, tuple[int, ...]] = {}
        self._manifest = manifest
        self._names: set[str] = set()
        self._shards: list[tuple[pathlib.Path, tuple[str, ...]]] = []
        self._held: collections.OrderedDict[int, Shard] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, path: pathlib.Path) -> bool:
        return path.name in self._names

    def place(self, key: bytes, field: str) -> int | None:
        """Where a field of a row is, or None."""
        for place in self.places.get(key, ()):
            if field in self._shards[place >> 32][1]:
                return place
        return None

    def row(self, place: int, fields: Sequence[str]) -> np.ndarray:
        """[fields, columns] at a place.

        Raises:
          InputError: the shard was damaged since it came in.
        """
        return self._load(place >> 32).row(place & 0xFFFFFFFF, fields)

    def take_in(self, path: pathlib.Path) -> None:
        """Enter a shard that somebody else wrote, or set it aside."""
        if path in self:
            return
        if (data := _checked(path)) is None:
            _logger.warning("%s is damaged, or of another space; it is set aside, and its rows are scored again", path)
            self.lose(path)
        else:
            self.enter(path, *decode_keys(data))

    def enter(self, path: pathlib.Path, keys: Sequence[bytes], fields: tuple[str, ...]) -> None:
        """Add a shard that is whole."""
        self._names.add(path.name)
        number = len(self._shards)
        self._shards.append((path, fields))
        for row, key in enumerate(keys):
            known = self.places.get(key, ())
            if not known or any(self.place(key, field) is None for field in fields):
                self.places[key] = (*known, number << 32 | row)

    def lose(self, path: pathlib.Path) -> None:
        """Set a shard aside, if it is there at all, and write down that it is gone."""
        self._names.add(path.name)
        with disk_errors(path), contextlib.suppress(FileNotFoundError):
            os.replace(path, path.with_name(path.name + ".damaged"))
        self._manifest.add({"shard": path.name, "lost": True})

    def _load(self, number: int) -> Shard:
        """The numbers of a shard, from memory or, checked again, from the disk."""
        if number not in self._held:
            path = self._shards[number][0]
            data = _checked(path)
            if data is None:
                self.lose(path)
                raise _damaged_during_run(path)
            self._held[number] = decode(data)
            if len(self._held) > _HELD:
                self._held.popitem(last=False)
        self._held.move_to_end(number)
        return self._held[number]


def _checked(path: pathlib.Path) -> bytes | None:
    """The bytes of a shard, if they are those that its name tells."""
    try:
        data = path.read_bytes()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EIO):
            raise
        return None
    return data if digest(path.parent, data) == path.stem.rpartition("-")[2] else None


def digest(folder: pathlib.Path, data: bytes) -> str:
    """SHA-256 of a shard and the name of its space, so that a shard that was copied from another one never counts."""
    return hashlib.sha256(folder.name.encode() + data).hexdigest()


def _damaged_during_run(path: pathlib.Path) -> InputError:
    """A shard that was whole when the run began."""
    return InputError(
        f"{path} was damaged or removed while the run was going on; it is set aside: run the same command again, and "
        "its rows are scored again"
    )
