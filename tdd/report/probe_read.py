"""The tables of a saved probe: its looks, and its items at the last of them."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tdd.audit.run_folder import read_table
from tdd.validate.errors import InputError
from tdd.validate.probe_record import HISTORY, ITEMS, check_looks, check_probe_table

__all__ = ["read_history", "read_probe_items"]


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
    check_probe_table(header, rows, HISTORY, place)
    try:
        found = {name: np.array([float(row[i] or "nan") for row in rows]) for i, name in enumerate(header)}
    except ValueError as error:
        raise InputError(f"{place} is damaged: {error}; save the probe again") from error
    check_looks(run, found["step"], place)
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
    check_probe_table(header, rows, ITEMS, place)
    columns: dict[str, list[Any]] = {name: [row[i] for row in rows] for i, name in enumerate(header)}
    try:
        for name in ("score", "p_value", "adjusted"):
            columns[name] = [float(value or "nan") for value in columns[name]]
    except ValueError as error:
        raise InputError(f"{place} is damaged: {error}; save the probe again") from error
    columns["selected"] = [value == "1" for value in columns["selected"]]
    return columns
