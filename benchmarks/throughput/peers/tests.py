"""Combined p-values, knockoffs, permutation and rank tests, simultaneous bounds: NumPy, SciPy, knockpy."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

__all__ = ["cauchy", "fdp_bounds", "fisher", "knockoff_numpy", "knockpy", "permutation", "rank_sum", "student"]

Arrays = dict[str, np.ndarray]


def cauchy(p_values: np.ndarray) -> Arrays:
    """The Cauchy combination of each row [K]."""
    statistic = np.mean(1 / np.tan(np.pi * p_values.astype(float)), axis=-1)
    return {"p_value": np.arctan2(1.0, statistic) / np.pi}


def fisher(p_values: np.ndarray) -> Arrays:
    """Fisher's combination of each row [K] by SciPy."""
    from scipy.stats import combine_pvalues

    return {"p_value": np.asarray(combine_pvalues(p_values.astype(float), axis=-1)[1])}


def student(values: np.ndarray) -> Arrays:
    """SciPy's one-sided one-sample t test."""
    from scipy.stats import ttest_1samp

    return {"p_value": np.asarray(ttest_1samp(values.astype(float), 0.0, alternative="greater")[1])}


def knockoff_numpy(alpha: float) -> Callable[..., Arrays]:
    """The knockoff+ threshold from one sort of |W| and one of the negative ones."""

    def call(w: np.ndarray) -> Arrays:
        cut = np.unique(np.abs(w[w != 0]))
        favourable = w.size - np.searchsorted(np.sort(w), cut, side="left")
        negative = np.sort(-w[w < 0])
        against = negative.size - np.searchsorted(negative, cut, side="left")
        passes = (1 + against) <= alpha * np.maximum(favourable, 1) * (1 + 1e-12)
        return {"threshold": cut[np.argmax(passes)] if passes.any() else np.asarray(np.inf, w.dtype)}

    return call


def knockpy(alpha: float) -> Callable[..., Arrays]:
    """knockpy's data-dependent threshold."""

    def call(w: np.ndarray) -> Arrays:
        from knockpy.knockoff_stats import data_dependent_threshhold  # type: ignore[import-not-found]

        return {"threshold": np.asarray(data_dependent_threshhold(w, fdr=alpha, offset=1))}

    return call


def permutation(observed: np.ndarray, permuted: np.ndarray) -> Arrays:
    """(1 + #{L_b >= L})/(1 + B) of values without near ties."""
    count = np.count_nonzero(permuted >= observed)
    return {"p_value": np.asarray((1 + count) / (1 + permuted.size))}


def rank_sum(canonical: np.ndarray, shuffled: np.ndarray) -> Arrays:
    """The sum of ranks over shards and its exact upper tail, from a table that is made once for each size."""
    total = int(np.count_nonzero(canonical[:, None] > shuffled))
    return {"statistic": np.asarray(total), "p_value": rank_sum_tail(*shuffled.shape)[total]}


@functools.lru_cache(maxsize=8)
def rank_sum_tail(num_shards: int, num_shuffles: int) -> np.ndarray:
    """P(sum >= s) of independent uniform ranks in 0..k, s = 0..r k, in float64: running means of k + 1 terms."""
    width = num_shuffles + 1
    law = np.ones(1)
    for _ in range(num_shards):
        law = np.convolve(law, np.full(width, 1 / width))
    return np.minimum(np.cumsum(law[::-1])[::-1], 1)


def fdp_bounds(
    num_nulls: np.ndarray, grid: np.ndarray, bound: np.ndarray, rank: np.ndarray, num_calibration: np.ndarray
) -> Arrays:
    """The envelope of simultaneous bounds at every rank: a histogram and running minima."""
    points, m = int(num_calibration) + 1, rank.size
    selected = np.cumsum(np.bincount(rank - 1, minlength=points))
    at_grid = selected[grid - 1]
    before = np.concatenate([[0], num_nulls[:-1]])
    largest = np.minimum(np.minimum(num_nulls, m), m + np.min(bound - at_grid, axis=1))
    nulls = int(np.max(np.where(largest > before, largest, 0)))
    row = int(np.searchsorted(num_nulls, nulls))
    known = np.minimum.accumulate(np.minimum(bound[row], at_grid)[::-1])[::-1]
    following = np.searchsorted(grid, np.arange(1, points + 1))
    false = np.minimum(np.minimum(np.append(known, m)[following], selected), nulls)
    return {"false_bound": selected - np.maximum.accumulate(selected - false), "max_nulls": np.asarray(nulls)}
