"""Scores → decision: one procedure, chosen beforehand, with its guarantee in words."""

from __future__ import annotations

import dataclasses
import warnings
from fractions import Fraction
from typing import Any

import jax
import numpy as np

from tdd.audit.evidence import Panels
from tdd.kernels import lattice
from tdd.kernels.proportion import tail_size
from tdd.procedures.clusters import ClusterSelection
from tdd.procedures.procedure import Procedure
from tdd.procedures.values import PTDI
from tdd.records import Guarantee, KnockoffSelection, Null, Selection
from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = ["Decision", "Truth", "decide", "level_in_words"]


@dataclasses.dataclass(frozen=True)
class Truth:
    """The outcome against known labels: one realisation, not an expectation.

    A selection is false where the null holds: a selected non-member for `null="nonmember"`, a selected member for
    `null="member"`.

    Attributes:
      fdp: false selections over all selections (0 where nothing is selected). Where clusters are decided on, of
        clusters: one without any member is false.
      power: right selections over all candidates for which the null is false; NaN where there are none.
      num_members: candidates that are members.
      num_false: selected candidates for which the null holds.
    """

    fdp: float
    power: float
    num_members: int
    num_false: int


@dataclasses.dataclass(frozen=True)
class Decision:
    """What was decided, on host arrays in the order of the candidates.

    Attributes:
      unit: what is decided on, "item", "cluster" or "drawn" (one item of each cluster).
      num_units: how many of these were tested.
      num_units_selected: how many of these are selected.
      selected: [m] bool.
      p_values: [m] float, NaN where a candidate has no score or the procedure has no p-values.
      adjusted: [m] float, NaN where a candidate has no score; `selected == (adjusted <= alpha)`.
      statistic: [m] knockoff statistics, large = member; empty for the other procedures.
      score: the columns that decided, in words.
      columns: their names.
      method: the procedure.
      null: the null hypothesis of an item.
      alpha: level.
      proportion: estimated proportion of items for which the null is false; negative where the estimate of the others
        exceeds 1, 0 where nothing is estimated.
      bound: what the guarantee bounds the expected share of errors by, as a number; alpha or slightly more.
      edge_ties: calibration scores tied at the edge of the region of presumed non-members, where that matters.
      threshold: largest selected p-value, 0 where nothing is selected.
      score_cut: the selected score nearest to the others, None where nothing is selected or several columns decide.
      num_selected: how many were selected.
      num_tests: m, candidates with a score.
      num_calibration: n, calibration items (clusters, where the decision is by cluster) that the p-values rest on.
      num_missing: candidates without a score.
      num_missing_calibration: calibration items without a score.
      min_selections: fewer than this many cannot be selected.
      guarantee: what is controlled, under which assumptions.
      facts: what else the procedure found, as (what, value).
      warnings: what the reader must know about this result.
      truth: outcome against labels, or None where they are not known for all tested candidates.
      selection: what the procedure returned.
    """

    unit: str
    num_units: int
    num_units_selected: int
    selected: np.ndarray
    p_values: np.ndarray
    adjusted: np.ndarray
    statistic: np.ndarray
    score: str
    columns: tuple[str, ...]
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
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    truth: Truth | None
    selection: Selection


