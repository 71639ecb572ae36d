"""Scores by role → decision: one procedure, chosen beforehand, with its guarantee in words, and simultaneous bounds.

The level of a procedure bounds an average over repetitions; simultaneous bounds speak of the list at hand, with
confidence 1 - delta, and stay true whatever cut is chosen after looking. They exist where the law of the null ranks is
known.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tdd.procedures.bounds import FdpBounds
from tdd.procedures.calls import draws_for
from tdd.procedures.fdp_template import LARGE
from tdd.procedures.procedure import Procedure, as_procedure, check_no_options
from tdd.records import ClusterSelection, Evidence, Guarantee, KnockoffSelection, Null, Selection
from tdd.runs.folder import drawn_seed
from tdd.validate import InputError, arrays

_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
_SHOWN = 4
_DRAWS, _MAX_DRAWS = 999, 9_999
"""Draws for the template."""


@dataclasses.dataclass(frozen=True)
class Choices:
    """The choices that are made before any result is seen."""

    procedure: Procedure  # the procedure with its options
    alpha: float  # level in (0, 1)
    delta: float = 0.05  # the simultaneous bounds hold with probability at least 1 - delta
    seed: int = 0  # seed of every random choice
    drawn: int | None = None  # the seed, where the operating system drew it


def choose(
    method: Any,
    *,
    alpha: float,
    delta: float,
    seed: int | None,
    null: str | None,
    others: Mapping[str, Any],
    out: str | os.PathLike[str] | None = None,
) -> Choices:
    """Check the choices of an audit, none of whose `others`, the further keywords, may be an option of a procedure.

    `delta` is also the option delta of a procedure that has one, unless `method` names another. Without a seed it is 0,
    and for a randomised procedure that of the run in the folder `out`, or a new draw from the operating system.

    Raises:
      InputError: as `tdd.procedure`; a null that the procedure does not test, a level out of range.
    """
    procedure = as_procedure(method)
    check_no_options(procedure, others)
    tested = procedure.null
    if null not in (None, "nonmember", "member"):
        raise InputError(f'null must be "nonmember" or "member", got {null!r}')
    if null not in (None, tested):
        raise InputError(
            f'{procedure.name} tests the null "{tested}" and calibrates on known {tested}s; null={null!r} would invert '
            f"its guarantee. Pass known {tested}s as calibration and leave null out"
        )
    arrays.check_level(alpha)
    arrays.check_level(delta, "delta")
    drawn = drawn_seed(out) if seed is None and procedure.randomised else None
    seed = arrays.check_seed(seed if seed is not None else drawn or 0)
    has_delta = "delta" in {field.name for field in dataclasses.fields(procedure)}
    if has_delta and isinstance(method, str) and "delta=" not in method:
        procedure = dataclasses.replace(procedure, delta=float(delta))
    return Choices(procedure, alpha, delta, seed, drawn)


def evidence_of(
    procedure: Procedure,
    tables: Mapping[str, Mapping[str, np.ndarray]],
    names: Sequence[str],
    *,
    knockoffs: Sequence[str] = (),
    weight: str | None = None,
    split: str | None = None,
    clusters: Sequence[str] = (),
    calibration_clusters: Sequence[str] = (),
) -> Evidence:
    """The evidence as the procedure takes it: one column of scores as a vector, None for what is absent.

    Args:
      procedure: the procedure that decides.
      tables: "candidate", "calibration" or "member" -> column -> [items] loss-like scores, NaN where an item has none.
      names: the K columns that decide; `knockoffs`, `weight` and `split` are names of columns as in `tdd.select`.
      clusters: cluster of each candidate, or empty, as `calibration_clusters` of each calibration item.
    """

    def columns(role: str, *wanted: str | None) -> np.ndarray:
        table = tables.get(role, {})
        return np.array([table[name] for name in wanted if name is not None and name in table])

    def known(values: np.ndarray) -> np.ndarray | None:
        return values if values.size else None

    row = 0 if procedure.columns == "one" else slice(None)
    candidates, calibration = columns("candidate", *names), columns("calibration", *names)
    learned = known(columns("calibration", split))
    return Evidence(
        (calibration if len(calibration) else np.zeros((len(names), 0)))[row],
        candidates[row],
        members=known(columns("member", *names)[row]) if "members" in procedure.needs else None,
        knockoffs=known(columns("candidate", *knockoffs).T),
        calibration_knockoffs=known(columns("calibration", *knockoffs).T),
        members_knockoffs=known(columns("member", *knockoffs).T) if "members_knockoffs" in procedure.needs else None,
        weights=known(columns("candidate", weight).reshape(-1)),
        calibration_weights=known(columns("calibration", weight).reshape(-1)),
        split=None if learned is None else learned[0] > 0,
        names=tuple(names),
        clusters=tuple(clusters),
        calibration_clusters=tuple(calibration_clusters),
    )


@dataclasses.dataclass(frozen=True)
class Truth:
    """The outcome against known labels: one realisation, not an expectation.

    A selection is false where the null holds: a selected non-member for `null="nonmember"`, a selected member for
    `null="member"`.
    """

    # false selections over all selections (0 where nothing is selected); of clusters, where clusters are decided on:
    # one without any member is false
    fdp: float
    power: float  # right selections over all candidates for which the null is false; NaN where there are none
    num_members: int  # candidates that are members
    num_false: int  # selected candidates for which the null holds


@dataclasses.dataclass(frozen=True)
class Decision:
    """The decision, on host arrays in the order of the candidates."""

    unit: str  # what is decided on, "item", "cluster" or "drawn" (one item of each cluster)
    num_units: int  # units tested
    num_units_selected: int  # units selected
    selected: np.ndarray  # [m] bool
    p_values: np.ndarray  # [m] float, NaN where a candidate has no score or the procedure has no p-values
    adjusted: np.ndarray  # [m] float, NaN where a candidate has no score; `selected == (adjusted <= alpha)`
    statistic: np.ndarray  # [m] knockoff statistics, large = member; empty for the other procedures
    score: str  # the columns that decided, in words
    columns: tuple[str, ...]  # their names
    method: str  # the procedure
    null: Null  # the null hypothesis of an item
    alpha: float  # level
    # estimated proportion of items for which the null is false; negative where the estimate of the others exceeds 1,
    # 0 where nothing is estimated
    proportion: float
    bound: float  # upper bound of the expected proportion of errors; alpha or slightly more
    threshold: float  # largest selected p-value, 0 where nothing is selected
    # the least extreme selected score, None where nothing is selected or several columns decide
    score_cut: float | None
    num_selected: int  # selected candidates
    num_tests: int  # m, candidates with a score
    num_calibration: int  # n, calibration items (clusters, where the decision is by cluster) that the p-values rest on
    num_missing: int  # candidates without a score
    num_missing_calibration: int  # calibration items without a score
    min_selections: int  # the fewest selections that the sizes allow
    guarantee: Guarantee  # what is controlled, under which assumptions
    facts: tuple[tuple[str, str], ...]  # further findings of the procedure, as (what, value)
    warnings: tuple[str, ...]  # what the reader must know about this result
    truth: Truth | None  # outcome against labels, or None where they are not known for all tested candidates
    selection: Selection  # what the procedure returned


def decide(evidence: Evidence, procedure: Procedure, alpha: float, *, seed: int = 0, labels: Any = None) -> Decision:
    """Run one procedure on evidence on the host.

    `labels` are [m] 1 member (for several models: of at least one of them), 0 non-member, -1 unknown; or None.
    """
    arrays.check_level(alpha)
    with _own_warnings() as caught:
        result = procedure.select(evidence, alpha, arrays.key_of_seed(seed))
    selected, tested = np.asarray(result.selected), ~np.isnan(np.asarray(result.adjusted))
    n = int(result.num_calibration)
    by_knockoffs = "knockoffs" in procedure.needs
    complete = complete_items(evidence.scores, evidence.knockoffs if by_knockoffs else None)
    num_missing_calibration = 0
    if "calibration" in procedure.needs or n:
        known = complete_items(evidence.calibration, evidence.calibration_knockoffs if by_knockoffs else None)
        num_missing_calibration = int((~known).sum())
    unit, num_units, num_units_selected = "item", int(tested.sum()), int(selected.sum())
    if isinstance(result, ClusterSelection):
        unit = result.unit
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
        score=", ".join(evidence.names),
        columns=evidence.names,
        method=result.method,
        null=result.null,
        alpha=float(alpha),
        proportion=float(result.proportion),
        bound=procedure.bound(alpha, result),
        threshold=float(result.threshold),
        score_cut=_score_cut(evidence, result.null, selected),
        num_selected=int(selected.sum()),
        num_tests=int(tested.sum()),
        num_calibration=n,
        num_missing=int((~complete).sum()),
        num_missing_calibration=num_missing_calibration,
        min_selections=int(result.min_selections),
        guarantee=result.guarantee,
        facts=tuple(procedure.facts(evidence, result)),
        warnings=(
            *procedure.warnings(evidence, result),
            *caught,
        ),
        truth=_truth(selected, tested, labels, result.null, evidence.clusters if unit == "cluster" else ()),
        selection=result,
    )


class _Collectors:
    """Lists of warnings, those of a thread in a list of that thread.

    Whoever catches warnings does so for all threads. So one catch serves all decisions that run at a time; the lock is
    held while it begins and ends, never while a decision runs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[int, list[list[str]]] = {}  # thread -> its decisions, the innermost last
        self._caught, self._shown = warnings.catch_warnings(), warnings.showwarning

    def add(self, collector: list[str]) -> None:
        with self._lock:
            if not self._of:
                self._caught = warnings.catch_warnings()
                if warnings.showwarning != self._keep:  # which another thread's catch, begun meanwhile, brings back
                    self._shown = warnings.showwarning
                self._caught.__enter__()
                warnings.simplefilter("always")
                warnings.showwarning = self._keep
            self._of.setdefault(threading.get_ident(), []).append(collector)

    def remove(self) -> None:
        with self._lock:
            own = self._of[threading.get_ident()]
            own.pop()
            if not own:
                del self._of[threading.get_ident()]
            if not self._of:
                self._caught.__exit__(None, None, None)
                warnings.showwarning = self._shown

    def _keep(self, message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        own = self._of.get(threading.get_ident())
        if not own:
            self._shown(message, category, *where, **more)
        elif category is UserWarning:
            own[-1].append(str(message))


_collectors = _Collectors()


@contextlib.contextmanager
def _own_warnings() -> Iterator[list[str]]:
    """The user warnings of this thread: those of another are not of this decision, and are shown as ever."""
    caught = list[str]()
    _collectors.add(caught)
    try:
        yield caught
    finally:
        _collectors.remove()


def complete_items(scores: np.ndarray, knockoffs: np.ndarray | None) -> np.ndarray:
    """[items] bool: items with a score in every column, and for every knockoff where there are knockoffs."""
    complete = np.asarray(~np.isnan(np.atleast_2d(scores)).any(axis=0))
    return complete if knockoffs is None else complete & ~np.isnan(knockoffs).any(axis=1)


def _score_cut(evidence: Evidence, null: Null, selected: np.ndarray) -> float | None:
    if len(evidence.names) > 1 or not selected.any():
        return None
    chosen = evidence.scores.reshape(-1)[selected]
    return float(chosen.max() if null == "nonmember" else chosen.min())


def _truth(
    selected: np.ndarray, tested: np.ndarray, labels: Any, null: Null, clusters: Sequence[Any] = ()
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
        selected, tested, member = (np.bincount(number, items).astype(bool) for items in (selected, tested, member))
    findable = member if null == "nonmember" else tested & ~member
    false = int((selected & ~findable).sum())
    return Truth(
        fdp=false / max(1, int(selected.sum())),
        power=float((selected & findable).sum() / findable.sum()) if findable.any() else float("nan"),
        num_members=num_members,
        num_false=false,
    )


@dataclasses.dataclass(frozen=True)
class Cut:
    """One list of candidates."""

    list: str  # its name
    size: int  # its length
    max_false: int  # upper bound of the false ones among them
    bound: float  # max_false / size, 0 for an empty list


@dataclasses.dataclass(frozen=True)
class SimultaneousBounds:
    """Simultaneous bounds, or why there are none."""

    applies: bool  # True where bounds are offered for this procedure and these data
    reason: str  # why there are none, else empty
    delta: float  # all statements hold together with probability at least 1 - delta
    cuts: tuple[Cut, ...] = ()  # the selection, then the most extreme candidates
    min_alternatives: int | None = None  # lower bound of the candidates whose null is false: members, or clean items
    # [m] bound of the list that is cut at each candidate, NaN where there is no cut; [0] without bounds
    item_bound: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    source: str = ""  # who proved them

    def summary(self) -> dict[str, Any]:
        """The bounds without their per-item column."""
        return {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "item_bound"
        }


def simultaneous_bounds(evidence: Evidence, choices: Choices, decision: Decision) -> SimultaneousBounds:
    """The simultaneous bounds of a decision, where its procedure has some."""
    delta = choices.delta
    if not decision.num_tests:
        return SimultaneousBounds(False, "no candidate has a score", delta)
    if delta * (_MAX_DRAWS + 1) < 1:
        raise InputError(f"delta={delta!r} is too small for {_MAX_DRAWS} draws: give at least {1 / (_MAX_DRAWS + 1):g}")
    large = max(decision.num_calibration, decision.num_tests) > LARGE
    num_draws = min(_MAX_DRAWS, draws_for(delta)) if large else max(_DRAWS, math.ceil(1 / delta))
    key = jax.random.fold_in(arrays.key_of_seed(choices.seed), 1)
    bounds = choices.procedure.bounds(evidence, decision.selection, delta=delta, key=key, num_draws=num_draws)
    if isinstance(bounds, str):
        return SimultaneousBounds(False, bounds, delta)
    sizes, false = np.asarray(bounds.num_selected), np.asarray(bounds.false_bound)
    if isinstance(bounds, FdpBounds):
        false_in_selection = int(bounds.of(decision.selected).false_bound)
        item_bound = np.asarray(bounds.item_fdp_bound)
    else:
        false_in_selection = int(false[decision.selected].max(initial=0))
        item_bound = np.where(sizes > 0, np.asarray(bounds.fdp_bound), np.nan)
    cuts = _cuts(decision, false_in_selection, sizes, false)
    return SimultaneousBounds(True, "", delta, cuts, int(bounds.min_true), item_bound, bounds.guarantee.source)


def _cuts(decision: Decision, false_in_selection: int, sizes: np.ndarray, false: np.ndarray) -> tuple[Cut, ...]:
    """The selection, and up to four lists of the most extreme candidates, spread over their possible sizes."""
    possible, first = np.unique(sizes[sizes > 0], return_index=True)
    false_by_size = dict(zip(possible.tolist(), false[sizes > 0][first].tolist(), strict=True))
    largest_within = {int(possible[:within].max(initial=0)) for within in np.searchsorted(possible, _SIZES, "right")}
    shown = sorted(largest_within - {0, decision.num_selected})
    if len(shown) > _SHOWN:
        shown = [shown[round(i * (len(shown) - 1) / (_SHOWN - 1))] for i in range(_SHOWN)]
    lists = [("the selection", decision.num_selected, false_in_selection)]
    lists += [(f"the {size} most extreme", size, false_by_size[size]) for size in shown]
    return tuple(Cut(name, size, false, false / size if size else 0.0) for name, size, false in lists)
