"""zlib: loss / number of bytes of the zlib-compressed text (Carlini et al. 2021, "Extracting training data")."""

from __future__ import annotations

from tdd.scoring.scores import Array, Evidence, Score
from tdd.scoring.scores.loss import loss

__all__ = ["SCORE"]


def _finish(value: Array, evidence: Evidence) -> Array:
    return value / evidence.compressed_bytes


SCORE = Score("zlib", "loss divided by the compressed size of the text", ("log_prob",), loss, _finish)
