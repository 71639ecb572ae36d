"""recall: minus the loss behind a prefix of non-members over the loss alone (ReCaLL, Xie et al. 2024).

Both losses are means over the same tokens. The authors' code also scores the first token of the text behind the prefix,
which has no context when the text stands alone. Both losses are floored as in `lowercase`.
"""

from __future__ import annotations

from tdd.scoring.scores import Array, Evidence, Score
from tdd.scoring.scores.loss import loss
from tdd.scoring.scores.lowercase import FLOOR

__all__ = ["SCORE"]


def _finish(value: Array, evidence: Evidence) -> Array:
    xp = value.__array_namespace__()
    return -xp.maximum(evidence.prefix_loss, FLOOR) / xp.maximum(value, FLOOR)


SCORE = Score(
    "recall", "minus the loss behind a prefix of non-members over the loss", ("log_prob",), loss, _finish, ("prefix",)
)
