"""Scores that need further passes: of other texts, prefixes and models, or backward."""

from __future__ import annotations

import functools
import math
from typing import Any

from tdd.records import TokenStats
from tdd.scoring.scores import Array, Evidence, Score, as_float, check_named, check_positive, namespace
from tdd.scoring.scores.tokens import loss
from tdd.validate import InputError

_FLOOR = 1e-6
"""Nats a token; below float32's resolution of a mean log-probability."""

check_reduction = functools.partial(
    check_named, "reduction", "use 'sum' (of -log p over the scored tokens) or 'mean'", ("sum", "mean")
)


def _lowercase(value: Array, evidence: Evidence) -> Array:
    """lowercase: loss(text) / loss(lowercased text) (Carlini et al. 2021, "Extracting training data").

    A text that the model knows by heart has a loss near 0 in both forms, and the quotient of two such numbers is noise:
    both are floored, so that it tends to 1 there.
    """
    xp = value.__array_namespace__()
    return xp.maximum(value, _FLOOR) / xp.maximum(evidence.lowercase_loss, _FLOOR)


def _reference(value: Array, evidence: Evidence) -> Array:
    """reference: loss - loss under a reference model (Carlini et al. 2021), each model with its own tokenizer.

    Of several reference models it takes the mean loss. Where the tokenizers differ, a mean over tokens compares
    different units; both losses are then in nats per byte of scored text.
    """
    return value * evidence.tokens_per_byte - evidence.reference_loss.mean(0)


def _divisor(stats: TokenStats, reduction: str) -> Array:
    """The divisor of the norm of the summed loss: [B]; NaN for a row without scored tokens."""
    xp, num_scored = namespace(stats), stats.mask.sum(-1)
    return xp.where(num_scored > 0, num_scored if reduction == "mean" else 1.0, xp.nan)


def _grad_norm(divisor: Array, evidence: Evidence) -> Array:
    """grad_norm: Euclidean norm of the gradient of the text's loss with respect to all parameters of the model.

        g(x) = || grad_theta L(x; theta) ||_2,   L = - sum_t log p(x_t | x_<t) over the n scored tokens,

    or, with reduction=mean, of L / n, which is g(x) / n. Small where training has already flattened the loss at x, so
    LOWER = MORE member-like. It grows with the length of a text (sum) or shrinks with it (mean): compare texts of one
    length, or each text with its own paraphrases.

    Paper: "KTD", Eq. 6, which differentiates the sum. It is the norm over all parameters together, not a mean of norms
    of single tensors or tokens.
    """
    return evidence.grad_norm / divisor


def _recall(value: Array, evidence: Evidence) -> Array:
    """recall: minus the loss behind a prefix of non-members over the loss alone (ReCaLL, Xie et al. 2024).

    Both losses are means over the same tokens. The authors' code also scores the first token of the text behind the
    prefix, which has no context when the text stands alone. Both losses are floored as in `lowercase`.
    """
    xp = value.__array_namespace__()
    return -xp.maximum(evidence.prefix_loss, _FLOOR) / xp.maximum(value, _FLOOR)


def _con_recall(value: Array, evidence: Evidence, gamma: float) -> Array:
    """con_recall: -(loss behind non-members - gamma times loss behind members) / loss (Con-ReCall, Wang et al. 2025).

    The means are those of `recall`. The authors choose gamma by the AUC on the texts that they evaluate; fix it before.
    """
    xp = value.__array_namespace__()
    behind_members = xp.maximum(evidence.member_prefix_loss, _FLOOR)
    return (gamma * behind_members - xp.maximum(evidence.prefix_loss, _FLOOR)) / xp.maximum(value, _FLOOR)


def _lira(value: Array, evidence: Evidence, variance: str, signal: str) -> Array:
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
    xp = value.__array_namespace__()
    own, out = value * evidence.tokens_per_byte, evidence.reference_loss
    if signal == "logit":  # -log(p / (1 - p)) = log(exp(loss) - 1)
        own, out = (x + xp.log(-xp.expm1(-xp.maximum(x, _FLOOR))) for x in (own, out))
    squares = out.var(0, ddof=1)
    if variance == "pooled":
        known = ~xp.isnan(squares)
        squares = xp.where(known, squares, 0).sum() / xp.maximum(known.sum(), 1)
    return (own - out.mean(0)) / xp.maximum(xp.sqrt(squares), _FLOOR)


