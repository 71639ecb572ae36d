"""The table of shards of a finished test of canonical order."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tdd.exchange.result import SHARD_COLUMNS
from tdd.runs.folder import read_table
from tdd.validate.errors import InputError

__all__ = ["read_shards"]

_WHOLE = ("shard", "first_example", "num_examples", "num_tokens", "rank", "num_shuffles")


def read_shards(folder: pathlib.Path, run: Mapping[str, Any] | None = None) -> dict[str, np.ndarray] | None:
    """Columns of shards.csv, one row a shard of each data set; None where there is no such file.

    Args:
      folder: of the run.
      run: content of its run.json, which holds the SHA-256 of the table.

    Raises:
      InputError: a damaged table.
    """
    place = folder / "shards.csv"
    if not place.is_file():
        return None
    header, rows = read_table(folder, "shards.csv", run)
    try:
        if tuple(header) != SHARD_COLUMNS or any(len(row) != len(header) for row in rows):
            raise ValueError(f"its columns are not {', '.join(SHARD_COLUMNS)}")
        columns = dict(zip(header, zip(*rows, strict=True) if rows else [()] * len(header), strict=True))
        return {name: _array(name, values) for name, values in columns.items()}
    except ValueError as error:
        raise InputError(f"{place} is damaged: {error}; run the test again") from error


def _array(name: str, values: tuple[str, ...]) -> np.ndarray:
    if name == "data":
        return np.array(values, dtype=object)
    if name in _WHOLE:
        return np.array([int(value) for value in values], np.int64)
    return np.array([float(value or "nan") for value in values])
