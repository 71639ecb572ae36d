"""Files that are written whole or not at all, their names, and errors of the disk in words."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence

from tdd.validate import InputError

_REFUSED = (
    errno.EACCES, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EPERM, errno.EROFS,
)  # fmt: skip


@contextlib.contextmanager
def disk_errors(place: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what the system says of a full disk or of a place that cannot be written into an `InputError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(
                f"cannot write {place}: the disk is full. The partial file was removed; free some space and run the "
                "same command again"
            ) from error
        if error.errno == errno.EFBIG:
            raise InputError(
                f"cannot write {place}: the file is larger than this system or this user may write (ulimit -f). The "
                "partial file was removed; raise the limit and run the same command again"
            ) from error
        if error.errno in _REFUSED:
            raise InputError(f"cannot write {place}: {error.strerror}; choose a folder that can be written") from error
        raise


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """The content of a file, also through a link; of a pipe or a device nothing, since it may have no end.

    Raises:
      OSError: no such file, or something that is no file.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
        return file.read()


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """A temporary path beside `path` that takes its place when the block ends well; a failure removes it.

    Raises:
      InputError: the disk is full, the file too large, or the folder cannot be written.
    """
    check_name(path)
    place = pathlib.Path(path)
    temporary = place.with_name(f".{place.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    with disk_errors(place):
        try:
            yield temporary
            sync(temporary)
            os.replace(temporary, place)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `path` whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def check_name(path: str | os.PathLike[str]) -> None:
    """Check that a file or a folder can have a name.

    Raises:
      InputError: it holds a character that no name can, or is longer than the system allows.
    """
    text = os.fspath(path)
    if "\0" in text:
        raise InputError(f"output {text!r} holds a NUL character, which no name can; leave it out")
    try:
        os.lstat(text)
    except UnicodeEncodeError:
        raise InputError(f"output {text!r} holds half a character, which no name can; leave it out") from None
    except OSError as error:  # whether anything is there is asked elsewhere
        if error.errno == errno.ENAMETOOLONG:
            raise InputError(f"output {text[:80]}... has a name that is too long for the system") from None


def check_output_file(path: pathlib.Path, endings: Sequence[str], inputs: Iterable[str | None] = ()) -> None:
    """Check that the ending of a file name can be written, its folder exists, and it is not read."""
    check_name(path)
    if path.suffix not in endings:
        raise InputError(f"output {path} must end in {', '.join(endings)}, got {path.suffix or 'no ending'!r}")
    if not path.parent.exists():
        raise InputError(f"output folder {path.parent} does not exist; create it first")
    if path.exists() and any(os.path.exists(source) and path.samefile(source) for source in inputs if source):
        raise InputError(f"output {path} is a file that is read, and would be lost; give another name")
