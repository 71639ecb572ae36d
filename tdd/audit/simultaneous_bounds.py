"""Bounds for all cuts at once: at most so many of a list are false, at least so many candidates are not null.

The level of a procedure bounds an average over repetitions; these bounds speak of the list at hand, with confidence
1 - delta, and stay true whatever cut is chosen after looking. They exist where the law of the null ranks is known.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from tdd.audit.decide import Choices, Decision
from tdd.procedures.bounds import FdpBounds
from tdd.procedures.fdp_template import LARGE
from tdd.records import Evidence
from tdd.validate.errors import InputError

__all__ = ["Cut", "SimultaneousBounds", "simultaneous_bounds"]

_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
_SHOWN = 4
_DRAWS, _FEW, _MAX_DRAWS = 999, 10, 9_999
"""Draws for the template; for large samples so many that the tenth most extreme one decides: there the error of fewer
draws is below that of the tabulated grid."""


@dataclasses.dataclass(frozen=True)
class Cut:
    """One list of candidates.

    Attributes:
      list: its name.
      size: its length.
      max_false: upper bound of the false ones among them.
      bound: max_false / size, 0 for an empty list.
    """

    list: str
    size: int
    max_false: int
    bound: float

    @classmethod
    def of(cls, name: str, size: int, false: int) -> Cut:
        """The cut with its bound."""
        return cls(name, size, false, false / size if size else 0.0)


@dataclasses.dataclass(frozen=True)
class SimultaneousBounds:
    """Simultaneous bounds, or why there are none.

    Attributes:
      applies: True where bounds are offered for this procedure and these data.
      reason: why there are none, else empty.
      delta: all statements hold together with probability at least 1 - delta.
      cuts: the selection, then the most extreme candidates.
      min_alternatives: lower bound of the candidates whose null is false: members, or clean items.
      item_bound: [m] bound of the list that is cut at each candidate, NaN where there is no cut; [0] without bounds.
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
    num_draws = min(_MAX_DRAWS, math.ceil(_FEW / delta) - 1) if large else max(_DRAWS, math.ceil(1 / delta))
    key = jax.random.fold_in(jax.random.key(choices.seed), 1)
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
    false_by_size = dict(zip(sizes.tolist(), false.tolist(), strict=True))
    largest_within = {max((size for size in false_by_size if 0 < size <= limit), default=0) for limit in _SIZES}
    shown = sorted(largest_within - {0, decision.num_selected})
    if len(shown) > _SHOWN:
        shown = [shown[round(i * (len(shown) - 1) / (_SHOWN - 1))] for i in range(_SHOWN)]
    return (
        Cut.of("the selection", decision.num_selected, false_in_selection),
        *(Cut.of(f"the {size} most extreme", size, false_by_size[size]) for size in shown),
    )
