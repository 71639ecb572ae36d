"""Checks of runs: options of an audit, the direction of the null, the output folder."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = ["check_direction", "check_known_labels", "check_method", "check_output_file", "check_run_folder"]


def check_method(method: str, methods: Iterable[str]) -> None:
    """A procedure that exists."""
    known = tuple(methods)
    if method not in known:
        raise InputError(f"method {method!r} is not known; choose one of {', '.join(known)}")


def check_direction(null: str | None, needed: str, method: str) -> None:
    """The null that the caller names, if any, is the one that the method tests."""
    if null is None or null == needed:
        return
    if null not in ("nonmember", "member"):
        raise InputError(f'null must be "nonmember" or "member", got {null!r}')
    raise InputError(
        f'{method} tests the null "{needed}" and calibrates on known {needed}s; null={null!r} would turn its '
        f"guarantee round. Pass known {needed}s as calibration and leave null out"
    )


def check_known_labels(labels: Sequence[int] | np.ndarray, ids: Sequence[str], null: str) -> None:
    """Calibration items whose truth is known are on the null's side."""
    known = np.asarray(labels, dtype=np.int64)
    if known.size == 0:
        return
    wrong = np.flatnonzero(known == (1 if null == "nonmember" else 0))
    if wrong.size:
        other = "member (label 1)" if null == "nonmember" else "non-member (label 0)"
        raise InputError(
            f"{wrong.size} of {known.size} calibration items are labelled as {other}, the first is "
            f'{ids[int(wrong[0])]!r}; the null "{null}" is calibrated on known {null}s. Remove them or exchange the '
            "roles of the two inputs"
        )


def check_run_folder(folder: pathlib.Path, fingerprint: str) -> None:
    """An output folder is new, empty, or holds the same run."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"output {folder} is a file; give a folder")
    marker = folder / "inputs.json"
    if not marker.exists():
        if any(folder.iterdir()):
            raise InputError(f"output folder {folder} is not empty and holds no run; give a new or an empty folder")
        return
    try:
        held: dict[str, Any] = json.loads(marker.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{marker} cannot be read ({error}); give another output folder") from error
    if held.get("fingerprint") != fingerprint:
        raise InputError(
            f"output folder {folder} holds a run of other inputs or options ({held.get('summary', 'unknown')}); give "
            "another folder, or remove this one"
        )


def check_output_file(path: pathlib.Path, endings: Sequence[str]) -> None:
    """A file name whose ending says a format that can be written."""
    if path.suffix not in endings:
        raise InputError(f"output {path} must end in {', '.join(endings)}, got {path.suffix or 'no ending'!r}")
    if not path.parent.exists():
        raise InputError(f"output folder {path.parent} does not exist; create it first")
