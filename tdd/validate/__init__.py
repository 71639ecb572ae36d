"""`InputError`, and the checks that several rooms share; a check with one caller lives beside it.

The checks raise `InputError`, whose text names the argument, the offending value and the way out; the command line
prints it without a traceback. `arrays` has those of the statistics, `files` those of JSON, .npz and model folders. This
file imports no JAX.
"""

from collections.abc import Iterable, Sequence
from typing import Any

_OUT_OF_MEMORY = ("resource_exhausted", "out of memory", "out_of_memory", "failed to allocate")
"""Words of JAX's backends when memory does not suffice, in lower case."""


class InputError(ValueError):
    """A value that the user passed cannot be used; the message, one printable line, names it and what would work."""

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(str(message)))


def is_memory_error(error: BaseException) -> bool:
    """True if a device or the host ran out of memory, by the words of JAX's backends."""
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def printable(text: str) -> str:
    """Text as one line in which control characters, line breaks too, are spelled out: none reaches the terminal.

    >>> printable("a\\x1b[2Jb\\nc")
    'a\\\\x1b[2Jb\\\\nc'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def some(names: Sequence[Any], most: int = 5, between: str = ", ") -> str:
    """The first names, and how many more there are.

    >>> some(range(4), 3)
    '0, 1, 2 and 1 more'
    """
    shown = between.join(map(str, names[:most])) or "none"
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def as_names(value: Any, argument: str) -> tuple[str, ...]:
    """One name, or a sequence of names.

    Raises:
      InputError: anything else.
    """
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"{argument} must be a name or a sequence of names, got {value!r}")
    return names
