"""Scores of texts from token statistics, one a file; all loss-like: LOWER = MORE member-like."""

from tdd.scoring.scores.record import Evidence, Score
from tdd.scoring.scores.registry import SCORES, ScoreRequest, parse_score, score_rows

__all__ = ["SCORES", "Evidence", "Score", "ScoreRequest", "parse_score", "score_rows"]
