"""min_k_plus_plus: minus the mean of the max(1, floor(k n)) smallest z_t (Zhang et al. 2024, Min-K%++).

z_t = (log p(x_t | x_<t) - mu_t) / sigma_t with mu_t = sum_v p_v log p_v and sigma_t^2 = sum_v p_v (log p_v - mu_t)^2,
both weighted by probability. sigma is floored at 1e-6.
"""

from __future__ import annotations

import functools
from fractions import Fraction

from tdd.records import TokenStats
from tdd.scoring.scores import Array, Score, check_fraction, namespace, smallest_mean

__all__ = ["SCORE"]

_SIGMA_FLOOR = 1e-6


def _rows(stats: TokenStats, k: Fraction) -> Array:
    xp = namespace(stats)
    standardised = (stats.log_prob - stats.mu) / xp.maximum(stats.sigma, _SIGMA_FLOOR)
    return -smallest_mean(xp, standardised, stats.mask, k)


SCORE = Score(
    "min_k_plus_plus",
    "as min_k, with log-probabilities standardised by the distribution at their position",
    ("log_prob", "mu", "sigma"),
    _rows,
    checks={"k": functools.partial(check_fraction, "k", allow_zero=False)},
    defaults={"k": "0.2"},
)
