"""Scores → decision: one procedure on one pre-chosen score, with its guarantee in words."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np

from tdd.kernels import lattice
from tdd.kernels.proportion import tail_size
from tdd.methods.ptdi import PROPORTIONS, ptdi
from tdd.records import Guarantee, Null
from tdd.validate import arrays, runs

__all__ = ["METHODS", "Decision", "Truth", "decide"]

METHODS: dict[str, Null] = {"ptdi": "nonmember"}
"""Procedures that an audit can run, with the null that each of them tests."""


@dataclasses.dataclass(frozen=True)
class Truth:
    """The outcome against known labels: one realisation, not an expectation.

    Attributes:
      fdp: false selections over all selections (0 where nothing is selected).
      power: selected members over all members; NaN where there are none.
      num_members: candidates that are members.
      num_false: selected candidates that are not.
    """

    fdp: float
    power: float
    num_members: int
    num_false: int


@dataclasses.dataclass(frozen=True)
class Decision:
    """What was decided, on host arrays in the order of the candidates.

    Attributes:
      selected: [m] bool.
      p_values: [m] float, NaN where a candidate has no score.
      adjusted: [m] float, likewise; `selected == (adjusted <= alpha)`.
      score: the score that decided.
      method: the procedure.
      null: the null hypothesis of an item.
      alpha: level.
      proportion: estimated proportion of members; negative where the estimate of non-members exceeds 1.
      bound: what the guarantee bounds the expected share of errors by, as a number; alpha or slightly more.
      edge_ties: calibration scores tied at the edge of the region of presumed non-members, where that matters.
      threshold: largest selected p-value, 0 where nothing is selected.
      score_cut: largest selected score, None where nothing is selected.
      num_selected: how many were selected.
      num_tests: m, candidates with a score.
      num_calibration: n, calibration items with a score.
      num_missing: candidates without a score.
      num_missing_calibration: calibration items without a score.
      min_selections: fewer than this many cannot be selected.
      guarantee: what is controlled, under which assumptions.
      truth: outcome against labels, or None where they are not known for all tested candidates.
    """

    selected: np.ndarray
    p_values: np.ndarray
    adjusted: np.ndarray
    score: str
    method: str
    null: Null
    alpha: float
    proportion: float
    bound: float
    edge_ties: int
    threshold: float
    score_cut: float | None
    num_selected: int
    num_tests: int
    num_calibration: int
    num_missing: int
    num_missing_calibration: int
    min_selections: int
    guarantee: Guarantee
    truth: Truth | None


def decide(
    calibration: np.ndarray,
    scores: np.ndarray,
    *,
    alpha: float,
    score: str = "score",
    method: str = "ptdi",
    proportion: str = "storey",
    eta: float = 0.05,
    null: str | None = None,
    members: np.ndarray | None = None,
    labels: Any = None,
) -> Decision:
    """Run one procedure.

    Args:
      calibration: [n] loss-like scores of known non-members.
      scores: [m] loss-like scores of the candidates.
      alpha: level in (0, 1).
      score: name of the score, for the record.
      method: "ptdi".
      proportion: see `tdd.ptdi`.
      eta: see `tdd.ptdi`.
      null: the direction that the caller believes to test; checked where given.
      members: [n1] scores of known members, for proportion="moment".
      labels: [m] 1 member, 0 non-member, -1 unknown; or None.

    Raises:
      InputError: as `tdd.ptdi`, an unknown method, a null that the method does not test.
    """
    runs.check_method(method, METHODS)
    runs.check_direction(null, METHODS[method], method)
    arrays.check_level(alpha)
    result = ptdi(calibration, scores, alpha=alpha, proportion=_proportion(proportion), eta=eta, members=members)
    selected = np.asarray(result.selected)
    n, m = int(result.num_calibration), int(result.num_tests)
    subtracted = proportion == "subtraction"
    return Decision(
        selected=selected,
        p_values=np.asarray(result.p_values),
        adjusted=np.asarray(result.adjusted),
        score=score,
        method=result.method,
        null=result.null,
        alpha=float(alpha),
        proportion=float(result.proportion),
        bound=float(alpha) * ((1 + 1 / max(m, 1)) * (1 + 1 / max(n, 1)) if subtracted else 1),
        edge_ties=_edge_ties(calibration, eta) if subtracted else 0,
        threshold=float(result.threshold),
        score_cut=float(np.max(scores[selected])) if selected.any() else None,
        num_selected=int(result.num_selected),
        num_tests=m,
        num_calibration=n,
        num_missing=len(scores) - m,
        num_missing_calibration=len(calibration) - n,
        min_selections=int(result.min_selections),
        guarantee=result.guarantee,
        truth=_truth(selected, scores, labels),
    )


def level_in_words(alpha: float) -> str:
    """10 % for 0.1, without the noise of binary fractions."""
    level = lattice.as_level(alpha)
    percent = 100 * Fraction(int(level.numerator), int(level.denominator))
    return f"{percent.numerator} %" if percent.denominator == 1 else f"{float(percent):g} %"


def _edge_ties(calibration: np.ndarray, eta: float) -> int:
    """Calibration scores that the region (tau, inf) loses because they tie with tau."""
    ordered = np.sort(calibration[~np.isnan(calibration)])
    tail = int(tail_size(ordered.size, eta, ordered.size))
    if tail >= ordered.size:
        return 0
    return tail - int((ordered > ordered[ordered.size - tail - 1]).sum())


def _proportion(name: str) -> Any:
    arrays.check_choice(name, PROPORTIONS, "proportion")
    return name


def _truth(selected: np.ndarray, scores: np.ndarray, labels: Any) -> Truth | None:
    """FDP and power, where every candidate with a score has a label."""
    if labels is None or len(labels) == 0:
        return None
    known, tested = np.asarray(labels), ~np.isnan(scores)
    if (known[tested] < 0).any():
        return None
    member = (known == 1) & tested
    false = int((selected & ~member).sum())
    return Truth(
        fdp=false / max(1, int(selected.sum())),
        power=float((selected & member).sum() / member.sum()) if member.any() else float("nan"),
        num_members=int(member.sum()),
        num_false=false,
    )
