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
from tdd.audit.evidence import Panels
from tdd.procedures.bounds import FdpBounds
from tdd.procedures.fdp_template import LARGE
from tdd.procedures.procedure import Procedure
from tdd.validate.errors import InputError

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


def certify(panels: Panels, procedure: Procedure, decision: Decision, *, delta: float, seed: int) -> Certificate:
    """The simultaneous bounds for a decision, where the procedure has some."""
    if not decision.num_tests:
        return Certificate(False, "no candidate has a score", delta)
    _check_delta(delta, _MAX_DRAWS)
    large = max(decision.num_calibration, decision.num_tests) > LARGE
    num_draws = min(_MAX_DRAWS, math.ceil(_FEW / delta) - 1) if large else max(_DRAWS, math.ceil(1 / delta))
    key = jax.random.fold_in(jax.random.key(seed), 1)
    found = procedure.bounds(panels.evidence(procedure), decision.selection, delta=delta, key=key, num_draws=num_draws)
    if isinstance(found, str):
        return Certificate(False, found, delta)
    sizes, false = np.asarray(found.num_selected), np.asarray(found.false_bound)
    if isinstance(found, FdpBounds):
        in_selection, of_items = int(found.of(decision.selected).false_bound), np.asarray(found.item_fdp_bound)
    else:
        in_selection = int(false[decision.selected].max(initial=0))
        of_items = np.where(sizes > 0, np.asarray(found.fdp_bound), np.nan)
    cuts = _cuts(decision, in_selection, sizes, false)
    return Certificate(True, "", delta, cuts, int(found.min_true), of_items, found.guarantee.source)


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


def _check_delta(delta: float, max_draws: int) -> None:
    """A level of the simultaneous bounds that Monte Carlo draws can resolve."""
    if delta * (max_draws + 1) < 1:
        raise InputError(f"delta={delta!r} is too small for {max_draws} draws: give at least {1 / (max_draws + 1):g}")
