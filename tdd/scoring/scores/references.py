"""Scores that compare with reference models, which were not trained on the texts."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

from tdd.scoring.scores.parts import as_float, check_named, check_positive
from tdd.scoring.scores.passes import FLOOR
from tdd.scoring.scores.score import Array, Evidence, Pass, as_models, models_given, option, texts_given
from tdd.scoring.scores.tokens import OfMeanLoss
from tdd.validate import InputError


def _check_a(value: Any) -> float:
    """The weight of the OUT models in the linear model of p(x)."""
    if not 0 <= (number := as_float(value)) <= 1:
        raise InputError(f"a={value!s} must be a number in [0, 1]")
    return number


@dataclasses.dataclass(frozen=True)
class Reference(OfMeanLoss):
    """reference: loss - loss under a reference model (Carlini et al. 2021), each model with its own tokenizer.

    Of several reference models it takes the mean loss. Where the tokenizers differ, a mean over tokens compares
    different units; both losses are then in nats per byte of scored text.
    """

    name = "reference"
    meaning = "loss minus the loss under a reference model"

    model: Any = models_given("a model that was not trained on the texts")

    def passes(self) -> Mapping[str, tuple[Pass, ...]]:  # noqa: D102
        return {"reference": tuple(Pass(model=one) for one in as_models(self.model))}

    def finish(self, rows: Array, evidence: Evidence) -> Array:  # noqa: D102
        return rows * evidence.get("tokens_per_byte", 1.0) - evidence["reference"].mean(0)


@dataclasses.dataclass(frozen=True)
class Lira(OfMeanLoss):
    """lira: the standardised signal of the offline likelihood ratio attack (Carlini et al. 2022, section V and eq. 4).

        z = (s(x; theta) - mean_j s(x; theta_j)) / sigma,   sigma^2 = 1 / (K - 1) sum_j (s(x; theta_j) - mean)^2,

    over K >= 2 reference models theta_j that were not trained on x. The paper's statistic is the probability that a
    normal variable with this mean and variance is below the signal, 1 - Phi(z) here: z has its order, and no ties where
    Phi is 0 or 1 to the last digit. The paper's signal is log(p / (1 - p)) of the probability p of an image's label. A
    text has no label: s is its loss, or, with signal=logit, the same transform of the geometric mean p = exp(-loss) of
    its tokens' probabilities, with the opposite sign. variance=each takes the variance of each text; variance=pooled,
    for few reference models, the mean of these over the texts of the call, which changes the unit of z and not the
    order: score candidates and calibration in one call. (The authors' code pools all signals, differences between texts
    included, and its offline score is a normal log-density, which a signal far beyond the mean lowers again.) sigma is
    floored at 1e-6.
    """

    name = "lira"
    meaning = "the loss, standardised by its mean and deviation under reference models"

    variance: Any = option(
        "pooled",
        functools.partial(
            check_named, "variance", "use 'pooled' (over the texts) or 'each' (of each text)", ("pooled", "each")
        ),
    )
    signal: Any = option(
        "loss",
        functools.partial(
            check_named, "signal", "use 'loss' or 'logit' (of the geometric mean probability)", ("loss", "logit")
        ),
    )
    references: Any = models_given("several models that were not trained on the texts", least=2)

    def passes(self) -> Mapping[str, tuple[Pass, ...]]:  # noqa: D102
        return {"reference": tuple(Pass(model=one) for one in as_models(self.references))}

    @property
    def batchwise(self) -> bool:  # noqa: D102
        return self.variance != "pooled"

    def finish(self, rows: Array, evidence: Evidence) -> Array:  # noqa: D102
        xp = rows.__array_namespace__()
        own, out = rows * evidence.get("tokens_per_byte", 1.0), evidence["reference"]
        if self.signal == "logit":  # -log(p / (1 - p)) = log(exp(loss) - 1)
            own, out = (x + xp.log(-xp.expm1(-xp.maximum(x, FLOOR))) for x in (own, out))
        squares = out.var(0, ddof=1)
        if self.variance == "pooled":
            known = ~xp.isnan(squares)
            squares = xp.where(known, squares, 0).sum() / xp.maximum(known.sum(), 1)
        return (own - out.mean(0)) / xp.maximum(xp.sqrt(squares), FLOOR)


@dataclasses.dataclass(frozen=True)
class Rmia(OfMeanLoss):
    """rmia: the share of a population that the text does not dominate (Zarifzadeh et al. 2024, offline form).

        score(x) = 1 - 1/Z sum_z 1[r(x) / r(z) >= gamma],   r(x) = p(x; theta) / p(x),
        p(x) = (1 + a) / 2 mean_j p(x; theta_j) + (1 - a) / 2

    over Z texts z that no model was trained on, and reference models theta_j that were not trained on x. p(x; theta) is
    the geometric mean of the probabilities of the tokens, exp(-loss): that of a whole text vanishes beside (1 - a) / 2,
    and in float32. All ratios are differences of logarithms. The authors' tool counts r(x) / r(z) > 1 and chooses a by
    the AUC on a reference model whose members it knows; here a and gamma are fixed. The score has Z + 1 values, so
    ties: a population of thousands orders the texts as r does.
    """

    name = "rmia"
    meaning = "share of a population whose likelihood ratio to reference models exceeds that of the text"

    a: Any = option("0.3", _check_a)
    gamma: Any = option("1", functools.partial(check_positive, "gamma"))
    references: Any = models_given("a model that was not trained on the texts")
    population: Any = texts_given("texts that no model was trained on", known="unseen")

    def passes(self) -> Mapping[str, Pass | tuple[Pass, ...]]:  # noqa: D102
        under = as_models(self.references)
        return {
            "reference": tuple(Pass(model=one) for one in under),
            "population": Pass(texts=self.population),
            "population under reference": tuple(Pass(model=one, texts=self.population) for one in under),
        }

    def finish(self, rows: Array, evidence: Evidence) -> Array:  # noqa: D102
        xp = rows.__array_namespace__()
        ratios = _log_ratio(xp, rows * evidence.get("tokens_per_byte", 1.0), evidence["reference"], self.a)
        others = evidence["population"], evidence["population under reference"]
        population = xp.sort(_log_ratio(xp, *others, self.a))  # NaN last
        known = (~xp.isnan(population)).sum()
        dominated = xp.searchsorted(population, ratios - math.log(self.gamma), side="right")
        return xp.where(xp.isnan(ratios) | (known == 0), xp.nan, 1 - dominated / xp.maximum(known, 1))


def _log_ratio(xp: Any, own: Array, out: Array, a: float) -> Array:
    """log r from losses [N] and [K, N]; a loss may be infinite under some or all reference models."""
    top = (-out).max(0)
    top = xp.where(top == -xp.inf, 0, top)
    mean = xp.exp(-out - top).mean(0)
    log_mean = xp.where(mean == 0, -xp.inf, xp.log(xp.where(mean == 0, 1, mean)))
    log_out = top + log_mean + math.log((1 + a) / 2)
    return -own - (log_out if a == 1 else xp.logaddexp(log_out, math.log((1 - a) / 2)))
