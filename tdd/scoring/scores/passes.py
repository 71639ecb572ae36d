"""Scores that need further passes of the same model: over other forms of the text, behind a prefix, or backward."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from tdd.records import TokenStats
from tdd.scoring.scores.parts import check_positive, namespace
from tdd.scoring.scores.score import Array, Evidence, Pass, Score, option, texts_given
from tdd.scoring.scores.tokens import OfMeanLoss, check_reduction

FLOOR = 1e-6
"""Nats a token; below float32's resolution of a mean log-probability."""

_UNSEEN = "texts that the model has not seen"


@dataclasses.dataclass(frozen=True)
class Lowercase(OfMeanLoss):
    """lowercase: loss(text) / loss(lowercased text) (Carlini et al. 2021, "Extracting training data").

    Paper: "TD4Eval", appendix 11.1, compares the perplexities, of which the losses are the logarithms.
    A text that the model knows by heart has a loss near 0 in both forms, and the quotient of two such numbers is noise:
    both are floored, so that it tends to 1 there.
    """

    name = "lowercase"
    meaning = "loss over the loss of the lowercased text"

    def passes(self) -> Mapping[str, Pass]:  # noqa: D102
        return {"lowercase": Pass(change=str.lower)}

    def finish(self, rows: Array, evidence: Evidence) -> Array:  # noqa: D102
        xp = rows.__array_namespace__()
        return xp.maximum(rows, FLOOR) / xp.maximum(evidence["lowercase"], FLOOR)


@dataclasses.dataclass(frozen=True)
class GradNorm(Score):
    """grad_norm: Euclidean norm of the gradient of the text's loss with respect to all parameters of the model.

        g(x) = || grad_theta L(x; theta) ||_2,   L = - sum_t log p(x_t | x_<t) over the n scored tokens,

    or, with reduction=mean, of L / n, which is g(x) / n. Small where training has already flattened the loss at x, so
    LOWER = MORE member-like. It grows with the length of a text (sum) or shrinks with it (mean): compare texts of one
    length, or each text with its own paraphrases.

    Paper: "KTD", Eq. 6, which differentiates the sum. It is the norm over all parameters together, not a mean of norms
    of single tensors or tokens.
    """

    name = "grad_norm"
    meaning = "norm of the gradient of the text's loss over all parameters"

    reduction: Any = option("sum", check_reduction)

    def rows(self, stats: TokenStats) -> Array:
        """Return the divisor of the norm of the summed loss; NaN for a row without scored tokens."""
        xp, num_scored = namespace(stats), stats.mask.sum(-1)
        return xp.where(num_scored > 0, num_scored if self.reduction == "mean" else 1.0, xp.nan)

    def passes(self) -> Mapping[str, Pass]:  # noqa: D102
        return {"gradient": Pass(gradient=True)}

    def finish(self, rows: Array, evidence: Evidence) -> Array:  # noqa: D102
        return evidence["gradient"] / rows


@dataclasses.dataclass(frozen=True)
class ReCall(OfMeanLoss):
    """recall: minus the loss behind a prefix of non-members over the loss alone (ReCaLL, Xie et al. 2024).

    Both losses are means over the same tokens. The authors' code also scores the first token of the text behind the
    prefix, which has no context when the text stands alone. Both losses are floored as in `lowercase`.
    """

    name = "recall"
    meaning = "minus the loss behind a prefix of non-members over the loss"

    prefix: Any = texts_given(_UNSEEN, known="unseen")

    def passes(self) -> Mapping[str, Pass]:  # noqa: D102
        return {"prefix": Pass(prefix=self.prefix)}

    def finish(self, rows: Array, evidence: Evidence) -> Array:  # noqa: D102
        xp = rows.__array_namespace__()
        return -xp.maximum(evidence["prefix"], FLOOR) / xp.maximum(rows, FLOOR)


@dataclasses.dataclass(frozen=True)
class ConReCall(OfMeanLoss):
    """con_recall: -(loss behind non-members - gamma times loss behind members) / loss (Con-ReCall, Wang et al. 2025).

    The means are those of `recall`. The authors choose gamma by the AUC on the texts that they evaluate; fix it before.
    """

    name = "con_recall"
    meaning = "minus the loss behind non-members, less gamma times that behind members, over the loss"

    gamma: Any = option("0.5", functools.partial(check_positive, "gamma"))
    prefix: Any = texts_given(_UNSEEN, known="unseen")
    member_prefix: Any = texts_given("texts that the model was trained on", known="seen")

    def passes(self) -> Mapping[str, Pass]:  # noqa: D102
        return {"prefix": Pass(prefix=self.prefix), "member_prefix": Pass(prefix=self.member_prefix)}

    def finish(self, rows: Array, evidence: Evidence) -> Array:  # noqa: D102
        xp = rows.__array_namespace__()
        behind_members = xp.maximum(evidence["member_prefix"], FLOOR)
        behind_others = xp.maximum(evidence["prefix"], FLOOR)
        return (self.gamma * behind_members - behind_others) / xp.maximum(rows, FLOOR)
