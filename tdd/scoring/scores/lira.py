"""lira: the standardised signal of the offline likelihood ratio attack (Carlini et al. 2022, section V and eq. 4).

    z = (s(x; theta) - mean_j s(x; theta_j)) / sigma,   sigma^2 = 1 / (K - 1) sum_j (s(x; theta_j) - mean)^2,

over K >= 2 reference models theta_j that were not trained on x. The paper's statistic is the probability that a normal
variable with this mean and variance is below the signal, 1 - Phi(z) here: z has its order, and no ties where Phi is 0
or 1 to the last digit. The paper's signal is log(p / (1 - p)) of the probability p of an image's label. A text has no
label: s is its loss, or, with signal=logit, the same transform of the geometric mean p = exp(-loss) of its tokens'
probabilities, with the opposite sign. variance=each takes the variance of each text; variance=pooled, for few
reference models, the mean of these over the texts of the call, which changes the unit of z and not the order: score
candidates and calibration in one call. (The authors' code pools all signals, differences between texts included, and
its offline score is a normal log-density, which a signal far beyond the mean lowers again.) sigma is floored at 1e-6.
"""

from __future__ import annotations

from typing import Any

from tdd.scoring.scores import Array, Evidence, Score
from tdd.scoring.scores.loss import loss
from tdd.scoring.scores.lowercase import FLOOR
from tdd.validate import InputError

__all__ = ["SCORE"]


def _check_variance(value: Any) -> str:
    if value not in ("pooled", "each"):
        raise InputError(f"variance={value!r} is unknown; use 'pooled' (over the texts) or 'each' (of each text)")
    return value


def _check_signal(value: Any) -> str:
    if value not in ("loss", "logit"):
        raise InputError(f"signal={value!r} is unknown; use 'loss' or 'logit' (of the geometric mean probability)")
    return value


def _finish(value: Array, evidence: Evidence, variance: str, signal: str) -> Array:
    xp = value.__array_namespace__()
    own, out = value * evidence.tokens_per_byte, evidence.reference_loss
    if signal == "logit":  # -log(p / (1 - p)) = log(exp(loss) - 1)
        own, out = (x + xp.log(-xp.expm1(-xp.maximum(x, FLOOR))) for x in (own, out))
    squares = out.var(0, ddof=1)
    if variance == "pooled":
        known = ~xp.isnan(squares)
        squares = xp.where(known, squares, 0).sum() / xp.maximum(known.sum(), 1)
    return (own - out.mean(0)) / xp.maximum(xp.sqrt(squares), FLOOR)


SCORE = Score(
    "lira",
    "the loss, standardised by its mean and deviation under reference models",
    ("log_prob",),
    loss,
    _finish,
    ("reference",),
    checks={"variance": _check_variance, "signal": _check_signal},
    defaults={"variance": "pooled", "signal": "loss"},
    of_finish=("variance", "signal"),
    least_references=2,
)
