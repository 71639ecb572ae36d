"""Checks of runs: options of an audit, the direction of the null, the output folder."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tdd.validate.errors import InputError

__all__ = [
    "check_output_file",
    "check_run",
    "reported",
]


_DECISION = ("run the audit again", ("decision", "checks", "inputs", "model"))
_PARTS = {
    "audit": _DECISION,
    "select": _DECISION,
    "exchange": ("run the test again", ("data", "selection", "options", "control", "model")),
    "probe": ("save the probe again", ("name", "options", "inputs", "alarm", "first_alarm", "guarantees", "looks")),
}
"""Kind of run -> how to get another, and the parts of its run.json beside sentences."""


def check_run(run: Mapping[str, Any], place: pathlib.Path) -> None:
    """A run.json that a report can be made of."""
    kind = run.get("kind")
    if not isinstance(kind, str) or kind not in _PARTS:
        raise InputError(f"{place} is a run of kind {kind!r}; this version reads {', '.join(_PARTS)}")
    again, parts = _PARTS[kind]
    missing = [name for name in ("outcome", *parts, "warnings", "open_points") if name not in run]
    if missing:
        raise InputError(f"{place} is damaged: it lacks {', '.join(missing)}; {again}")


@contextlib.contextmanager
def reported(run: Mapping[str, Any], folder: pathlib.Path) -> Iterator[None]:
    """Turn a wrong type in a run of an earlier version, which no SHA-256 seals, into an InputError."""
    try:
        yield
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if "files" in run:
            raise
        raise InputError(
            f"{folder} is damaged: a value in it is of another kind than a report needs ({type(error).__name__}: "
            f"{error}); {_PARTS[run['kind']][0]}"
        ) from error


def check_output_file(path: pathlib.Path, endings: Sequence[str], inputs: Iterable[str | None] = ()) -> None:
    """A file name whose ending says a format that can be written, and none of the files that are read."""
    if path.suffix not in endings:
        raise InputError(f"output {path} must end in {', '.join(endings)}, got {path.suffix or 'no ending'!r}")
    if not path.parent.exists():
        raise InputError(f"output folder {path.parent} does not exist; create it first")
    if path.exists() and any(os.path.exists(source) and path.samefile(source) for source in inputs if source):
        raise InputError(f"output {path} is a file that is read, and would be lost; give another name")