def _rmia(value: Array, evidence: Evidence, a: float, gamma: float) -> Array:
    """rmia: the share of a population that the text does not dominate (Zarifzadeh et al. 2024, offline form).

        score(x) = 1 - 1/Z sum_z 1[r(x) / r(z) >= gamma],   r(x) = p(x; theta) / p(x),
        p(x) = (1 + a) / 2 mean_j p(x; theta_j) + (1 - a) / 2

    over Z texts z that no model was trained on, and reference models theta_j that were not trained on x. p(x; theta) is
    the geometric mean of the probabilities of the tokens, exp(-loss): that of a whole text vanishes beside (1 - a) / 2,
    and in float32. All ratios are differences of logarithms. The authors' tool counts r(x) / r(z) > 1 and chooses a by
    the AUC on a reference model whose members it knows; here a and gamma are fixed. The score has Z + 1 values, so
    ties: a population of thousands orders the texts as r does.
    """
    xp = value.__array_namespace__()
    ratios = _log_ratio(xp, value * evidence.tokens_per_byte, evidence.reference_loss, a)
    population = xp.sort(_log_ratio(xp, evidence.population_loss, evidence.reference_population_loss, a))  # NaN last
    known = (~xp.isnan(population)).sum()
    dominated = xp.searchsorted(population, ratios - math.log(gamma), side="right")
    return xp.where(xp.isnan(ratios) | (known == 0), xp.nan, 1 - dominated / xp.maximum(known, 1))


def _log_ratio(xp: Any, own: Array, out: Array, a: float) -> Array:
    """log r from losses [N] and [K, N]; a loss may be infinite under some or all reference models."""
    top = (-out).max(0)
    top = xp.where(top == -xp.inf, 0, top)
    mean = xp.exp(-out - top).mean(0)
    log_mean = xp.where(mean == 0, -xp.inf, xp.log(xp.where(mean == 0, 1, mean)))
    log_out = top + log_mean + math.log((1 + a) / 2)
    return -own - (log_out if a == 1 else xp.logaddexp(log_out, math.log((1 - a) / 2)))


def _check_a(value: Any) -> float:
    """The weight of the OUT models in the linear model of p(x)."""
    if not 0 <= (number := as_float(value)) <= 1:
        raise InputError(f"a={value!s} must be a number in [0, 1]")
    return number


SCORES = (
    Score("lowercase", "loss over the loss of the lowercased text", ("log_prob",), loss, _lowercase, ("lowercase",)),
    Score("reference", "loss minus the loss under a reference model", ("log_prob",), loss, _reference, ("reference",)),
    Score(
        "grad_norm",
        "norm of the gradient of the text's loss over all parameters",
        (),
        _divisor,
        _grad_norm,
        ("gradient",),
        checks={"reduction": check_reduction},
        defaults={"reduction": "sum"},
    ),
    Score(
        "recall",
        "minus the loss behind a prefix of non-members over the loss",
        ("log_prob",),
        loss,
        _recall,
        ("prefix",),
    ),
    Score(
        "con_recall",
        "minus the loss behind non-members, less gamma times that behind members, over the loss",
        ("log_prob",),
        loss,
        _con_recall,
        ("prefix", "member_prefix"),
        checks={"gamma": functools.partial(check_positive, "gamma")},
        defaults={"gamma": "0.5"},
        of_finish=("gamma",),
    ),
    Score(
        "lira",
        "the loss, standardised by its mean and deviation under reference models",
        ("log_prob",),
        loss,
        _lira,
        ("reference",),
        checks={
            "variance": functools.partial(
                check_named, "variance", "use 'pooled' (over the texts) or 'each' (of each text)", ("pooled", "each")
            ),
            "signal": functools.partial(
                check_named, "signal", "use 'loss' or 'logit' (of the geometric mean probability)", ("loss", "logit")
            ),
        },
        defaults={"variance": "pooled", "signal": "loss"},
        of_finish=("variance", "signal"),
        least_references=2,
    ),
    Score(
        "rmia",
        "share of a population whose likelihood ratio to reference models exceeds that of the text",
        ("log_prob",),
        loss,
        _rmia,
        ("reference", "population"),
        checks={"a": _check_a, "gamma": functools.partial(check_positive, "gamma")},
        defaults={"a": "0.3", "gamma": "1"},
        of_finish=("a", "gamma"),
    ),
)
