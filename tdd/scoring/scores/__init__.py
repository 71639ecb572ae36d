"""Scores of texts from token statistics, one a file; all loss-like: LOWER = MORE member-like.

A user writes one by its name and options: "loss", "min_k:k=0.1", "max_renyi:gamma=inf,k=0".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
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

__all__ = [
    "SCORES",
    "Evidence",
    "Score",
    "ScoreRequest",
    "check_reference",
    "check_score_names",
    "parse_score",
    "score_rows",
]

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
        listing = "; ".join(f"{known}: {score.meaning}" for known, score in SCORES.items())
        raise InputError(f"there is no score {name!r}; existing scores are {listing}")
    score = SCORES[name]
    given: dict[str, str] = {}
    for option in options.split(",") if colon else ():
        key, equals, value = (part.strip() for part in option.partition("="))
        if not (key and equals and value) or key in given:
            raise _bad_syntax(text)
        if key not in score.checks:
            known = f"it has {', '.join(score.checks)}" if score.checks else "it has none"
            raise InputError(f"score {name!r} has no parameter {key!r}; {known}")
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


def check_score_names(scores: Any) -> tuple[str, ...]:
    """Return the names: at least one, none twice."""
    if not isinstance(scores, Iterable):
        raise InputError(
            f"scores={scores!r} is neither a name nor a sequence of names; give for example scores=('loss',)"
        )
    names = (scores,) if isinstance(scores, str) else tuple(scores)
    if not names:
        raise InputError("scores is empty; name at least one score, for example scores=('loss',)")
    for name in names:
        if not isinstance(name, str):
            raise _bad_syntax(name)
        if names.count(name) > 1:
            raise InputError(f"scores names {name!r} more than once; remove the repetition")
    return names


def check_reference(passes: Iterable[str], reference: Any) -> None:
    """Check that there is a reference model if, and only if, a score needs one."""
    if "reference" in passes and reference is None:
        raise InputError(
            "the score 'reference' needs a second model: pass reference=<folder or hub id>, or leave the score out"
        )
    if "reference" not in passes and reference is not None:
        raise InputError("reference is given but no score uses it; add 'reference' to scores or leave it out")


def _bad_syntax(text: Any) -> InputError:
    return InputError(
        f"cannot read the score {text!r}; write a name such as 'min_k', or 'min_k:k=0.1', or 'max_renyi:gamma=2,k=0.1'"
    )
