"""Checks of recipe files: sections, keys, types; every message names the file, the key and the value."""

from __future__ import annotations

import difflib
import pathlib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tdd.validate.errors import InputError

__all__ = [
    "check_different",
    "check_enough",
    "check_existing",
    "check_key",
    "check_known_keys",
    "check_named",
    "check_one_of_two",
    "check_present",
    "check_same_file",
    "check_same_recipe",
    "check_section",
    "check_typed",
    "named",
]

_T = TypeVar("_T")

_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text in quotes",
    bool: "true or false",
}


def check_known_keys(file: str, where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """No key is unknown; the nearest known one is suggested."""
    for key, value in given.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}? " if near else ""
            raise InputError(f"{file}: {_at(where, key)} = {value!r} is unknown; {hint}known: {', '.join(known)}")


def check_section(file: str, name: str, value: object) -> Mapping[str, Any]:
    """A section is a table."""
    if not isinstance(value, Mapping):
        raise InputError(f"{file}: {name} = {value!r} must be a section; write [{name}] and its keys below it")
    return value


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


def check_typed(file: str, path: str, value: Any, hint: Any) -> Any:
    """`value` as the type that a field declares; lists become tuples, whole numbers serve as numbers."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        if _fits(value, option):
            return tuple(value) if isinstance(value, list) else float(value) if option is float else value
    wanted = " or ".join(_words(option) for option in options if option is not types.NoneType)
    raise InputError(f"{file}: {path} must be {wanted}, got {value!r}")


def check_one_of_two(file: str, where: str, given: Mapping[str, Any], key: str, others: Sequence[str]) -> None:
    """`key` excludes `others`."""
    clash = [other for other in others if other in given]
    if key in given and clash:
        raise InputError(f"{file}: {_at(where, key)} and {_at(where, clash[0])} exclude each other; remove one")


def check_existing(file: str, path: str, place: pathlib.Path, value: str) -> None:
    """A file or folder that a recipe names is there."""
    if not place.exists():
        raise InputError(
            f"{file}: {path} = {value!r}: there is no {str(place)!r}; paths are relative to the recipe's folder"
        )


def check_enough(file: str, available: int, needed: int, what: str) -> None:
    """A file of texts holds as many as the design needs."""
    if available < needed:
        raise InputError(f"{file}: [plant] needs {needed} {what}, but corpus.file holds {available}")


def check_different(file: str, ids: Sequence[str], texts: Sequence[str]) -> None:
    """No text is there twice: one copy could be trained on and the other be a non-member."""
    first: dict[str, str] = {}
    for name, text in zip(ids, texts, strict=True):
        if text in first:
            raise InputError(
                f"{file}: {first[text]!r} and {name!r} are the same text, of which one could be planted and the other "
                "not; remove the duplicates"
            )
        first[text] = name


def check_same_recipe(out: Any, same: bool) -> None:
    """What lies in `out` was begun with this recipe."""
    if not same:
        raise InputError(
            f"out={str(out)!r} holds the run of another recipe (its recipe.toml differs); choose another folder or "
            "delete it"
        )


def check_same_file(path: Any, same: bool) -> None:
    """A file that an earlier call wrote is what this call would write."""
    if not same:
        raise InputError(
            f"{str(path)!r} differs from what this recipe makes now: a file that the recipe names, or a version, has "
            "changed since; choose another folder or delete this one"
        )


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


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value of TOML has a declared type; true and false are no numbers."""
    if typing.get_origin(kind) is tuple:
        element = typing.get_args(kind)[0]
        return isinstance(value, (list, tuple)) and all(_fits(entry, element) for entry in value)
    if typing.get_origin(kind) is not None:  # a mapping
        return isinstance(value, Mapping)
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _words(kind: Any) -> str:
    if typing.get_origin(kind) is tuple:
        return f"a list, each entry {_WORDS[typing.get_args(kind)[0]]}"
    return _WORDS.get(kind, "a section")
