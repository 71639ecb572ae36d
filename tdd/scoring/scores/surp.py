"""surp: minus the mean log-probability of the surprising tokens (Zhang and Wu 2024, SURP).

A token is surprising if its log-probability is among the max(1, floor(k n)) smallest of the text and the entropy of the
model's distribution there is below `entropy` nats: certain but wrong. A text without such a token has the mean of the
max(1, floor(k n)) smallest, as in min_k; a constant would tie all those texts at one end.
"""

from __future__ import annotations

import functools
from fractions import Fraction

from tdd.records import TokenStats
from tdd.scoring.scores import (
    Array,
    Score,
    check_fraction,
    check_positive,
    masked_mean,
    namespace,
    smallest_mean,
    smallest_tokens,
)

__all__ = ["SCORE"]


def _rows(stats: TokenStats, k: Fraction, entropy: float) -> Array:
    xp = namespace(stats)
    least_likely = smallest_tokens(xp, stats.log_prob, stats.mask, k)
    surprising = least_likely & (stats.entropy < entropy)
    loss = -masked_mean(xp, stats.log_prob, surprising)
    otherwise = -smallest_mean(xp, stats.log_prob, stats.mask, k)
    return xp.where(surprising.any(-1) & ~xp.isnan(otherwise), loss, otherwise)


SCORE = Score(
    "surp",
    "minus the mean of the k smallest log-probabilities where the model is certain (entropy below a limit)",
    ("log_prob", "mu"),
    _rows,
    checks={
        "k": functools.partial(check_fraction, "k", allow_zero=False),
        "entropy": functools.partial(check_positive, "entropy"),
    },
    defaults={"k": "0.2", "entropy": "2"},
)
