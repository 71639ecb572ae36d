"""grad_norm: Euclidean norm of the gradient of the text's loss with respect to all parameters of the model.

    g(x) = || grad_theta L(x; theta) ||_2,   L = - sum_t log p(x_t | x_<t) over the n scored tokens,

or, with reduction=mean, of L / n, which is g(x) / n. Small where training has already flattened the loss at x, so
LOWER = MORE member-like. It grows with the length of a text (sum) or shrinks with it (mean): compare texts of one
length, or each text with its own paraphrases.

Paper: "KTD", Eq. 6, which differentiates the sum. It is the norm over all parameters together, not a mean of norms of
single tensors or tokens.
"""

from __future__ import annotations

from typing import Any

from tdd.records import TokenStats
from tdd.scoring.scores import Array, Evidence, Score, namespace
from tdd.validate import InputError

__all__ = ["SCORE", "check_reduction"]


def check_reduction(value: Any) -> str:
    """The reduction of the losses of a text's tokens."""
    if value not in ("sum", "mean"):
        raise InputError(f"reduction={value!r} is unknown; use 'sum' (of -log p over the scored tokens) or 'mean'")
    return value


def _divisor(stats: TokenStats, reduction: str) -> Array:
    """The divisor of the norm of the summed loss: [B]; NaN for a row without scored tokens."""
    xp, num_scored = namespace(stats), stats.mask.sum(-1)
    return xp.where(num_scored > 0, num_scored if reduction == "mean" else 1.0, xp.nan)


def _finish(divisor: Array, evidence: Evidence) -> Array:
    return evidence.grad_norm / divisor


SCORE = Score(
    "grad_norm",
    "norm of the gradient of the text's loss over all parameters",
    (),
    _divisor,
    _finish,
    ("gradient",),
    checks={"reduction": check_reduction},
    defaults={"reduction": "sum"},
)
