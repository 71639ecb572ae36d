"""What holds for every cut at once: at most so many of a list are wrong, at least so many candidates are found.

The level of a procedure bounds an average over repetitions; these bounds speak of the list at hand, with confidence
1 - delta, and stay true whatever cut is chosen after looking. They exist where the law of the null ranks is known.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from tdd.audit.decide import Decision
from tdd.audit.evidence import Evidence, Options
from tdd.procedures.bounds import FdpBounds, fdp_bounds, fdp_bounds_of_ranks, knockoff_fdp_bounds
from tdd.procedures.fdp_template import LARGE
from tdd.validate import runs

__all__ = ["Certificate", "Cut", "certify"]

_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
_SHOWN = 4
_DRAWS, _FEW, _MAX_DRAWS = 999, 10, 9_999
"""Draws for the template; for large samples so many that the tenth most extreme one decides: there the error of fewer
draws is below that of the tabulated grid."""


@dataclasses.dataclass(frozen=True)
class Cut:
    """One list of candidates.

    Attributes:
      list: which one, in words.
      size: its length.
      max_false: at most so many of them are wrong.
      bound: max_false / size, 0 for an empty list.
    """

    list: str
    size: int
    max_false: int
    bound: float


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Simultaneous bounds, or why there are none.

    Attributes:
      applies: whether bounds are offered for this procedure and these data.
      reason: where not, why.
      delta: all statements hold together with probability at least 1 - delta.
      cuts: the selection, then the most extreme candidates.
      min_alternatives: at least so many of all candidates have a false null: are members, or are clean.
      item_bound: [m] bound of the list that is cut at each candidate, NaN where there is no cut; [0] where none apply.
      source: who proved them.
    """

    applies: bool
    reason: str
    delta: float
    cuts: tuple[Cut, ...] = ()
    min_alternatives: int | None = None
    item_bound: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    source: str = ""

    def summary(self) -> dict[str, Any]:
        """The certificate without its per-item column."""
        return {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "item_bound"
        }


def certify(evidence: Evidence, options: Options, decision: Decision) -> Certificate:
    """The simultaneous bounds for a decision.

    Offered for "ptdi" item by item, for "td4eval" with pooled ranks, for "ktd" with rule="conformal" or one knockoff
    an item. Not for the largest of several p-values, merged or Cauchy p-values, averaged knockoffs, or clusters.
    """
    rule = decision.method.partition("/")[2]
    if not decision.num_tests:
        return Certificate(False, "no candidate has a score", options.delta)
    runs.check_delta(options.delta, _MAX_DRAWS)
    large = max(decision.num_calibration, decision.num_tests) > LARGE
    draws = {
        "key": jax.random.fold_in(jax.random.key(options.seed), 1),
        "delta": options.delta,
        "num_draws": min(_MAX_DRAWS, math.ceil(_FEW / options.delta) - 1)
        if large
        else max(_DRAWS, math.ceil(1 / options.delta)),
    }
    if options.method == "ptdi" and not evidence.clusters:
        bounds = fdp_bounds(evidence.calibration[0], evidence.candidates[0], null="nonmember", **draws)
        return _from_ranks(bounds, decision, options)
    if options.method == "ktd" and rule.startswith("conformal"):
        own = evidence.calibration[0] - evidence.calibration_knockoffs.mean(axis=1)
        theirs = evidence.candidates[0] - evidence.knockoffs.mean(axis=1)
        bounds = fdp_bounds(own, theirs, null="nonmember", **draws)
        return _from_ranks(bounds, decision, options)
    if options.method == "td4eval" and rule in ("pooled_rank", "split_weights"):
        n, tested = decision.num_calibration, ~np.isnan(decision.p_values)
        rank = np.where(tested, np.rint(np.nan_to_num(decision.p_values, nan=1.0) * (n + 1)), n + 1).astype(np.int64)
        return _from_ranks(fdp_bounds_of_ranks(rank, n, null="member", mask=tested, **draws), decision, options)
    if options.method == "ktd" and evidence.knockoffs.shape[1] == 1 and rule in ("ktd", "multi"):
        return _from_knockoffs(decision, options)
    reasons = {
        "ptdi": "decisions are by cluster, and the bounds are for items that are exchangeable one by one",
        "td4eval": "the law of merged p-values under the null is not known; combine=pooled_rank has bounds",
        "best_score": "the scores were chosen from the data; name one score for bounds",
        "weighted": "the law of the weighted ranks under the null is not known",
        "conditional": "method=ptdi has bounds for the same scores",
        "ktd": "only rule=conformal, and the signs of one knockoff an item (rule=ktd or multi), have bounds",
    }
    known = "the law of the largest of several p-values under the null is not known"
    return Certificate(False, reasons.get(options.method, known), options.delta)


def _from_ranks(bounds: FdpBounds, decision: Decision, options: Options) -> Certificate:
    sizes, false = np.asarray(bounds.num_selected), np.asarray(bounds.false_bound)
    own = bounds.of(decision.selected)
    return Certificate(
        True,
        "",
        options.delta,
        _cuts(decision, int(own.false_bound), sizes, false),
        int(bounds.min_true),
        np.asarray(bounds.item_fdp_bound),
        bounds.guarantee.source,
    )


def _from_knockoffs(decision: Decision, options: Options) -> Certificate:
    bounds = knockoff_fdp_bounds(decision.statistic, delta=options.delta)
    sizes, false = np.asarray(bounds.num_selected), np.asarray(bounds.false_bound)
    chosen = false[decision.selected]
    return Certificate(
        True,
        "",
        options.delta,
        _cuts(decision, int(chosen.max(initial=0)), sizes, false),
        int(bounds.min_true),
        np.where(sizes > 0, np.asarray(bounds.fdp_bound), np.nan),
        bounds.guarantee.source,
    )


def _cuts(decision: Decision, false_in_selection: int, sizes: np.ndarray, false: np.ndarray) -> tuple[Cut, ...]:
    """The selection, and up to four lists of the most extreme candidates, spread over their possible sizes."""
    cuts = [_cut("the selection", decision.num_selected, false_in_selection)]
    possible = dict(zip(sizes.tolist(), false.tolist(), strict=True))
    wanted = {max((size for size in possible if 0 < size <= limit), default=0) for limit in _SIZES}
    wanted = sorted(wanted - {0, decision.num_selected})
    keep = (
        wanted
        if len(wanted) <= _SHOWN
        else [wanted[round(i * (len(wanted) - 1) / (_SHOWN - 1))] for i in range(_SHOWN)]
    )
    return (*cuts, *(_cut(f"the {size} most extreme", size, possible[size]) for size in keep))


def _cut(name: str, size: int, false: int) -> Cut:
    return Cut(name, size, false, false / size if size else 0.0)