def decide(panels: Panels, procedure: Procedure, alpha: float, *, seed: int = 0, labels: Any = None) -> Decision:
    """Run one procedure.

    Args:
      panels: scores of candidates and calibration items.
      procedure: with its options.
      alpha: level in (0, 1).
      seed: of every random choice in the decision.
      labels: [m] 1 member, 0 non-member, -1 unknown; or None. For several models: 1 member of at least one of them.

    Raises:
      InputError: as the procedure.
    """
    arrays.check_level(alpha)
    ptdi = procedure if isinstance(procedure, PTDI) else None
    if ptdi is not None:
        _check_cluster_proportion(ptdi.proportion, bool(panels.clusters))
    evidence = panels.evidence(procedure)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = procedure.select(evidence, alpha, jax.random.key(seed))
    selected, tested = np.asarray(result.selected), ~np.isnan(np.asarray(result.adjusted))
    n, m = int(result.num_calibration), int(result.num_tests)
    subtracted = ptdi is not None and ptdi.proportion == "subtraction"
    calibrated = panels.calibration.shape[1] if "calibration" in procedure.needs or n else 0
    knockoffs = "knockoffs" in procedure.needs
    unscored = calibrated - _scored(panels.calibration, panels.calibration_knockoffs if knockoffs else None)
    scored = _scored(panels.candidates, panels.knockoffs if knockoffs else None)
    unit, counted = "item", (int(tested.sum()), int(selected.sum()))
    if isinstance(result, ClusterSelection) and ptdi is not None:
        unit = ptdi.unit
        if unit == "cluster":
            counted = (int(result.num_clusters), int(np.asarray(result.cluster_selected).sum()))
    return Decision(
        unit=unit,
        num_units=counted[0],
        num_units_selected=counted[1],
        selected=selected,
        p_values=np.asarray(result.p_values),
        adjusted=np.asarray(result.adjusted),
        statistic=np.asarray(result.statistic) if isinstance(result, KnockoffSelection) else np.zeros(0),
        score=", ".join(panels.names),
        columns=panels.names,
        method=result.method,
        null=result.null,
        alpha=float(alpha),
        proportion=float(result.proportion),
        bound=float(alpha) * ((1 + 1 / max(m, 1)) * (1 + 1 / max(n, 1)) if subtracted else 1),
        edge_ties=_edge_ties(panels.calibration[0], ptdi.eta) if ptdi is not None and subtracted else 0,
        threshold=float(result.threshold),
        score_cut=_score_cut(panels, result.null, selected),
        num_selected=int(selected.sum()),
        num_tests=int(tested.sum()),
        num_calibration=n,
        num_missing=panels.candidates.shape[1] - scored,
        num_missing_calibration=unscored if calibrated else 0,
        min_selections=int(result.min_selections),
        guarantee=result.guarantee,
        facts=tuple(procedure.facts(evidence, result)),
        warnings=(*procedure.warnings(evidence, result), *(str(item.message) for item in said)),
        truth=_truth(selected, tested, labels, result.null, panels.clusters if unit == "cluster" else ()),
        selection=result,
    )


def level_in_words(alpha: float) -> str:
    """10 % for 0.1, without the noise of binary fractions."""
    level = lattice.as_level(alpha)
    percent = 100 * Fraction(int(level.numerator), int(level.denominator))
    return f"{percent.numerator} %" if percent.denominator == 1 else f"{float(percent):g} %"


def _scored(panel: np.ndarray, knockoffs: np.ndarray | None) -> int:
    """Items with a score in every column, those of their knockoffs included."""
    missing = np.isnan(panel).any(axis=0)
    if knockoffs is not None and len(knockoffs) == missing.size:
        missing |= np.isnan(knockoffs).any(axis=1)
    return int((~missing).sum())


def _score_cut(panels: Panels, null: Null, selected: np.ndarray) -> float | None:
    if len(panels.names) > 1 or not selected.any():
        return None
    chosen = panels.candidates[0][selected]
    return float(chosen.max() if null == "nonmember" else chosen.min())


def _edge_ties(calibration: np.ndarray, eta: float) -> int:
    """Calibration scores that the region (tau, inf) loses because they tie with tau."""
    ordered = np.sort(calibration[~np.isnan(calibration)])
    tail = int(tail_size(ordered.size, eta, ordered.size))
    if tail >= ordered.size:
        return 0
    return tail - int((ordered > ordered[ordered.size - tail - 1]).sum())


def _truth(
    selected: np.ndarray, tested: np.ndarray, labels: Any, null: Null, clusters: tuple[str, ...] = ()
) -> Truth | None:
    """FDP and power, where every tested candidate has a label."""
    if labels is None or len(labels) == 0:
        return None
    known = np.asarray(labels)
    if (known[tested] < 0).any():
        return None
    member = (known == 1) & tested
    num_members = int(member.sum())
    if clusters:  # one entry a cluster: it is tested, selected or a member as soon as one of its items is
        number = np.unique(clusters, return_inverse=True)[1]
        selected, tested, member = (
            np.bincount(number, weights=items).astype(bool) for items in (selected, tested, member)
        )
    findable = member if null == "nonmember" else tested & ~member
    false = int((selected & ~findable).sum())
    return Truth(
        fdp=false / max(1, int(selected.sum())),
        power=float((selected & findable).sum() / findable.sum()) if findable.any() else float("nan"),
        num_members=num_members,
        num_false=false,
    )


def _check_cluster_proportion(proportion: str, clustered: bool) -> None:
    """The estimates whose guarantee is stated for clusters without a condition on ties."""
    if clustered and proportion not in ("storey", "none"):
        raise InputError(
            f"proportion={proportion!r} is not offered where items come in clusters; use 'storey' or 'none'"
        )
