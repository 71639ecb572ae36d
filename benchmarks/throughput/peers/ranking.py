"""Conformal p-values and what is decided on them: NumPy's sort and searchsorted, SciPy's BH."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.throughput.joint_peer import max_ranks

__all__ = ["SLACK", "conformal", "conformal_torch", "jecs", "jmcs", "pooled_sum", "ptdi", "select_bh", "weighted"]

Arrays = dict[str, np.ndarray]
GRID_TENTHS = range(1, 10)
SLACK = 1 + 1e-12
"""Of a comparison between numbers on the lattice of conformal p-values: above rounding, far below the gaps."""


def conformal(calibration: np.ndarray, scores: np.ndarray) -> Arrays:
    """(1 + #{T_i <= T_j})/(n + 1)."""
    at_most = np.searchsorted(np.sort(calibration), scores, side="right")
    return {"p_values": (1 + at_most) / (calibration.size + 1)}


def conformal_torch(calibration: Any, scores: Any) -> Any:
    """The same for torch tensors of lists, [..., n] and [..., m]."""
    import torch

    at_most = torch.searchsorted(calibration.sort(-1).values, scores, right=True)
    return (1 + at_most) / (calibration.shape[-1] + 1)


def weighted(calibration: np.ndarray, scores: np.ndarray, calibration_weights: np.ndarray, weights: np.ndarray) -> Any:
    """(sum of w_i over T_i <= T_j, plus w_j) over (sum of w_i, plus w_j), sums in float64."""
    order = np.argsort(calibration)
    sums = np.concatenate([[0.0], np.cumsum(calibration_weights[order], dtype=float)])
    at_most = sums[np.searchsorted(calibration[order], scores, side="right")]
    return {"p_values": (at_most + weights) / (sums[-1] + weights)}


def select_bh(p_values: np.ndarray, alpha: float, factor: float = 1.0) -> np.ndarray:
    """BH at alpha on factor·p by SciPy; equality counts as rejection."""
    from scipy.stats import false_discovery_control

    return factor * false_discovery_control(p_values) <= alpha * SLACK


def ptdi(alpha: float, eta: float | None = None) -> Callable[..., Arrays]:
    """PTDI; with `eta` p-values are scaled by the subtraction estimate."""

    def call(calibration: np.ndarray, scores: np.ndarray) -> Arrays:
        ordered = np.sort(calibration)
        n, m = ordered.size, scores.size
        p_values = (1 + np.searchsorted(ordered, scores, side="right")) / (n + 1)
        factor = 1.0 if eta is None else 1 - subtraction(ordered, scores, eta)
        return {"selected": select_bh(p_values, alpha, factor)} if m else {"selected": np.zeros(0, bool)}

    return call


def subtraction(ordered: np.ndarray, scores: np.ndarray, eta: float) -> float:
    """The subtraction estimate of the member proportion, from calibration scores in order."""
    n, m = ordered.size, scores.size
    kept = n - max(1, math.floor(eta * n + 1e-9))
    if kept < 1:
        return 0.0
    tau = ordered[kept - 1]
    in_region = n - np.searchsorted(ordered, tau, side="right")
    if in_region == 0:
        return 0.0
    return float(1 - (1 + np.count_nonzero(scores > tau)) / (m + 1) / (in_region / n))


def jmcs(alpha: float) -> Callable[..., Arrays]:
    """BH on the largest p-values."""

    def call(calibration: np.ndarray, scores: np.ndarray) -> Arrays:
        return {"selected": select_bh(max_ranks(calibration, scores) / (calibration.shape[1] + 1), alpha)}

    return call


def jecs(alpha: float) -> Callable[..., Arrays]:
    """BH on the largest p-values under their fitted envelope, grid .1, ..., .9."""

    def call(calibration: np.ndarray, scores: np.ndarray) -> Arrays:
        return {"selected": jecs_of_ranks(max_ranks(calibration, scores), calibration.shape[1], alpha)}

    return call


def jecs_of_ranks(rank: np.ndarray, n: int, alpha: float) -> np.ndarray:
    """The selection of JECS from the integer ranks of the largest p-values: one sort, then places in it."""
    ordered = np.sort(rank)
    p_values, m = ordered / (n + 1), rank.size
    best: tuple[float, float, int] | None = None
    for tenths in GRID_TENTHS:
        below = int(np.searchsorted(ordered, tenths * (n + 1) // 10, side="right"))
        above = m - below
        if above < 10:
            continue
        tau = tenths / 10
        kth = ordered[below + math.isqrt(above - 1)]  # the ceil(sqrt(above))-th of them
        near = int(np.searchsorted(ordered, kth, side="right")) - below
        density = near / above / (kth / (n + 1) - tau)
        anchor = tau * density / (1 + tau * density)
        if best is None or anchor / tau < best[0] * (1 - 1e-12):
            best = anchor / tau, tau, below
    if best is None:
        return select_bh(rank / (n + 1), alpha)
    slope, tau, below = best
    anchor, above = slope * tau, m - below
    value = slope * p_values
    last = np.searchsorted(ordered, ordered[below:], side="right")
    value[below:] = anchor + (1 - anchor) * (last - below) / above
    pi0 = (1 + above) / (m * (1 - anchor))
    # `value` is in order: the largest i with pi0·value_i <= alpha·i/m, and every item up to it.
    passes = np.flatnonzero(pi0 * value * m <= alpha * SLACK * np.arange(1, m + 1))
    return np.zeros(m, bool) if passes.size == 0 else rank <= ordered[passes[-1]]


def pooled_sum(calibration: np.ndarray, scores: np.ndarray) -> Arrays:
    """[K, n], [K, m] -> ranks of the summed pooled mid-ranks of known members, in doubled integers."""
    from scipy.stats import rankdata

    n = calibration.shape[1]
    ranks = rankdata(np.concatenate([calibration, scores], axis=1), axis=1)
    evidence = np.rint(2 * ranks).astype(np.int64).sum(0)  # large scores are evidence against membership
    below = np.searchsorted(np.sort(evidence[:n]), evidence[n:])
    return {"rank": 1 + n - below}
