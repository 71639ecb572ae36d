"""`InputError`, and the checks that several rooms share; a check with one caller lives beside it.

The checks raise `InputError`, whose text names the argument, the offending value and the way out; the command line
prints it without a traceback. `arrays` has those of the statistics, `files` those of JSON, .npz and model folders. This
file imports no JAX.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

_OUT_OF_MEMORY = ("resource_exhausted", "out of memory", "out_of_memory", "failed to allocate")
"""Words of JAX's backends when memory does not suffice, in lower case."""


class InputError(ValueError):
    """A value that the user passed cannot be used; the message, one printable line, names it and what would work.

    `in_python` ends the message where no command was typed.
    """

    def __init__(self, message: object = "", in_python: str = "") -> None:
        self.said = printable(str(message))
        super().__init__(self.said + in_python)


def is_memory_error(error: BaseException) -> bool:
    """True if a device or the host ran out of memory, by the words of JAX's backends."""
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def printable(text: str) -> str:
    """Text as one line in which control characters, line breaks too, are spelled out: none reaches the terminal.

    >>> printable("a\\x1b[2Jb\\nc")
    'a\\\\x1b[2Jb\\\\nc'
    """
    return "".join(c if c.isprintable() else _escape(c) for c in text)


_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U00016fe4\U0001d159"
    "\U000e0100-\U000e01ef]"
)
"""Printable characters that leave no mark: Unicode's default-ignorable ones, the empty pattern of Braille, the filler
of the small Khitan script and the empty note head."""


def spelled(name: str) -> str:
    """An identifier so that no other one looks the same: as it is, or with escapes in quotation marks.

    Spelled out are characters that are not printable or not seen (variation selectors, fillers, joiners), backslashes,
    a space at an end or beside another, and letters that Unicode composes otherwise; letters of different scripts may
    still look alike.

    >>> print(*map(spelled, ["a b", "x ", "a" + chr(10) + "b", "a" + chr(92) + "nb", "e" + chr(0x301)]), sep=", ")
    a b, 'x ', 'a\\nb', 'a\\\\nb', 'e\\u0301'
    """
    composed = unicodedata.is_normalized("NFC", name)
    whole = composed and name.isprintable() and not _UNSEEN.search(name) and name == " ".join(name.split())
    if whole and "\\" not in name and not name.startswith("'"):
        return name
    parts = (
        c if c.isprintable() and c != "\\" and not _UNSEEN.match(c) and (composed or c.isascii()) else _escape(c)
        for c in name
    )
    return "'" + "".join(parts).replace("  ", r" \x20") + "'"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


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
