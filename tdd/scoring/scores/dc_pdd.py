"""dc_pdd: minus the mean of min(cap, p(x_t) log(1 / f(x_t))) over the first occurrences of tokens (Zhang et al. 2024).

f is the frequency of the token in a corpus that stands for training data at large, (count + 1) / (tokens + V). The
authors count at most 1,024 tokens of a text, with the tokenizer's special ones; here all tokens count but special ones.
"""

from __future__ import annotations

import functools

from tdd.records import TokenStats
from tdd.scoring.scores import Array, Score, check_positive, first_occurrences, masked_mean, namespace

__all__ = ["SCORE"]


def _rows(stats: TokenStats, cap: float, log_frequency: Array) -> Array:
    xp = namespace(stats)
    divergence = xp.minimum(-xp.exp(stats.log_prob) * xp.asarray(log_frequency)[stats.tokens], cap)
    return -masked_mean(xp, divergence, first_occurrences(xp, stats))


SCORE = Score(
    "dc_pdd",
    "minus the mean of p log(1/f), capped, with the frequency f of each token in a corpus",
    ("log_prob", "tokens"),
    _rows,
    checks={"cap": functools.partial(check_positive, "cap")},
    defaults={"cap": "0.01"},
    corpus=True,
)
