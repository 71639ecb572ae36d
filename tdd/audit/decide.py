"""Scores by role → decision: one procedure, chosen beforehand, with its guarantee in words."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import jax
import numpy as np

from tdd.kernels import lattice
from tdd.kernels.proportion import tail_size
from tdd.procedures.clusters import ClusterSelection
from tdd.procedures.grammar import as_procedure, check_no_options
from tdd.procedures.procedure import Procedure
from tdd.procedures.values import PTDI, ConditionalBH
from tdd.records import Evidence, Guarantee, KnockoffSelection, Null, Selection
from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = ["Choices", "Decision", "Panels", "Truth", "choose", "decide", "level_in_words"]


@dataclasses.dataclass(frozen=True)
class Choices:
    """The choices that are made before any result is seen.

    Attributes:
      procedure: the procedure with its options.
      alpha: level in (0, 1).
      delta: the simultaneous bounds hold with probability at least 1 - delta.
      seed: seed of every random choice.
    """

    procedure: Procedure
    alpha: float
    delta: float = 0.05
    seed: int = 0


def choose(
    method: Any, *, alpha: float, delta: float, seed: int, null: str | None, others: Mapping[str, Any]
) -> Choices:
    """Check the choices of an audit.

    Args:
      method: a `Procedure`, or its name with or without options.
      alpha: level.
      delta: also the delta of "conditional", unless its options name another.
      seed: seed of the audit.
      null: the null that the caller means to test, or None; checked.
      others: further keywords of the call, none of which may be an option of a procedure.

    Raises:
      InputError: as `tdd.procedure`; a null that the procedure does not test, a level out of range.
    """
    procedure = as_procedure(method)
    check_no_options(procedure, others)
    _check_direction(null, procedure.null, procedure.name)
    arrays.check_level(alpha)
    arrays.check_level(delta, "delta")
    arrays.check_seed(seed)
    if isinstance(procedure, ConditionalBH) and isinstance(method, str) and "delta=" not in method:
        procedure = dataclasses.replace(procedure, delta=float(delta))
    return Choices(procedure, alpha, delta, seed)


def _empty() -> np.ndarray:
    return np.zeros(0)


def _no_rows() -> np.ndarray:
    return np.zeros((0, 0))


@dataclasses.dataclass(frozen=True)
class Panels:
    """Loss-like scores on the host: LOWER = MORE member-like, NaN where an item has none.

    Attributes:
      names: K names of the columns that decide: one score, several detectors, or one score under several models.
      candidates: [K, m].
      calibration: [K, n] items for which the null holds; n = 0 where the procedure needs none.
      members: [n1] known members, for the moment estimate, or an empty array.
      knockoffs: [m, k] scores of the candidates' knockoffs, [m, 0] where there are none.
      calibration_knockoffs: [n, k] scores of the calibration items' knockoffs, or [n, 0].
      clusters: one name a candidate, or an empty tuple.
      calibration_clusters: one name a calibration item, or an empty tuple.
      weights: [m] density ratio of each candidate ("weighted"), or an empty array.
      calibration_weights: [n] density ratio of each calibration item, or an empty array.
      split: [n] bool, calibration items from which "td4eval" learns its weights, or an empty array.
    """

    names: tuple[str, ...]
    candidates: np.ndarray
    calibration: np.ndarray
    members: np.ndarray = dataclasses.field(default_factory=_empty)
    knockoffs: np.ndarray = dataclasses.field(default_factory=_no_rows)
    calibration_knockoffs: np.ndarray = dataclasses.field(default_factory=_no_rows)
    clusters: tuple[str, ...] = ()
    calibration_clusters: tuple[str, ...] = ()
    weights: np.ndarray = dataclasses.field(default_factory=_empty)
    calibration_weights: np.ndarray = dataclasses.field(default_factory=_empty)
    split: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, bool))

    @classmethod
    def of(cls, calibration: np.ndarray, candidates: np.ndarray, name: str = "score") -> Panels:
        """Panels of one score: [n] and [m]."""
        return cls((name,), np.asarray(candidates, float)[None], np.asarray(calibration, float)[None])

    def evidence(self, procedure: Procedure) -> Evidence:
        """The evidence as the procedure takes it: one row of scores as a vector, None for what is empty."""
        row = 0 if procedure.columns == "one" else slice(None)
        optional = ("members", "knockoffs", "calibration_knockoffs", "weights", "calibration_weights", "split")
        return Evidence(
            self.calibration[row],
            self.candidates[row],
            **{name: value if (value := getattr(self, name)).size else None for name in optional},
            names=self.names,
            clusters=self.clusters,
            calibration_clusters=self.calibration_clusters,
        )

    def complete_calibration(self) -> np.ndarray:
        """[n] bool: calibration items with a score in every column and for every knockoff."""
        return _complete(self.calibration, self.calibration_knockoffs)


@dataclasses.dataclass(frozen=True)
class Truth:
    """The outcome against known labels: one realisation, not an expectation.

    A selection is false where the null holds: a selected non-member for `null="nonmember"`, a selected member for
    `null="member"`.

    Attributes:
      fdp: false selections over all selections (0 where nothing is selected); of clusters, where clusters are decided
        on: one without any member is false.
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
    """The decision, on host arrays in the order of the candidates.

    Attributes:
      unit: what is decided on, "item", "cluster" or "drawn" (one item of each cluster).
      num_units: units tested.
      num_units_selected: units selected.
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
      bound: upper bound of the expected proportion of errors; alpha or slightly more.
      edge_ties: calibration scores tied at the edge of the region of presumed non-members, where that matters.
      threshold: largest selected p-value, 0 where nothing is selected.
      score_cut: the least extreme selected score, None where nothing is selected or several columns decide.
      num_selected: selected candidates.
      num_tests: m, candidates with a score.
      num_calibration: n, calibration items (clusters, where the decision is by cluster) that the p-values rest on.
      num_missing: candidates without a score.
      num_missing_calibration: calibration items without a score.
      min_selections: the fewest selections that the sizes allow.
      guarantee: what is controlled, under which assumptions.
      facts: further findings of the procedure, as (what, value).
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
      procedure: the procedure with its options.
      alpha: level in (0, 1).
      seed: seed of every random choice in the decision.
      labels: [m] 1 member, 0 non-member, -1 unknown; or None. For several models: 1 member of at least one of them.

    Raises:
      InputError: as the procedure.
    """
    arrays.check_level(alpha)
    ptdi = procedure if isinstance(procedure, PTDI) else None
    if ptdi is not None and panels.clusters and ptdi.proportion not in ("storey", "none"):
        raise InputError(
            f"proportion={ptdi.proportion!r} is not offered where items come in clusters; use 'storey' or 'none'"
        )
    evidence = panels.evidence(procedure)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = procedure.select(evidence, alpha, jax.random.key(seed))
    selected, tested = np.asarray(result.selected), ~np.isnan(np.asarray(result.adjusted))
    n, m = int(result.num_calibration), int(result.num_tests)
    subtracted = ptdi is not None and ptdi.proportion == "subtraction"
    by_knockoffs = "knockoffs" in procedure.needs
    complete = _complete(panels.candidates, panels.knockoffs if by_knockoffs else None)
    num_missing_calibration = 0
    if "calibration" in procedure.needs or n:
        known = _complete(panels.calibration, panels.calibration_knockoffs if by_knockoffs else None)
        num_missing_calibration = int((~known).sum())
    unit, num_units, num_units_selected = "item", int(tested.sum()), int(selected.sum())
    if isinstance(result, ClusterSelection) and ptdi is not None:
        unit = ptdi.unit
        if unit == "cluster":
            num_units = int(result.num_clusters)
            num_units_selected = int(np.asarray(result.cluster_selected).sum())
    return Decision(
        unit=unit,
        num_units=num_units,
        num_units_selected=num_units_selected,
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
        num_missing=int((~complete).sum()),
        num_missing_calibration=num_missing_calibration,
        min_selections=int(result.min_selections),
        guarantee=result.guarantee,
        facts=tuple(procedure.facts(evidence, result)),
        warnings=(*procedure.warnings(evidence, result), *(str(item.message) for item in caught)),
        truth=_truth(selected, tested, labels, result.null, panels.clusters if unit == "cluster" else ()),
        selection=result,
    )


def level_in_words(alpha: float) -> str:
    """The level in percent, without the noise of binary fractions: 10 % for 0.1."""
    level = lattice.as_level(alpha)
    percent = 100 * Fraction(int(level.numerator), int(level.denominator))
    return f"{percent.numerator} %" if percent.denominator == 1 else f"{float(percent):g} %"


def _check_direction(null: str | None, tested: str, method: str) -> None:
    """Check that the null that the caller names, if any, is the one that the method tests."""
    if null is None or null == tested:
        return
    if null not in ("nonmember", "member"):
        raise InputError(f'null must be "nonmember" or "member", got {null!r}')
    raise InputError(
        f'{method} tests the null "{tested}" and calibrates on known {tested}s; null={null!r} would invert its '
        f"guarantee. Pass known {tested}s as calibration and leave null out"
    )


def _complete(panel: np.ndarray, knockoffs: np.ndarray | None) -> np.ndarray:
    """[items] bool: items with a score in every column, and for every knockoff where there are knockoffs."""
    complete = np.asarray(~np.isnan(panel).any(axis=0))
    if knockoffs is not None and len(knockoffs) == complete.size:
        complete &= ~np.isnan(knockoffs).any(axis=1)
    return complete


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
