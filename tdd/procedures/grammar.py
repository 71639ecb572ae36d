"""Procedures by name, and how a user writes one: "ptdi", "ptdi:proportion=none,eta=0.1"."""

from __future__ import annotations

import dataclasses
import importlib
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tdd.procedures.procedure import Procedure
from tdd.validate import InputError

__all__ = ["as_procedure", "check_no_options", "known_procedures", "procedure"]

_OWN = {
    "ptdi": "values",
    "best_score": "best_score",
    "combined_score": "combined_score",
    "conditional": "conditional",
    "weighted": "weighted",
    "ktd": "ktd",
    "td4eval": "td4eval",
    "jmcs": "jecs",
    "jecs": "jecs",
}
"""Name of a procedure of `tdd` -> the module here that holds it, which is loaded where it is used."""


def known_procedures() -> dict[str, type[Procedure]]:
    """Name -> class, of every procedure that has been defined: those of `tdd`, then the user's.

    Raises:
      InputError: a user's procedure has the name of one of `tdd`.
    """
    return {name: _own(name) for name in _OWN} | _of_users()


def _own(name: str) -> type[Procedure]:
    """The procedure of `tdd` with this name."""
    module = importlib.import_module(f"tdd.procedures.{_OWN[name]}")
    return next(one for one in _below(Procedure) if vars(one).get("name") == name and one.__module__ == module.__name__)


def _of_users() -> dict[str, type[Procedure]]:
    """Name -> class, of procedures that are not of `tdd`."""
    found = {}
    for one in _below(Procedure):
        name = vars(one).get("name")
        if name is None or one.__abstractmethods__ or one.__module__.startswith("tdd.procedures."):
            continue
        if name in _OWN:
            raise InputError(f"{one.__module__}.{one.__qualname__} has the name of tdd's own {name!r}; change it")
        found[name] = one
    return found


def procedure(text: str) -> Procedure:
    """A procedure as a user writes it: "ptdi", "ptdi:proportion=none,eta=0.1", "td4eval:weights=0.2:0.8".

    Args:
      text: the name, then options as in the class; numbers of a tuple are separated by colons.

    Raises:
      InputError: unknown name or option, or a value that the procedure refuses.

    >>> procedure("td4eval:combine=pooled_rank,weights=0.25:0.75").weights
    (0.25, 0.75)
    """
    return as_procedure(text)


def as_procedure(given: Any, **options: Any) -> Procedure:
    """A value as it is, or a procedure by its name, with options that were given apart from it (None: not given).

    Raises:
      InputError: as `procedure`; options beside a value, or of another procedure.
    """
    options = {name: value for name, value in options.items() if value is not None}
    if isinstance(given, Procedure):
        for name, value in options.items():
            raise InputError(
                f"{name}={value!r} beside method={given!r}: give it as an option of {type(given).__name__}, or leave "
                "it out"
            )
        return given
    name, colon, text = str(given).partition(":")
    of_users = _of_users()
    if name not in {*_OWN, *of_users}:
        raise InputError(f"method {name!r} is not known; choose one of {', '.join([*_OWN, *of_users])}")
    cls = of_users.get(name) or _own(name)
    own = [field.name for field in dataclasses.fields(cls)]
    for option, value in options.items():
        if option not in own:
            owners = " and ".join(map(repr, _owners(option)))
            raise InputError(
                f"{option}={value!r} belongs to method {owners}, and {name!r} does not use it; leave it out"
            )
    kinds = typing.get_type_hints(cls)
    for part in text.split(",") if colon else ():
        option, equals, value = (one.strip() for one in part.partition("="))
        if not (option and equals and value) or option in options:
            raise InputError(f"method {given!r} is not NAME:option=value,option=value with each option once")
        if option not in own:
            owners = [other for other in _owners(option) if other != name]
            belongs = f" ({option} belongs to {' and '.join(owners)})" if owners else ""
            raise InputError(f"method {name!r} has no option {option!r}; it has {', '.join(own) or 'none'}{belongs}")
        options[option] = _parsed(option, value, kinds[option])
    return cls(**options)


def check_no_options(procedure: Procedure, keywords: Mapping[str, Any]) -> None:
    """Refuse keywords of a call that are options of tdd's procedures.

    Raises:
      InputError: one of them is; the message says how to write it.
    """
    for keyword, value in keywords.items():
        owners = [name for name in _owners(keyword) if name in _OWN]
        if not owners:
            continue
        owner = procedure.name if procedure.name in owners else owners[0]
        text = ":".join(map(str, value)) if isinstance(value, (tuple, list)) else value
        as_text = "" if callable(value) else f"method='{owner}:{keyword}={text}' or "
        raise InputError(
            f"{keyword} is an option of the procedure: {as_text}tdd.{_own(owner).__name__}({keyword}={value!r})"
        )


def _owners(option: str) -> list[str]:
    """Names of the procedures that have an option."""
    return [
        name for name, cls in known_procedures().items() if option in {field.name for field in dataclasses.fields(cls)}
    ]


def _parsed(name: str, text: str, kind: Any) -> Any:
    """A value of an option, by the type that the class declares."""
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
        raise InputError(f"{name} is a function, which no text can say; give the procedure as a value")
    return text


def _below(cls: type[Procedure]) -> Iterator[type[Procedure]]:
    for one in cls.__subclasses__():
        yield one
        yield from _below(one)
