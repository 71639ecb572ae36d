"""m_entropy: mean modified entropy (Song & Mittal 2021): small where the model is confident and right.

-(1 - p_y) log p_y - sum_{v != y} p_v log(1 - p_v), averaged over the scored tokens.
"""

from __future__ import annotations

from tdd.records import TokenStats
from tdd.scoring.scores import Array, Score, masked_mean, namespace

__all__ = ["SCORE"]


def _rows(stats: TokenStats) -> Array:
    return masked_mean(namespace(stats), stats.m_entropy, stats.mask)


SCORE = Score("m_entropy", "mean modified entropy of a token", ("m_entropy",), _rows)
