"""Small sums that several reproductions need."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence

import numpy as np

from benchmarks.reproductions.record import cell_seconds

__all__ = ["mean_and_error", "seconds_of", "spearman", "standard_error"]


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


def seconds_of(folder: pathlib.Path | None) -> float:
    """Seconds that all cells of a folder took, whichever run computed them."""
    return float(sum(cell_seconds(folder).values()))


def spearman(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation along the last axis, ties given their mean rank; NaN where all of one are equal.

    Args:
      first: [..., M].
      second: [..., M].

    >>> float(spearman(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 3.0])))
    0.5
    """
    one, two = (_mean_ranks(np.asarray(values, np.float64)) for values in (first, second))
    one, two = (ranks - ranks.mean(axis=-1, keepdims=True) for ranks in (one, two))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (one * two).sum(axis=-1) / np.sqrt((one**2).sum(axis=-1) * (two**2).sum(axis=-1))


def _mean_ranks(values: np.ndarray) -> np.ndarray:
    below = (values[..., None, :] < values[..., :, None]).sum(axis=-1)
    equal = (values[..., None, :] == values[..., :, None]).sum(axis=-1)
    return below + (equal + 1) / 2
