"""diversity: loss divided by the share of distinct tokens among the scored ones (Chang et al. 2025, CAMIA)."""

from __future__ import annotations

from tdd.records import TokenStats
from tdd.scoring.scores import Array, Score, first_occurrences, masked_mean, namespace

__all__ = ["SCORE"]


def _rows(stats: TokenStats) -> Array:
    xp = namespace(stats)
    share = masked_mean(xp, first_occurrences(xp, stats), stats.mask)
    return -masked_mean(xp, stats.log_prob, stats.mask) / share


SCORE = Score("diversity", "loss divided by the share of distinct tokens", ("log_prob", "tokens"), _rows)
