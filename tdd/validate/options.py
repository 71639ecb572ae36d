"""The text form of a value with options, "name:option=value,option=value": what procedures and scores share."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from tdd.validate import InputError


def split_options(text: str) -> tuple[str, list[tuple[str, str]] | None]:
    """The name and its options as written; None in the place of options that are not option=value each.

    >>> split_options("ptdi:proportion=none,eta=0.1")
    ('ptdi', [('proportion', 'none'), ('eta', '0.1')])
    >>> split_options("ptdi:none")
    ('ptdi', None)
    """
    name, colon, written = text.partition(":")
    parts = [tuple(part.strip() for part in option.partition("=")) for option in (written.split(",") if colon else ())]
    if not all(option and equals and value for option, equals, value in parts):
        return name.strip(), None
    return name.strip(), [(option, value) for option, _, value in parts]


def parse_option(name: str, text: str, kind: Any) -> Any:
    """A value of an option, by the type that its class declares.

    Raises:
      InputError: no number where the type is one, neither true nor false where it is a truth value; an option that is
        a function.

    >>> parse_option("tied", "false", bool)
    False
    """
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise InputError(f"{name}={text} must be true or false")
        return text.lower() == "true"
    try:
        if kind is float:
            return float(text)
        if kind is int:
            return int(text)
        if typing.get_origin(kind) is tuple:
            return tuple(float(part) for part in text.split(":"))
    except ValueError:
        raise InputError(f"{name}={text} is no number") from None
    if any(typing.get_origin(choice) is Callable for choice in typing.get_args(kind)):
        raise InputError(f"{name} is a function, which no text can say; give it as a value in Python")
    return text
