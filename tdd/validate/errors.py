"""The one error for bad input."""

__all__ = ["InputError", "printable"]


class InputError(ValueError):
    """A value that the user passed cannot be used; the message names it and says what would work."""


def printable(text: str) -> str:
    """Text as one line in which control characters, line breaks too, are spelled out: none reaches the terminal.

    >>> printable("a\\x1b[2Jb\\nc")
    'a\\\\x1b[2Jb\\\\nc'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
