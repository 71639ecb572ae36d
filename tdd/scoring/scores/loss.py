"""loss: -(1/n) sum_t log p(x_t | x_<t) over the n scored tokens; perplexity is its exponential.

Paper: "High-power training data identification", Eq. 2, which leaves out 1/n; the mean is used here, because texts
of unequal length are ranked.
"""

from __future__ import annotations

from tdd.records import TokenStats
from tdd.scoring.scores import Array, Score, masked_mean, namespace

__all__ = ["SCORE", "loss"]


def loss(stats: TokenStats) -> Array:
    """Mean negative log-probability of the scored tokens, nats a token: [B]."""
    return -masked_mean(namespace(stats), stats.log_prob, stats.mask)


SCORE = Score("loss", "mean negative log-probability of a token", ("log_prob",), loss)
