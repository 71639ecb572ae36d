"""min_k: minus the mean of the max(1, floor(k n)) smallest log-probabilities (Shi et al. 2023, Min-K% Prob)."""

from __future__ import annotations

import functools
from fractions import Fraction

from tdd.records import TokenStats
from tdd.scoring.scores import Array, Score, check_fraction, namespace, smallest_mean

__all__ = ["SCORE"]


def _rows(stats: TokenStats, k: Fraction) -> Array:
    return -smallest_mean(namespace(stats), stats.log_prob, stats.mask, k)


SCORE = Score(
    "min_k",
    "minus the mean of the k least likely tokens' log-probabilities",
    ("log_prob",),
    _rows,
    checks={"k": functools.partial(check_fraction, "k", allow_zero=False)},
    defaults={"k": "0.2"},
)
