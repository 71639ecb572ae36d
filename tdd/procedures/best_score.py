"""Selection by the best of several scores, which is chosen from the same data, with FDR control."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import conformal, evalues, stepup
from tdd.procedures.calls import level_operand, ordered_panels
from tdd.procedures.evalues import drawn_uniform
from tdd.procedures.procedure import Procedure, check_options, masks
from tdd.records import CombinedSelection, Evidence, Guarantee, Null, Selection
from tdd.validate import arrays

__all__ = [
    "GUARANTEES",
    "GUARANTEE_ROWS",
    "BestScore",
    "best_score",
    "choose",
    "num_rejections",
    "weights_of_detectors",
]

GUARANTEES: dict[str, Guarantee] = {
    "best_score": Guarantee.finite_sample(
        "FDR <= alpha * m0/m",
        (
            "the null holds for the calibration items",
            "given the other candidates, the vectors of K scores of a null candidate and of the calibration items are "
            "exchangeable",
            "the K scores, alpha and every other option were chosen before any result was seen",
        ),
        "tdd.kernels.evalues.unit_e_values, after Bai & Jin (2024) and Bashari et al. (2023); Wang & Ramdas (2022)",
        "one",
    ),
}
GUARANTEE_ROWS = [("tdd.best_score", "", GUARANTEES["best_score"])]


def best_score(
    calibration: Any,
    scores: Any,
    *,
    alpha: Any,
    null: Null = "nonmember",
    key: jax.Array | None = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> CombinedSelection:
    """Select candidates by the best of K scores, chosen from the same data.

    Trying scores and keeping the one that selects most voids the level of any procedure. Here each candidate is judged
    by the score that selects most of the *others* when the candidate is treated as a calibration item
    (`tdd.kernels.evalues.unit_e_values`; Bai & Jin 2024), and e-BH decides. With K = 1 the selection is that of BH on
    conformal p-values. If several scores are good and items choose different ones, e-BH loses power that `key`
    restores.

    Guarantee: FDR <= alpha·m0/m, finite-sample, whatever the dependence between the scores, if calibration items and
    null candidates are exchangeable given the other candidates. With `key` the same, over its draw too; drawing another
    key because of what the first selected voids it.

    Args:
      calibration: [K, n] loss-like scores (lower = more member-like) of items for which the null holds.
      scores: [K, m] loss-like scores of the candidates.
      alpha: level in (0, 1); may be traced.
      null: "nonmember" (calibrated on known non-members, finds members) or "member" (finds clean items).
      key: PRNG key for randomised e-BH, which selects at least as much; see `tdd.e_bh`.
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      `CombinedSelection`; `weights` are the fractions of the tested candidates that each score judged, `p_values`
      min(1, 1/e). `adjusted` is that of e-BH on the e-values of this alpha and does not decide at other levels. Cost:
      O(K m (n + m)): about 10^8 steps a second on one core.

    Raises:
      InputError: wrong shapes, infinite scores, no calibration items, alpha out of range, unknown `null`.

    >>> known, unknown = [[3.0, 4.0, 5.0, 6.0], [1.0, 9.0, 2.0, 5.0]], [[1.0, 2.0, 7.0], [9.0, 8.0, 7.0]]
    >>> best_score(known, unknown, alpha=0.5).selected.tolist()
    [True, True, False]
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    if key is not None:
        arrays.check_key(key, "randomised e-BH")
    panels = ordered_panels(calibration, scores, calibration_mask, mask)
    return _best_score(*panels, level_operand(alpha), key, null=null)


@functools.partial(jax.jit, static_argnames="null")
def _best_score(calibration, scores, calibration_mask, mask, alpha, key, *, null) -> CombinedSelection:
    e_values, weights = choose(calibration, scores, calibration_mask, mask, alpha, null=null)
    step = evalues.e_bh(e_values, alpha, uniform=None if key is None else drawn_uniform(key))
    n = jnp.sum(calibration_mask, dtype=jnp.int32)
    ranks = jax.vmap(lambda c, s: conformal.rank(c, s, null=null, calibration_mask=calibration_mask, mask=mask).rank)(
        calibration, scores
    )
    return CombinedSelection.from_step(
        step,
        p_values=jnp.minimum(1 / e_values, 1),
        threshold=1 / step.threshold,
        num_calibration=n,
        min_selections=jnp.int32(1)  # randomised e-values have no upper bound
        if key is not None
        else stepup.min_rejections(alpha, scores.shape[1], scale=((step.num_tests,), (n + 1,))),
        method="best_score",
        null=null,
        guarantee=GUARANTEES["best_score"],
        weights=weights,
        num_rejected_alone=num_rejections(ranks, n, alpha, calibration.shape[1] + 1),
    )


def choose(calibration, scores, calibration_mask, mask, alpha, *, null) -> tuple[jax.Array, jax.Array]:
    """Return e-values [m] by the best of K scores, and [K] the fraction of the tested candidates that each judges."""
    (num_scores, n), m = calibration.shape, scores.shape[1]
    units = evalues.unit_e_values(
        calibration,
        scores,
        jnp.arange(n, dtype=jnp.int32),
        jnp.arange(m, dtype=jnp.int32),
        alpha,
        num_units=(n, m),
        null=null,
        calibration_mask=calibration_mask,
        mask=mask,
    )
    judged = jnp.sum((units.score[:, None] == jnp.arange(num_scores)) & mask[:, None], axis=0)
    return units.e_values, judged / jnp.maximum(jnp.sum(mask), 1)


def num_rejections(ranks: jax.Array, n: jax.Array, alpha: Any, max_rank: int) -> jax.Array:
    """Return [K] the number of items that BH at alpha rejects by each row of ranks."""
    return jax.vmap(lambda row: stepup.bh_ranks(row, n, alpha, max_rank=max_rank).num_rejected)(ranks)


@dataclasses.dataclass(frozen=True)
class BestScore(Procedure):
    """`tdd.best_score`.

    Attributes:
      rule: "deterministic", or "randomized": e-BH with randomised e-values, more power.
    """

    name = "best_score"
    no_bounds = "the scores were chosen from the data; name one score for bounds"
    columns = "detectors"

    rule: Literal["deterministic", "randomized"] = "deterministic"

    def __post_init__(self) -> None:
        check_options(self, rule=("deterministic", "randomized"))

    @property
    def guarantee(self) -> Guarantee:  # noqa: D102
        return GUARANTEES["best_score"]

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        key = key if self.rule == "randomized" else None
        return best_score(evidence.calibration, evidence.scores, alpha=alpha, key=key, **masks(evidence))

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        return weights_of_detectors(evidence, selection)


def weights_of_detectors(evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:
    """For the report: the weight of each detector, and how many items it would select alone."""
    assert isinstance(selection, CombinedSelection)
    weights, counts = np.asarray(selection.weights), np.asarray(selection.num_rejected_alone)
    parts = [
        f"{name} {weight:.3g} ({count})" for name, weight, count in zip(evidence.names, weights, counts, strict=True)
    ]
    return [("weight of each detector (what it would select alone)", ", ".join(parts))]
