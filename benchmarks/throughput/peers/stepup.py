"""Step-up procedures from SciPy, statsmodels and NumPy.

SciPy and statsmodels return adjusted p-values in floating point; a decision at equality is theirs up to rounding, so
they are compared with alpha (1 + 4 eps), eps that of the p-values' own type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = [
    "bh_torch",
    "e_bh_scipy",
    "fdr_scipy",
    "holm_numpy",
    "hommel_numpy",
    "multiple_tests",
    "scipy_adjusted",
    "storey_scipy",
    "up_to",
]

Arrays = dict[str, np.ndarray]


def up_to(alpha: float, dtype: Any) -> float:
    """Alpha with the tolerance of a decision on p-values of this type."""
    return alpha * (1 + 4 * float(np.finfo(dtype).eps))


def fdr_scipy(alpha: float, method: str = "bh") -> Callable[..., Arrays]:
    """`scipy.stats.false_discovery_control` along the last axis, compared with alpha."""

    def call(p_values: np.ndarray) -> Arrays:
        from scipy.stats import false_discovery_control

        adjusted = false_discovery_control(p_values, axis=-1, method=method)
        return {"reject": adjusted <= up_to(alpha, p_values.dtype)}

    return call


def bh_torch(p_values: Any, alpha: float) -> Any:
    """BH of every list [..., m] of a torch tensor: one sort, and the largest p_(i) <= alpha i / m.

    Its maximum is one of p-values: torch.compile 2.11 makes no program for CUDA of a maximum of places.
    """
    import torch

    ordered = p_values.sort(-1).values
    places = torch.arange(1, p_values.shape[-1] + 1, device=p_values.device, dtype=p_values.dtype)
    level = up_to(alpha, np.float32) / p_values.shape[-1]
    largest = torch.where(ordered <= level * places, ordered, -torch.inf).amax(-1, keepdim=True)
    return p_values <= largest


def multiple_tests(alpha: float, method: str) -> Callable[..., Arrays]:
    """`statsmodels.stats.multitest.multipletests` of one data set; it computes adjusted values too."""

    def call(p_values: np.ndarray) -> Arrays:
        from statsmodels.stats.multitest import multipletests

        return {"reject": multipletests(p_values, up_to(alpha, p_values.dtype), method)[0]}

    return call


def storey_scipy(alpha: float, lambda_: float = 0.5) -> Callable[..., Arrays]:
    """Storey's estimate, uncapped, times SciPy's adjusted values, which never exceed 1 before they are cut."""

    def call(p_values: np.ndarray) -> Arrays:
        from scipy.stats import false_discovery_control

        pi0 = (1 + np.count_nonzero(p_values >= lambda_)) / (p_values.size * (1 - lambda_))
        return {"reject": pi0 * false_discovery_control(p_values) <= up_to(alpha, p_values.dtype)}

    return call


def e_bh_scipy(alpha: float) -> Callable[..., Arrays]:
    """BH on reciprocals of e-values; 1/e above 1 rejects nothing and SciPy wants [0, 1]."""

    def call(e_values: np.ndarray) -> Arrays:
        from scipy.stats import false_discovery_control

        reciprocals = np.minimum(1 / e_values, 1)
        return {"reject": false_discovery_control(reciprocals) <= up_to(alpha, e_values.dtype)}

    return call


def scipy_adjusted(p_values: np.ndarray, **_: Any) -> Arrays:
    """SciPy's BH-adjusted p-values along the last axis."""
    from scipy.stats import false_discovery_control

    return {"adjusted": false_discovery_control(p_values, axis=-1)}


def holm_numpy(alpha: float) -> Callable[..., Arrays]:
    """Holm's procedure: one sort; statsmodels runs the garbage collector in every call of its own."""

    def call(p_values: np.ndarray) -> Arrays:
        ordered = np.sort(p_values).astype(float)
        fails = np.flatnonzero(ordered * np.arange(p_values.size, 0, -1) > up_to(alpha, p_values.dtype))
        return {"reject": p_values < ordered[fails[0]] if fails.size else np.ones(p_values.shape, bool)}

    return call


def hommel_numpy(alpha: float) -> Callable[..., Arrays]:
    """Hommel's procedure by bisection over the number of p-values that Simes' test does not reject: O(m log m).

    If the i largest p-values pass Simes' test, so do the i - 1 largest.
    """

    def call(p_values: np.ndarray) -> Arrays:
        m, level = p_values.size, up_to(alpha, p_values.dtype)
        ordered = np.sort(p_values).astype(float)
        place = np.arange(1, m + 1)
        low, high = 0, m
        while low < high:
            middle = (low + high + 1) // 2
            if np.all(ordered[m - middle :] * middle > level * place[:middle]):
                low = middle
            else:
                high = middle - 1
        return {"reject": p_values.astype(float) * low <= level}

    return call
