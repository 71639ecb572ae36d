"""Completed batches on disk, so that an interrupted run continues where it stopped.

One append-only file: a header line with the key of the run, then records `<batch, length, crc32>` + bytes. A record
counts only if it is whole and its checksum fits; what follows the first damaged one is cut off and scored again.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import pathlib
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from tdd.atomic import disk_errors
from tdd.validate.scoring import wrong_store

__all__ = ["ScoreStore", "fingerprint", "run_key"]

_logger = logging.getLogger("tdd")

_FORMAT = "tdd score store 1"
_PIECE = 2**26
_RECORD = struct.Struct("<QQII")
"""Batch number, payload bytes, checksum of the payload, checksum of the three fields before."""


def run_key(**parts: Any) -> str:
    """SHA-256 of everything that the numbers of a run depend on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()


def fingerprint(spec: Any, params: Any) -> str:
    """SHA-256 of a model: its spec, and name, type, shape and bytes of every parameter.

    Reads all of them once, in pieces: a model that is shared out over devices need not fit into host memory.
    """
    digest = hashlib.sha256(repr(spec).encode())
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        leaf = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape}".encode())
        for piece in _pieces(leaf):
            digest.update(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _pieces(leaf: Any) -> Iterator[Any]:
    """Runs of rows of an array, of about 64 MiB, or one row where that is more."""
    rows = leaf.shape[0] if leaf.ndim else 1
    step = max(1, rows * _PIECE // max(1, leaf.nbytes))
    if step >= rows:
        yield leaf
        return
    for first in range(0, rows, step):
        size = min(step, rows - first)
        on_device = isinstance(leaf, jax.Array)
        yield jax.lax.dynamic_slice_in_dim(leaf, first, size) if on_device else leaf[first : first + size]


class ScoreStore:
    """The store of one run in a folder; a context manager.

    Args:
      folder: made if absent; the file in it is named after the key, so runs with other inputs do not meet.
      key: hash of the run, as `run_key` makes it.

    Raises:
      InputError: the file is there but is no store of this run.
    """

    def __init__(self, folder: str | os.PathLike[str], key: str) -> None:
        self.path = pathlib.Path(folder).expanduser() / f"scores-{key[:16]}.bin"
        self._places: dict[int, tuple[int, int]] = {}
        header = json.dumps({"format": _FORMAT, "key": key}).encode() + b"\n"
        with disk_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file: io.BufferedRandom = open(self.path, "r+b" if self.path.exists() else "w+b")  # noqa: SIM115
            try:
                self._open(header)
            except BaseException:
                self._file.close()
                raise

    def __enter__(self) -> ScoreStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def __contains__(self, batch: int) -> bool:
        return batch in self._places

    def __len__(self) -> int:
        return len(self._places)

    def append(self, batch: int, values: np.ndarray) -> None:
        """Write the results of one batch, [rows, columns] float32; they are with the operating system on return."""
        payload = struct.pack("<II", *values.shape) + np.ascontiguousarray(values, "<f4").tobytes()
        place = self._file.seek(0, os.SEEK_END)
        head = struct.pack("<QQI", batch, len(payload), zlib.crc32(payload))
        with disk_errors(self.path):
            try:
                self._file.write(head + struct.pack("<I", zlib.crc32(head)) + payload)
                self._file.flush()
            except OSError:
                os.ftruncate(self._file.fileno(), place)  # a full disk leaves no partial record behind
                raise
        self._places[batch] = (place + _RECORD.size, len(payload))

    def read(self, batch: int) -> np.ndarray:
        """The results of a stored batch."""
        place, length = self._places[batch]
        self._file.seek(place)
        payload = self._file.read(length)
        shape = struct.unpack_from("<II", payload)
        return np.frombuffer(payload, "<f4", offset=8).reshape(shape).astype(np.float32)

    def _open(self, header: bytes) -> None:
        start = self._file.read(len(header))
        if start != header:
            if not header.startswith(start):
                raise wrong_store(str(self.path))
            self._file.seek(0)
            self._file.truncate()
            self._file.write(header)
        end, size = len(header), self._file.seek(0, os.SEEK_END)
        while (found := self._check(end)) is not None:
            batch, length = found
            self._places[batch] = (end + _RECORD.size, length)
            end += _RECORD.size + length
        if end < size:
            _logger.warning(
                "%s: %d damaged bytes at the end are dropped; that batch is scored again", self.path, size - end
            )
            self._file.truncate(end)

    def _check(self, place: int) -> tuple[int, int] | None:
        """Batch and payload bytes of the whole and undamaged record at `place`, or None."""
        self._file.seek(place)
        head = self._file.read(_RECORD.size)
        if len(head) < _RECORD.size:
            return None
        batch, length, checksum, head_checksum = _RECORD.unpack(head)
        if zlib.crc32(head[:-4]) != head_checksum:
            return None
        payload = self._file.read(length)
        return (batch, length) if len(payload) == length and zlib.crc32(payload) == checksum else None
