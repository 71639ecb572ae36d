"""rmia: the share of a population that the text does not dominate (Zarifzadeh et al. 2024, offline form).

    score(x) = 1 - 1/Z sum_z 1[r(x) / r(z) >= gamma],   r(x) = p(x; theta) / p(x),
    p(x) = (1 + a) / 2 mean_j p(x; theta_j) + (1 - a) / 2

over Z texts z that no model was trained on, and reference models theta_j that were not trained on x. p(x; theta) is
the geometric mean of the probabilities of the tokens, exp(-loss): that of a whole text vanishes beside (1 - a) / 2, and
in float32. All ratios are differences of logarithms. The authors' tool counts r(x) / r(z) > 1 and chooses a by the
AUC on a reference model whose members it knows; here a and gamma are fixed. The score has Z + 1 values, so ties: a
population of thousands orders the texts as r does.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from tdd.scoring.scores import Array, Evidence, Score, check_positive
from tdd.scoring.scores.loss import loss
from tdd.validate import InputError

__all__ = ["SCORE"]


def _check_a(value: Any) -> float:
    """The weight of the OUT models in the linear model of p(x)."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise InputError(f"a={value!s} must be a number in [0, 1]")
    return number


def _log_ratio(xp: Any, own: Array, out: Array, a: float) -> Array:
    """log r from losses [N] and [K, N]."""
    top = (-out).max(0)
    log_out = top + xp.log(xp.exp(-out - top).mean(0)) + math.log((1 + a) / 2)
    return -own - (log_out if a == 1 else xp.logaddexp(log_out, math.log((1 - a) / 2)))


def _finish(value: Array, evidence: Evidence, a: float, gamma: float) -> Array:
    xp = value.__array_namespace__()
    ratios = _log_ratio(xp, value * evidence.tokens_per_byte, evidence.reference_loss, a)
    population = xp.sort(_log_ratio(xp, evidence.population_loss, evidence.reference_population_loss, a))  # NaN last
    known = (~xp.isnan(population)).sum()
    dominated = xp.searchsorted(population, ratios - math.log(gamma), side="right")
    return xp.where(xp.isnan(ratios) | (known == 0), xp.nan, 1 - dominated / xp.maximum(known, 1))


SCORE = Score(
    "rmia",
    "share of a population whose likelihood ratio to reference models exceeds that of the text",
    ("log_prob",),
    loss,
    _finish,
    ("reference", "population"),
    checks={"a": _check_a, "gamma": functools.partial(check_positive, "gamma")},
    defaults={"a": "0.3", "gamma": "1"},
    of_finish=("a", "gamma"),
)
