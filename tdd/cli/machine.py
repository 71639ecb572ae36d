"""Errors of the system, for every command: files, memory, the output itself."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import sys
from typing import Any

from tdd.validate.errors import InputError

__all__ = ["check_output_open", "check_still_there", "drop_output", "of_the_machine"]

_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""Errors without a file name that concern the output."""


def check_output_open(output: Any) -> None:
    """Standard output is open."""
    if output is None:
        raise InputError("the standard output is closed; redirect it to a file, or to /dev/null")


def check_still_there(arguments: argparse.Namespace) -> None:
    """The output folder was not removed while the command ran."""
    out = getattr(arguments, "out", None)
    if out and not getattr(arguments, "follows", False) and not os.path.exists(os.path.expanduser(out)):
        raise InputError(f"{out} was removed while the command ran; run the same command again")


def of_the_machine(error: BaseException) -> str:
    """The system's message on a file, the output or memory, in one line; "" for any other error."""
    from tdd.validate.errors import is_memory_error

    if is_memory_error(error):
        return f"out of memory ({error}); give smaller sizes, or a machine with more of it"
    if not isinstance(error, OSError):
        return ""
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if error.errno in _OUTPUT:
        drop_output()
        return f"the output cannot be written: {error.strerror}; what the command has written to files is there"
    return f"the system refuses: {error}"


def drop_output() -> None:
    """Discard further output; Python would otherwise try to write it again at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
