"""Small sums that several reproductions need."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import rankdata

from benchmarks.reproductions.record import Row

__all__ = ["by_level", "mean_and_error", "spearman", "standard_error"]


def standard_error(values: Sequence[float]) -> float:
    """Standard deviation (ddof 1) over the root of how many there are; NaN for one."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def mean_and_error(values: Sequence[float]) -> str:
    """Mean and standard error, as "0.123 ± 0.004".

    >>> mean_and_error([0.1, 0.2, 0.3])
    '0.200 ± 0.058'
    """
    error = standard_error(values)
    return f"{np.mean(values):.3f}" + ("" if math.isnan(error) else f" ± {error:.3f}")


def by_level(rows: Sequence[Row], columns: Mapping[str, str]) -> Row:
    """Means and standard errors of columns at each level: "HEADING at LEVEL" -> "0.123 ± 0.004".

    Args:
      rows: Rows with a level `alpha` and the columns.
      columns: Column -> its heading.
    """
    return {
        f"{heading} at {alpha:g}": mean_and_error([row[column] for row in rows if row["alpha"] == alpha])
        for alpha in sorted({row["alpha"] for row in rows})
        for column, heading in columns.items()
    }


def spearman(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation along the last axis, ties given their mean rank; NaN where all of one are equal.

    Args:
      first: [..., M].
      second: [..., M].

    >>> float(spearman(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 3.0])))
    0.5
    """
    ranks = (rankdata(values, axis=-1) for values in (first, second))
    one, two = (values - values.mean(axis=-1, keepdims=True) for values in ranks)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (one * two).sum(axis=-1) / np.sqrt((one**2).sum(axis=-1) * (two**2).sum(axis=-1))
