"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
from collections.abc import Iterator

from tdd.validate.errors import InputError

__all__ = ["atomic_path", "write_atomically"]


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """A temporary path beside `path` that takes its place when the block ends well; a failure removes it.

    Raises:
      InputError: the disk is full or the folder cannot be written.
    """
    place = pathlib.Path(path)
    temporary = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        yield temporary
        descriptor = os.open(temporary, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, place)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(
                f"cannot write {place}: the disk is full. The partial file was removed; free some space and run the "
                "same command again"
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EPERM):
            raise InputError(f"cannot write {place}: {error.strerror}; choose a folder that can be written") from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `path` whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
