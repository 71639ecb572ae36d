"""Which shards are finished: one file of lines a writer, so that no two processes write the same file."""

from __future__ import annotations

import json
import logging
import pathlib
import zlib
from collections.abc import Iterator
from typing import Any

from tdd.scoring.store.files import append_line

__all__ = ["Manifest"]

_logger = logging.getLogger("tdd")


class Manifest:
    """The lines of all writers of a folder. Each line is JSON with a checksum of its own.

    A line without its end is one that a kill cut off: it waits for the rest, which never comes, and counts for
    nothing. No writer continues another's file.

    Args:
      folder: of the manifest files; made if absent.
      writer: name of this writer's own file.
    """

    def __init__(self, folder: pathlib.Path, writer: str) -> None:
        self.folder, self._own = folder, folder / f"{writer}.jsonl"
        self._read: dict[str, int] = {}

    def add(self, entry: dict[str, Any]) -> None:
        """Append one entry of plain values; on return it is on the disk."""
        body = json.dumps(entry, sort_keys=True)
        append_line(
            self._own, json.dumps(entry | {"check": zlib.crc32(body.encode())}, sort_keys=True).encode() + b"\n"
        )

    def news(self) -> Iterator[dict[str, Any]]:
        """Entries of the other writers since the last call, writer after writer."""
        for path in sorted(self.folder.glob("*.jsonl")):
            done = self._read.get(path.name, 0)
            if path == self._own or path.stat().st_size <= done:
                continue
            with open(path, "rb") as file:
                file.seek(done)
                lines, _, _ = file.read().rpartition(b"\n")
            if lines:
                self._read[path.name] = done + len(lines) + 1
            for line in lines.splitlines():
                if (entry := _checked(line)) is None:
                    _logger.warning("%s: a damaged line is left out", path)
                else:
                    yield entry


def _checked(line: bytes) -> dict[str, Any] | None:
    """The entry of a line, if its checksum fits."""
    try:
        entry = json.loads(line)
        check = entry.pop("check")
    except (ValueError, AttributeError, KeyError, TypeError):
        return None
    return entry if zlib.crc32(json.dumps(entry, sort_keys=True).encode()) == check else None
