"""The tables of a saved probe: its looks, and its items at the last of them."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.runs.folder import read_table
from tdd.validate.errors import InputError

__all__ = ["read_history", "read_probe_items"]

HISTORY = (
    "step", "look", "p_value", "anytime_p_value", "log_e_value", "num_flagged", "proportion",
    "mean_suspect", "mean_reference", "num_not_finite", "alarm", "seconds",
)  # fmt: skip
"""Columns that every history.csv of a probe has; canaries and gradient norms add theirs."""
ITEMS = ("id", "role", "score", "p_value", "adjusted", "selected")
"""Columns of its items.csv."""


def read_history(folder: pathlib.Path, run: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Columns of history.csv as [looks] float64, an empty cell as NaN; without rows where no look was taken.

    Args:
      folder: of the run.
      run: content of its run.json.

    Raises:
      InputError: no such table, a damaged one, or one of another run.
    """
    if not run["looks"]:
        return {name: np.zeros(0) for name in HISTORY}
    place = folder / "history.csv"
    header, rows = read_table(folder, "history.csv", run)
    _check_probe_table(header, rows, HISTORY, place)
    try:
        found = {name: np.array([float(row[i] or "nan") for row in rows]) for i, name in enumerate(header)}
    except ValueError as error:
        raise InputError(f"{place} is damaged: {error}; save the probe again") from error
    _check_looks(run, found["step"], place)
    return found


def read_probe_items(folder: pathlib.Path, run: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Columns of items.csv: id and role as they are, numbers as float, `selected` as bool.

    Args:
      folder: of the run.
      run: content of its run.json.

    Raises:
      InputError: no such table, or a damaged one.
    """
    if not run["looks"]:
        return {name: [] for name in ITEMS}
    place = folder / "items.csv"
    header, rows = read_table(folder, "items.csv", run)
    _check_probe_table(header, rows, ITEMS, place)
    columns: dict[str, list[Any]] = {name: [row[i] for row in rows] for i, name in enumerate(header)}
    try:
        for name in ("score", "p_value", "adjusted"):
            columns[name] = [float(value or "nan") for value in columns[name]]
    except ValueError as error:
        raise InputError(f"{place} is damaged: {error}; save the probe again") from error
    columns["selected"] = [value == "1" for value in columns["selected"]]
    return columns


def _check_probe_table(header: Sequence[str], rows: Sequence[Sequence[str]], needed: Sequence[str], place: Any) -> None:
    """A table with the columns that the report reads, and rows as long as its header."""
    missing = [name for name in needed if name not in header]
    if missing or any(len(row) != len(header) for row in rows):
        what = f"lacks the columns {', '.join(missing)}" if missing else "has rows of different lengths"
        raise InputError(f"{place} is damaged: it {what}; save the probe again")


def _check_looks(run: Mapping[str, Any], steps: np.ndarray, place: pathlib.Path) -> None:
    """The history has the looks that run.json counts."""
    if run["looks"] != steps.size:
        raise InputError(
            f"{place} has {steps.size} looks and run.json beside it counts {run['looks']}: they are not of one run; "
            "save the probe again"
        )
