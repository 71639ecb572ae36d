"""What the machine refuses, for every command: files, memory, the output itself."""

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
"""Of errors without a file's name: those of the output."""


def check_output_open(output: Any) -> None:
    """There is a standard output."""
    if output is None:
        raise InputError("the standard output is closed; redirect it to a file, or to /dev/null")


def check_still_there(arguments: argparse.Namespace) -> None:
    """What the command was told to write has not been removed while it ran."""
    out = getattr(arguments, "out", None)
    if out and not getattr(arguments, "follows", False) and not os.path.exists(os.path.expanduser(out)):
        raise InputError(f"{out} was removed while the command ran; run the same command again")


def of_the_machine(error: BaseException) -> str:
    """What the system says of a file, the output or its memory, in a line; "" where it is none of these."""
    from tdd.validate.scoring import is_memory_error

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
    """Nothing more is written to a standard output that does not take it; Python would try again at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
