"""Checks of the files that a probe leaves behind."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = ["HISTORY", "ITEMS", "check_looks", "check_probe_table"]

HISTORY = (
    "step", "look", "p_value", "anytime_p_value", "log_e_value", "num_flagged", "proportion",
    "mean_suspect", "mean_reference", "num_not_finite", "alarm", "seconds",
)  # fmt: skip
"""Columns that every history.csv of a probe has; canaries and gradient norms add theirs."""

ITEMS = ("id", "role", "score", "p_value", "adjusted", "selected")
"""Columns of its items.csv."""


def check_probe_table(header: Sequence[str], rows: Sequence[Sequence[str]], needed: Sequence[str], place: Any) -> None:
    """A table with the columns that the report reads, and rows as long as its header."""
    missing = [name for name in needed if name not in header]
    if missing or any(len(row) != len(header) for row in rows):
        what = f"lacks the columns {', '.join(missing)}" if missing else "has rows of different lengths"
        raise InputError(f"{place} is damaged: it {what}; save the probe again")


def check_looks(run: Mapping[str, Any], steps: np.ndarray, place: pathlib.Path) -> None:
    """The history has the looks that run.json counts."""
    if run["looks"] != steps.size:
        raise InputError(
            f"{place} has {steps.size} looks and run.json beside it counts {run['looks']}: they are not of one run; "
            "save the probe again"
        )
