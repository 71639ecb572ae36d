"""The selected items of a run in the order of a report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.runs.plain_csv import StringColumn

_BLOCK = 8_192
"""Rows whose words are in memory at a time."""


def most_extreme(items: Mapping[str, Any], columns: Sequence[str], null: str) -> np.ndarray:
    """Rows of the selected items: by adjusted p-value, p-value, then the statistic or the first deciding score.

    `items` are the columns of items.csv, as arrays or as they are read; missing numbers come last.
    """
    last, sign = ("statistic", -1) if "statistic" in items else (columns[0], 1 if null == "nonmember" else -1)
    rows = np.flatnonzero(items["selected"])
    keys = {name: numbers(items[name], rows) for name in ("adjusted", "p_value", last)}
    return rows[np.lexsort((sign * keys[last], keys["p_value"], keys["adjusted"]))]


def numbers(values: Sequence[Any] | np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The numbers in some rows of a column, to sort by: missing ones are infinite, and last."""
    if isinstance(values, StringColumn):
        found = np.empty(len(rows))
        for i in range(0, len(rows), _BLOCK):  # the words of a whole column would take more memory than the page
            found[i : i + _BLOCK] = [float(value or "nan") for value in values.take(rows[i : i + _BLOCK])]
    elif isinstance(values, np.ndarray):
        found = values[rows].astype(np.float64)
    else:
        found = np.array([float("nan" if values[i] == "" else values[i]) for i in rows], np.float64)
    return np.where(np.isnan(found), math.inf, found)
