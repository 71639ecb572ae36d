"""Finished shards: rows of numbers under their keys, each shard a Parquet file whose name holds its SHA-256.

A shard has the column `key` and, for each field, a list of float32; all lists of a row are equally long.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import hashlib
import io
import logging
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.runs.atomic import disk_errors, read_regular, sync, write_atomically
from tdd.validate import InputError

_logger = logging.getLogger("tdd")

_HELD = 4
"""Shards whose numbers are held in memory."""


class ShardIndex:
    """An index of the rows of finished shards; their numbers are read when they are needed.

    A place is the number of a shard and a row of it, as one integer. If several shards have a field of a row, the one
    that was added first counts.
    """

    def __init__(self) -> None:
        self.places: dict[bytes, tuple[int, ...]] = {}
        self._names: set[str] = set()
        self._shards: list[tuple[pathlib.Path, tuple[str, ...]]] = []
        self._held: collections.OrderedDict[int, _Numbers] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._names)

    def place(self, key: bytes, field: str) -> int | None:
        """The place of a field of a row, or None."""
        for place in self.places.get(key, ()):
            if field in self._shards[place >> 32][1]:
                return place
        return None

    def row(self, place: int, fields: Sequence[str]) -> np.ndarray:
        """[fields, columns] at a place.

        Raises:
          InputError: the shard was damaged after it was added.
        """
        return self._load(place >> 32).row(place & 0xFFFFFFFF, fields)

    def add(self, path: pathlib.Path) -> None:
        """Add a shard from the disk, or quarantine it if its SHA-256 does not fit."""
        if path.name in self._names:
            return
        if (data := _checked(path)) is None:
            _logger.warning(
                "%s is damaged, or of another namespace; it is set aside, and its rows are scored again", path
            )
            self.quarantine(path)
        else:
            self.add_rows(path, *decode_keys(data))

    def add_rows(self, path: pathlib.Path, keys: Sequence[bytes], fields: tuple[str, ...]) -> None:
        """Add the rows of a shard that is known to be whole."""
        self._names.add(path.name)
        number = len(self._shards)
        self._shards.append((path, fields))
        for row, key in enumerate(keys):
            known = self.places.get(key, ())
            if not known or any(self.place(key, field) is None for field in fields):
                self.places[key] = (*known, number << 32 | row)

    def quarantine(self, path: pathlib.Path) -> None:
        """Rename a shard to end in ".damaged", if it is there at all."""
        self._names.add(path.name)
        with disk_errors(path), contextlib.suppress(FileNotFoundError):
            os.replace(path, path.with_name(path.name + ".damaged"))

    def _load(self, number: int) -> _Numbers:
        """The numbers of a shard, from memory or, checked again, from the disk."""
        if number not in self._held:
            path = self._shards[number][0]
            if (data := _checked(path)) is None:
                self.quarantine(path)
                raise InputError(
                    f"{path} was damaged or removed while the run was going on; it is set aside: run the same command "
                    "again, and its rows are scored again"
                )
            self._held[number] = decode(data)
            if len(self._held) > _HELD:
                self._held.popitem(last=False)
        self._held.move_to_end(number)
        return self._held[number]


class _Numbers(NamedTuple):
    """Numbers of a shard: field -> [columns of all rows] float32; `offsets` [rows + 1] say where each row begins."""

    offsets: np.ndarray
    values: dict[str, np.ndarray]

    def row(self, row: int, fields: Sequence[str]) -> np.ndarray:
        """[fields, columns] of one row."""
        cut = slice(self.offsets[row], self.offsets[row + 1])
        return np.stack([self.values[field][cut] for field in fields])


def encode(keys: Sequence[bytes], rows: Sequence[np.ndarray], fields: Sequence[str]) -> bytes:
    """A Parquet file of rows [fields, columns]; the same rows give the same bytes.

    >>> data = encode([b"a", b"b"], [np.ones((1, 2), np.float32), np.zeros((1, 0), np.float32)], ["loss"])
    >>> decode_keys(data), decode(data).row(0, ["loss"]).tolist()
    (([b'a', b'b'], ('loss',)), [[1.0, 1.0]])
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    offsets = np.concatenate([[0], np.cumsum([row.shape[1] for row in rows])]).astype(np.int32)
    values = np.concatenate([np.zeros((len(fields), 0), np.float32), *rows], axis=1)
    columns: dict[str, Any] = {"key": pa.array(keys, pa.binary())}
    for field, numbers in zip(fields, values, strict=True):
        columns[field] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.ascontiguousarray(numbers)))
    out = io.BytesIO()
    pq.write_table(
        pa.table(columns), out, row_group_size=max(1, len(keys)), use_dictionary=False, write_statistics=False,
        compression="none",
    )  # fmt: skip
    return out.getvalue()


def decode_keys(data: bytes) -> tuple[list[bytes], tuple[str, ...]]:
    """The keys, and the names of the fields."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(data))
    return file.read(columns=["key"])["key"].to_pylist(), tuple(file.schema_arrow.names[1:])


def decode(data: bytes) -> _Numbers:
    """The numbers alone."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(data))  # pq.read_table would import pandas
    table = file.read(columns=file.schema_arrow.names[1:]).combine_chunks()
    offsets, values = np.zeros(1, np.int64), {}
    for field in table.column_names:
        lists = table[field].chunk(0)
        offsets = lists.offsets.to_numpy()
        values[field] = lists.values.to_numpy()
    return _Numbers(offsets, values)


def digest(folder: pathlib.Path, data: bytes) -> str:
    """SHA-256 of a shard and the name of its folder, so that a shard copied from another namespace never counts."""
    return hashlib.sha256(folder.name.encode() + data).hexdigest()


def write_durably(path: pathlib.Path, content: bytes) -> None:
    """Write a file whole or not at all; on return it is on the disk, and so is its name."""
    write_atomically(path, content)
    sync_folder(path.parent)


def sync_folder(folder: pathlib.Path) -> None:
    """Put the names in a folder on the disk."""
    with contextlib.suppress(OSError):  # some file systems cannot
        sync(folder)


def _checked(path: pathlib.Path) -> bytes | None:
    """The bytes of a shard, if they fit the SHA-256 in its name."""
    try:
        data = read_regular(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EIO):
            raise
        return None
    return data if digest(path.parent, data) == path.stem.rpartition("-")[2] else None
