"""A kernel estimate of the law of a pool, for draws of more items than it has.

Drawn with replacement, a small pool has no scores beyond its own extremes, while a selection is decided in the tail of
the null: the power is overstated, and equal scores hide false discoveries. Perturbed draws err less, if they are made
in a scale without long tails: that of normal scores, which depend on the order alone as the decisions do. (In the scale
of the scores themselves a perturbation as wide as a long upper tail asks for blurs a sharp lower one, where members
lie.) The tests measure both on known laws.
"""

from __future__ import annotations

import jax
import numpy as np

__all__ = ["normal_scores", "smoothed"]

_IQR = 1.349  # interquartile range of N(0, 1)


def normal_scores(values: np.ndarray) -> np.ndarray:
    """[K, N] standard normal quantiles of (rank - 1/2)/N, row by row; equal values share the mean of their ranks."""
    out = np.empty(values.shape)
    for row, place in zip(values, out, strict=True):
        ordered = np.sort(row)
        middle = (np.searchsorted(ordered, row, "left") + np.searchsorted(ordered, row, "right")) / 2
        place[:] = np.asarray(jax.scipy.special.ndtri(middle / row.size), np.float64)
    return out


def smoothed(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pool values moved towards their means, and the factor of the perturbation's covariance.

    With h Silverman's bandwidth in K dimensions and s the smaller of the standard deviation and IQR/1.349 of a row, a
    draw is mean + (x - mean + h s e)/sqrt(1 + h^2 s^2/sd^2), with e normal and correlated as the rows are.

    Args:
      values: [K, N] scores of one kind of items.

    Returns:
      [K, N] values and [K, K] factor F: a draw is values[:, i] + F z with z ~ N(0, I). One item, or rows that do not
      vary, are not moved.

    References: Silverman (1986), Density Estimation, sections 3.4, 4.3 and 6.4.1.
    """
    dimensions, size = values.shape
    mean = values.mean(axis=1, keepdims=True)
    if size < 2:
        return values, np.zeros((dimensions, dimensions))
    sd = values.std(axis=1, ddof=1)
    quartiles = np.quantile(values, (0.25, 0.75), axis=1)
    iqr = (quartiles[1] - quartiles[0]) / _IQR
    scale = np.where(iqr > 0, np.minimum(sd, iqr), sd)
    width = (4 / ((dimensions + 2) * size)) ** (1 / (dimensions + 4)) * scale
    varies = np.where(sd > 0, sd, 1)
    shrink = 1 / np.sqrt(1 + (width / varies) ** 2)
    unit = (values - mean) / varies[:, None]
    correlation = unit @ unit.T / (size - 1)
    strength, axes = np.linalg.eigh(correlation)
    root = axes * np.sqrt(np.maximum(strength, 0))
    return mean + shrink[:, None] * (values - mean), (shrink * width)[:, None] * root
