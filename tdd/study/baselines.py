"""Rules that the papers compare their methods with, for studies and rankings of models: none controls an error rate.

A threshold from labelled validation items guarantees nothing for the candidates. A union of one selection a model holds
items that another model was trained on; an intersection removes right selections faster than those, and the fraction of
wrong items that remain is not bounded by the level of the single selections. `tdd.jmcs` tests the joint null itself.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import conformal, proportion, stepup
from tdd.procedures.thresholds import GUARANTEE_ROWS, GUARANTEES, RULES, ThresholdSelection, threshold
from tdd.validate import arrays

__all__ = [
    "COMPOSITIONS",
    "GUARANTEES",
    "GUARANTEE_ROWS",
    "RULES",
    "JointMetrics",
    "ThresholdSelection",
    "auc",
    "composed",
    "joint_metrics",
    "selected_by_each",
    "threshold",
]

COMPOSITIONS = ("union", "intersection")


def auc(evidence: jax.Array, target: jax.Array) -> jax.Array:
    """[] fraction of the pairs of a target and another item in which the target has more evidence, ties one half.

    `evidence` [m] is large for items that look like targets: -score for members, the score for clean items, -p-value;
    NaN is left out. The AUC is NaN where there are no targets or nothing else.
    """
    real = ~jnp.isnan(evidence)
    other = real & ~target
    beaten = jnp.sort(jnp.where(other, evidence, jnp.inf))
    below, upto = (jnp.searchsorted(beaten, evidence, side=side) for side in ("left", "right"))
    count = jnp.sum(other)
    wins = (jnp.minimum(below, count) + jnp.minimum(upto, count)) / 2
    targets = real & target
    return jnp.sum(jnp.where(targets, wins, 0)) / (jnp.sum(targets) * count)


class JointMetrics(NamedTuple):
    """Error and power of a joint selection."""

    gcp: jax.Array  # [] fraction of contaminated items among the selected, 0 without a selection
    power: jax.Array  # [] fraction of the jointly pure items that are selected, 0 without any


def selected_by_each(
    calibration: jax.Array, scores: jax.Array, *, alpha: Any, step: Literal["storey", "bh"] = "storey", eta: Any = 0.5
) -> jax.Array:
    """[K, m] bool: BH or Storey-BH for each model alone, null "member": FDR <= alpha for that model, and for it only.

    `calibration` [K, n] are loss-like scores of known members, `scores` [K, m] those of the candidates; `eta` is the
    fraction of the calibration scores in the region of presumed members, for "storey".

    Differs from the paper: JECS's eq. 5 is BH, and its table 1 has what Storey-BH gives (GCR of the intersection .366,
    .614 and .757 at levels .1, .2 and .3; `python -m benchmarks.jecs_synthetic`: .369, .615 and .756 with Storey-BH,
    .115, .226 and .323 with BH). "storey" is therefore the default, and "bh" is offered.

    Raises:
      InputError: unknown `step`.
    """
    arrays.check_choice(step, ("storey", "bh"), "step")
    max_rank = calibration.shape[1] + 1

    def selected(own: jax.Array, tested: jax.Array) -> jax.Array:
        ranked = conformal.rank(own, tested, null="member")
        n = ranked.num_calibration
        if step == "bh":
            return stepup.bh_ranks(ranked.rank, n, alpha, max_rank=max_rank).reject
        estimate = proportion.storey(ranked.rank, ranked.valid, n, max_rank=max_rank, eta=eta)
        scale = (estimate.numerator, estimate.denominator)
        return stepup.bh_ranks(ranked.rank, n, alpha, max_rank=max_rank, scale=scale).reject

    return jax.vmap(selected)(calibration, scores)


def composed(selected: jax.Array, how: Literal["union", "intersection"]) -> jax.Array:
    """Compose [K, m] selections to [m]: items selected for at least one model, or for every model.

    Raises:
      ValueError: unknown `how`.
    """
    if how not in COMPOSITIONS:
        raise ValueError(f"how must be one of {COMPOSITIONS}, got {how!r}")
    return jnp.any(selected, axis=0) if how == "union" else jnp.all(selected, axis=0)


def joint_metrics(selected: jax.Array, target: jax.Array) -> JointMetrics:
    """Global contamination proportion and power of a joint selection (JECS, eq. 7-8).

    `selected` and `target` are [m] bool; targets are members of no model.
    """
    false = jnp.sum(selected & ~target)
    true = jnp.sum(selected & target)
    return JointMetrics(false / jnp.maximum(false + true, 1), true / jnp.maximum(jnp.sum(target), 1))
