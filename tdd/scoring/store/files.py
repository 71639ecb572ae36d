"""Files that survive a loss of power once they are written."""

from __future__ import annotations

import contextlib
import os
import pathlib

from tdd.runs.atomic import disk_errors, write_atomically

__all__ = ["append_line", "sync_folder", "write_durably"]


def write_durably(path: pathlib.Path, content: bytes) -> None:
    """Write a file whole or not at all; on return it is on the disk, and so is its name."""
    write_atomically(path, content)
    sync_folder(path.parent)


def append_line(path: pathlib.Path, line: bytes) -> None:
    """Append a line to a file of which this process is the only writer; on return it is on the disk.

    A failure takes back what was written of it.
    """
    new = not path.exists()
    with disk_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            try:
                if os.write(descriptor, line) != len(line):
                    raise OSError(28, "No space left on device")
                os.fsync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
    if new:
        sync_folder(path.parent)


def sync_folder(folder: pathlib.Path) -> None:
    """Put the names in a folder on the disk."""
    with contextlib.suppress(OSError):  # some file systems cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
