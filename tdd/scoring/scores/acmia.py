"""acmia: the mean change of the log-probability by a temperature, over the first occurrence of every token.

p_beta is proportional to p^beta. Zare Zade et al. (2025, AC) average log p - log p_beta for beta < 1 and
log p_beta - log p for beta > 1; the score is minus that. log p_beta(y) = beta log p(y) - log sum_v p_v^beta, and these
sums are those of the Renyi entropies of order 1/2 and 2. beta = 1 is the limit of both divided by |beta - 1|,
log p(y) - sum_v p_v log p_v (their DerivAC at a temperature of 1). The authors' script reports the best of 52
temperatures, chosen by the labels of the test set: fix beta beforehand.
"""

from __future__ import annotations

from typing import Any

from tdd.records import TokenStats
from tdd.scoring.scores import Array, Score, first_occurrences, masked_mean, namespace
from tdd.validate import InputError

__all__ = ["SCORE"]


def _check_beta(value: Any) -> float:
    """An inverse temperature whose sums are computed."""
    betas = {"0.5": 0.5, "1/2": 0.5, "1": 1.0, "1.0": 1.0, "2": 2.0, "2.0": 2.0}
    if str(value) not in betas:
        raise InputError(f"beta={value!s} is not available; the inverse temperatures are 0.5, 1 and 2")
    return betas[str(value)]


def _rows(stats: TokenStats, beta: float) -> Array:
    xp = namespace(stats)
    if beta == 1:
        loss = stats.mu - stats.log_prob
    elif beta < 1:
        loss = -stats.log_prob / 2 - stats.renyi_half / 2
    else:
        loss = -stats.log_prob - stats.renyi_two
    return masked_mean(xp, loss, first_occurrences(xp, stats))


_FIELD_OF_BETA = {0.5: "renyi_half", 1.0: "mu", 2.0: "renyi_two"}

SCORE = Score(
    "acmia",
    "mean change of the log-probability by a temperature, over the first occurrence of each token",
    ("log_prob", "mu", "renyi_half", "renyi_two", "tokens"),
    _rows,
    checks={"beta": _check_beta},
    defaults={"beta": "0.5"},
    reads=lambda parameters: ("log_prob", _FIELD_OF_BETA[parameters["beta"]], "tokens"),
)
