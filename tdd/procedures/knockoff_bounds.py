"""Simultaneous bounds on the false discovery proportion of knockoffs, for every cut at once."""

from __future__ import annotations

from typing import Any

import jax

from tdd.kernels import knockoff
from tdd.procedures.calls import in_own_precision, level_operand
from tdd.procedures.knockoff_symmetry import PAIRS
from tdd.records import Guarantee, pytree
from tdd.validate import arrays
from tdd.validate.settings import in_own_settings

_GUARANTEE = Guarantee.finite_sample(
    "P(some cut has FDP above its bound) <= delta",
    (
        *PAIRS,
        "W has one knockoff an item, or is symmetric for non-members: given all else their signs are fair coins",
    ),
    "Katsevich & Ramdas (2020), theorem 2",
)

GUARANTEE_ROWS: list[tuple[str, str, Guarantee]] = [("tdd.knockoff_fdp_bounds", "", _GUARANTEE)]


@pytree("method", "guarantee")
class KnockoffFdpBounds:
    """Bounds for the cut {W >= W_j} at each item; all of them hold together with probability >= 1 - delta.

    Attributes:
      num_selected: [m] int32, #{W >= W_j}; 0 if W_j <= 0 or masked, where there is no cut.
      false_bound: [m] int32, upper bound on the nulls among these.
      fdp_bound: [m] false_bound / num_selected; NaN where there is no cut.
      min_true: [] int32, lower bound on the non-nulls among the items.
      method: "knockoffs".
      guarantee: the guarantee and its assumptions.
    """

    num_selected: jax.Array
    false_bound: jax.Array
    fdp_bound: jax.Array
    min_true: jax.Array
    method: str
    guarantee: Guarantee


@in_own_settings()
def knockoff_fdp_bounds(statistic: Any, *, delta: Any = 0.05, mask: Any = None) -> KnockoffFdpBounds:
    """Bounds on the false discovery proportion of {W >= t}, for all t > 0 at once (Katsevich & Ramdas 2020, theorem 2).

    {W >= t} holds at most c·(1 + #{W <= -t}) non-members, c = log(1/delta)/log(2 - delta), and no fewer members than
    any smaller cut.

    Guarantee: as `tdd.kernels.knockoff.fdp_bound`: simultaneous with probability >= 1 - delta, finite-sample, for one
    knockoff an item. The signs of averages over several knockoffs are not fair coins.

    Args:
      statistic: [m] W, large = evidence of membership (`KnockoffSelection.statistic` of rule="ktd" with one knockoff);
        NaN is left out.
      delta: probability in (0, 1) that some bound fails.
      mask: [m] bool, True = real item.

    Raises:
      InputError: infinite statistics, wrong shapes, delta out of range.

    >>> bounds = knockoff_fdp_bounds([5.0, 4.0, 3.0, 2.0, 1.0, -0.5, 6.0, 7.0], delta=0.5)
    >>> bounds.false_bound.tolist(), int(bounds.min_true)
    ([1, 1, 1, 1, 1, 0, 1, 1], 6)
    """
    statistic = arrays.as_vector(statistic, "statistic")
    mask = arrays.as_mask(mask, statistic, "mask")
    arrays.check_finite(statistic, "statistic")

    def run(samples: list[Any]) -> KnockoffFdpBounds:
        return _knockoffs(*samples, level_operand(delta, "delta"), mask)

    return jax.device_put(in_own_precision(run, (statistic,), mask, delta))


@jax.jit
def _knockoffs(statistic, delta, mask) -> KnockoffFdpBounds:
    raw = knockoff.fdp_bound(statistic, delta, mask=mask)
    return KnockoffFdpBounds(*raw, method="knockoffs", guarantee=_GUARANTEE)
