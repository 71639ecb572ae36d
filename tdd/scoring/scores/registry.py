"""The scores by name, and how a user writes one: "loss", "min_k:k=0.1", "max_renyi:gamma=inf,k=0"."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tdd.records import TokenStats
from tdd.scoring.scores import (
    grad_norm,
    loss,
    lowercase,
    m_entropy,
    max_renyi,
    min_k,
    min_k_plus_plus,
    reference,
    zlib,
)
from tdd.scoring.scores.record import Array, Evidence, Score
from tdd.validate.errors import InputError
from tdd.validate.scoring import score_syntax

__all__ = ["SCORES", "ScoreRequest", "parse_score", "score_rows"]

SCORES: Mapping[str, Score] = {
    module.SCORE.name: module.SCORE
    for module in (loss, zlib, lowercase, reference, min_k, min_k_plus_plus, m_entropy, max_renyi, grad_norm)
}
"""Name -> score."""


@dataclasses.dataclass(frozen=True)
class ScoreRequest:
    """A score with the parameters that a user chose.

    Attributes:
      label: The text that the user wrote; the column's name in the result.
      score: The score.
      parameters: Parameter -> checked value, defaults filled in.
    """

    label: str
    score: Score
    parameters: Mapping[str, Any]

    def rows(self, stats: TokenStats) -> Array:
        """The part of the score that comes from the tokens: [B]."""
        return self.score.rows(stats, **self.parameters)


def parse_score(text: str) -> ScoreRequest:
    """Read "name" or "name:parameter=value,parameter=value".

    Raises:
      InputError: an unknown name or parameter, listing those that exist; a value out of range.
    """
    name, colon, options = text.strip().partition(":")
    if name not in SCORES:
        raise _unknown_score(name, SCORES)
    score = SCORES[name]
    given: dict[str, str] = {}
    for option in options.split(",") if colon else ():
        key, equals, value = (part.strip() for part in option.partition("="))
        if not (key and equals and value) or key in given:
            raise score_syntax(text)
        if key not in score.checks:
            raise _unknown_parameter(name, key, tuple(score.checks))
        given[key] = value
    parameters = {key: check(given.get(key, score.defaults[key])) for key, check in score.checks.items()}
    return ScoreRequest(text, score, parameters)


def score_rows(stats: TokenStats, name: str, evidence: Evidence = Evidence()) -> Array:  # noqa: B008
    """One score of every row of a batch, LOWER = MORE member-like. Pure; jit-able with `name` static.

    Args:
      stats: Statistics [B, T], NumPy or JAX.
      name: A score, with options as in `parse_score`.
      evidence: Evidence that the scores zlib, lowercase, reference and grad_norm need beside the text's own statistics.

    Returns:
      [B] in the float type of the statistics; NaN for a row without scored tokens.
    """
    request = parse_score(name)
    return request.score.finish(request.rows(stats), evidence)


def _unknown_score(name: str, existing: Mapping[str, Any]) -> InputError:
    """A name that is not in the registry."""
    listing = "; ".join(f"{known}: {score.meaning}" for known, score in existing.items())
    return InputError(f"there is no score {name!r}; existing scores are {listing}")


def _unknown_parameter(score: str, name: str, existing: Sequence[str]) -> InputError:
    """An option that the score does not have."""
    known = f"it has {', '.join(existing)}" if existing else "it has none"
    return InputError(f"score {score!r} has no parameter {name!r}; {known}")
