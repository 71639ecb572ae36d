"""reference: loss - loss under a reference model (Carlini et al. 2021), each model with its own tokenizer.

Of several reference models it takes the mean loss.

Where the tokenizers differ, a mean over tokens compares different units; both losses are then in nats per byte of
scored text.
"""

from __future__ import annotations

from tdd.scoring.scores import Array, Evidence, Score
from tdd.scoring.scores.loss import loss

__all__ = ["SCORE"]


def _finish(value: Array, evidence: Evidence) -> Array:
    return value * evidence.tokens_per_byte - evidence.reference_loss.mean(0)


SCORE = Score("reference", "loss minus the loss under a reference model", ("log_prob",), loss, _finish, ("reference",))
