"""Checks of recipe files: sections, keys, types; every message names the file, the key and the value."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tdd.validate.errors import InputError

__all__ = [
    "check_key",
    "check_known_keys",
    "check_named",
    "check_one_of_two",
    "check_present",
    "named",
]

_T = TypeVar("_T")


def check_known_keys(file: str, where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """No key is unknown; the nearest known one is suggested."""
    for key, value in given.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}? " if near else ""
            raise InputError(f"{file}: {_at(where, key)} = {value!r} is unknown; {hint}known: {', '.join(known)}")


def check_present(file: str, where: str, given: Mapping[str, Any], required: Sequence[str]) -> None:
    """Every key without a default is there."""
    missing = [key for key in required if key not in given]
    if missing:
        verb = "is missing; it has no default" if len(missing) == 1 else "are missing; they have no default"
        raise InputError(f"{file}: {', '.join(_at(where, key) for key in missing)} {verb}")


def check_key(file: str, where: str, given: Mapping[str, Any], key: str, choices: Sequence[str]) -> str:
    """The value of a key that names one of several kinds."""
    check_present(file, where, given, (key,))
    if given[key] not in choices:
        near = difflib.get_close_matches(str(given[key]), choices, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(
            f"{file}: {_at(where, key)} = {given[key]!r} is unknown; {hint}choose one of {', '.join(choices)}"
        )
    return str(given[key])


def check_one_of_two(file: str, where: str, given: Mapping[str, Any], key: str, others: Sequence[str]) -> None:
    """`key` excludes `others`."""
    clash = [other for other in others if other in given]
    if key in given and clash:
        raise InputError(f"{file}: {_at(where, key)} and {_at(where, clash[0])} exclude each other; remove one")


def named(file: str, where: str, make: Callable[[], _T]) -> _T:
    """`make()`; its refusals name the file and the section besides."""
    try:
        return make()
    except InputError as error:
        raise InputError(f"{file}: [{where}] {error}" if where else f"{file}: {error}") from error


def check_named(kind: str, name: str, choices: Sequence[str]) -> str:
    """A name of its kind that there is; else the nearest one is suggested."""
    if name not in choices:
        near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(f"there is no {kind} {name!r}; {hint}choose one of {', '.join(choices)}")
    return name


def _at(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
