"""Joint selections composed of one selection a model, for studies only: neither controls the joint error rate.

An item that one model never saw and another was trained on is a right selection of the first and lands in the union.
The intersection removes such items, but it removes right selections faster than wrong ones: the share of wrong items
among those that remain is not bounded by the level of the single selections. `tdd.jmcs` tests the joint null itself.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import conformal, proportion, stepup

__all__ = ["COMPOSITIONS", "JointMetrics", "composed", "joint_metrics", "selected_by_each"]

COMPOSITIONS = ("union", "intersection")


class JointMetrics(NamedTuple):
    """What a joint selection got right.

    Attributes:
      gcp: [] share of contaminated items among the selected, 0 where nothing is selected.
      power: [] share of the jointly pure items that are selected, 0 where there are none.
    """

    gcp: jax.Array
    power: jax.Array


def selected_by_each(calibration: jax.Array, scores: jax.Array, *, alpha: Any, eta: Any = 0.5) -> jax.Array:
    """Storey-BH for each model alone, null "member": FDR <= alpha for that model, and for that model only.

    Args:
      calibration: [K, n] loss-like scores of known members.
      scores: [K, m] loss-like scores.
      alpha: level in (0, 1).
      eta: share of the calibration scores in the region of presumed members.

    Returns:
      [K, m] bool.
    """
    max_rank = calibration.shape[1] + 1

    def alone(own: jax.Array, tested: jax.Array) -> jax.Array:
        ranked = conformal.rank(own, tested, null="member")
        n = ranked.num_calibration
        estimate = proportion.storey(ranked.rank, ranked.valid, n, max_rank=max_rank, eta=eta)
        scale = (estimate.numerator, estimate.denominator)
        return stepup.bh_ranks(ranked.rank, n, alpha, max_rank=max_rank, scale=scale).reject

    return jax.vmap(alone)(calibration, scores)


def composed(selected: jax.Array, how: Literal["union", "intersection"]) -> jax.Array:
    """[K, m] selections -> [m]: items selected for one model at least, or for every model.

    Raises:
      ValueError: unknown `how`.
    """
    if how not in COMPOSITIONS:
        raise ValueError(f"how must be one of {COMPOSITIONS}, got {how!r}")
    return jnp.any(selected, axis=0) if how == "union" else jnp.all(selected, axis=0)


def joint_metrics(selected: jax.Array, contaminated: jax.Array) -> JointMetrics:
    """Global contamination proportion and power of a joint selection.

    Args:
      selected: [m] bool.
      contaminated: [m] bool, members of at least one model.

    References: JECS, eq. 7-8.
    """
    false = jnp.sum(selected & contaminated)
    true = jnp.sum(selected & ~contaminated)
    return JointMetrics(false / jnp.maximum(false + true, 1), true / jnp.maximum(jnp.sum(~contaminated), 1))
