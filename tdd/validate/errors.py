"""The one error for bad input."""

__all__ = ["InputError"]


class InputError(ValueError):
    """A value that the user passed cannot be used; the message names it and says what would work."""
