"""The text form of a value with options, "name:option=value,option=value": what procedures and scores share."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import sys
import typing
from collections.abc import Callable, Collection
from typing import Any, Self

from tdd.validate import InputError


class KnownFields:
    """A base of frozen records: a keyword that is no field is refused by name, as an option of a call is.

    Raises:
      InputError: a keyword that is no field; the message lists those that are.
    """

    def __new__(cls, *values: Any, **fields: Any) -> Self:
        """Check the keywords; `__init__` takes them."""
        known = inspect.signature(cls.__init__).parameters if fields else {}
        open_ended = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())
        if not open_ended and (unknown := [name for name in fields if name not in known]):
            names = [*known][1:]
            listed = f"it has {', '.join(names)}" if names else "it has none"
            raise InputError(f"{cls.__name__} has no field {unknown[0]!r}; {suggestion(unknown[0], names)}{listed}")
        return super().__new__(cls)


def suggestion(name: str, known: Collection[str]) -> str:
    """ "did you mean 'NEAREST'? " for an error message, or nothing if no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}? " if near else ""


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


def kind_of(cls: type, name: str) -> Any:
    """The type that a dataclass, or one above it, declares for a field; Any where type checkers alone see it."""
    field = next(one for one in dataclasses.fields(cls) if one.name == name)
    owner = [one for one in cls.__mro__ if vars(one).get("__dataclass_fields__", {}).get(name) is field][-1]

    def alone() -> None:
        """Carries one annotation."""

    alone.__annotations__ = {name: field.type}
    try:
        return typing.get_type_hints(alone, vars(sys.modules[owner.__module__]), dict(vars(owner)))[name]
    except (AttributeError, NameError):
        return Any


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
