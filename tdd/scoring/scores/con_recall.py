"""con_recall: -(loss behind non-members - gamma times loss behind members) / loss (Con-ReCall, Wang et al. 2025).

The means are those of `recall`. The authors choose gamma by the AUC on the texts that they evaluate; fix it before.
"""

from __future__ import annotations

import functools

from tdd.scoring.scores import Array, Evidence, Score, check_positive
from tdd.scoring.scores.loss import loss
from tdd.scoring.scores.lowercase import FLOOR

__all__ = ["SCORE"]


def _finish(value: Array, evidence: Evidence, gamma: float) -> Array:
    xp = value.__array_namespace__()
    behind_members = xp.maximum(evidence.member_prefix_loss, FLOOR)
    return (gamma * behind_members - xp.maximum(evidence.prefix_loss, FLOOR)) / xp.maximum(value, FLOOR)


SCORE = Score(
    "con_recall",
    "minus the loss behind non-members, less gamma times that behind members, over the loss",
    ("log_prob",),
    loss,
    _finish,
    ("prefix", "member_prefix"),
    checks={"gamma": functools.partial(check_positive, "gamma")},
    defaults={"gamma": "0.5"},
    of_finish=("gamma",),
)
