"""lowercase: loss(text) / loss(lowercased text) (Carlini et al. 2021, "Extracting training data").

A text that the model knows by heart has a loss near 0 in both forms, and the quotient of two such numbers is noise:
both are floored, so that it tends to 1 there.
"""

from __future__ import annotations

from tdd.scoring.scores import Array, Evidence, Score
from tdd.scoring.scores.loss import loss

__all__ = ["FLOOR", "SCORE"]

FLOOR = 1e-6
"""Nats a token; below float32's resolution of a mean log-probability."""


def _finish(value: Array, evidence: Evidence) -> Array:
    xp = value.__array_namespace__()
    return xp.maximum(value, FLOOR) / xp.maximum(evidence.lowercase_loss, FLOOR)


SCORE = Score("lowercase", "loss over the loss of the lowercased text", ("log_prob",), loss, _finish, ("lowercase",))
