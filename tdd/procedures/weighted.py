"""Candidates drawn from another law than the calibration items, by a known ratio of densities."""

from __future__ import annotations

import functools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import conformal, weighted
from tdd.procedures.calls import level_operand, order_preserving
from tdd.procedures.testing import checked_scores
from tdd.records import Guarantee, Selection, pytree
from tdd.validate import arrays, shift

__all__ = [
    "GUARANTEES",
    "GUARANTEE_ROWS",
    "WeightedSelection",
    "effective_sample_size",
    "weighted_conformal_p_values",
    "weighted_conformal_selection",
]

_KNOWN = (
    "calibration items are independent draws of one law",
    "each null candidate, given the other candidates, is an independent draw of the law with the density ratio that "
    "the weights give, up to one factor",
    "the weights are known; with estimated weights the level holds approximately",
    "the score, alpha and every other option were chosen before any result was seen",
)

GUARANTEES: dict[str, Guarantee] = {
    "p_values": Guarantee(
        "P(p <= t) <= t for every null candidate; not for BH on several of them",
        _KNOWN,
        "finite-sample",
        "Tibshirani et al. (2019), theorem 2; Jin & Candes (2023), eq. 5",
    ),
    **{
        name: Guarantee("FDR <= alpha", _KNOWN, "finite-sample", f"Jin & Candes (2023), theorem 3, {words}", "one")
        for name, words in (
            ("homogeneous", "one uniform for all items"),
            ("heterogeneous", "an independent uniform for each item"),
            ("deterministic", "no randomness"),
        )
    },
}

GUARANTEE_ROWS: list[tuple[str, str, Guarantee]] = [
    ("tdd.weighted_conformal_p_values", "", GUARANTEES["p_values"]),
    *[
        ("tdd.weighted_conformal_selection", f'prune="{name}"', GUARANTEES[name])
        for name in ("homogeneous", "heterogeneous", "deterministic")
    ],
]


@pytree("method", "null", "guarantee")
class WeightedSelection(Selection):
    """A weighted conformal selection.

    `adjusted` is m·p_j/R_j, the level at which the item would pass its own comparison with the R_j of this level, and
    lies above alpha for items that pass and are pruned. `selected == (adjusted <= alpha)` holds at the level of the
    call; the procedure is not monotone in the level, so `adjusted` says nothing of other levels.

    Attributes:
      bh_sizes: [m] int32, R_j, what BH rejects when the item stands in for a calibration item; 0 for masked items.
      effective_sample_size: [] (sum w)^2 / sum w^2 of the calibration weights: of how many equally weighted items the
        calibration sample is worth.
    """

    bh_sizes: jax.Array
    effective_sample_size: jax.Array


def weighted_conformal_p_values(
    calibration: Any,
    scores: Any,
    calibration_weights: Any,
    weights: Any,
    *,
    null: Literal["nonmember", "member"],
    calibration_mask: Any = None,
    mask: Any = None,
) -> jax.Array:
    """p_j = (sum of w_i over calibration scores at least as extreme as T_j + w_j) / (sum of w_i + w_j).

    Ties count against the item; unit weights give `tdd.conformal_p_values`. Only ratios of weights matter.

    Guarantee: P(p_j <= t) <= t under the null for every t, if the weights are the density ratio of null candidates to
    calibration items; finite-sample. Several of these p-values are not positively dependent, which BH needs: decide
    them by `tdd.weighted_conformal_selection`.

    Args:
      calibration: [n] loss-like scores of items for which the null holds.
      scores: [m] loss-like scores to test.
      calibration_weights: [n] weights of the calibration items, not negative, not all zero.
      weights: [m] weights of the candidates, not negative.
      null: "nonmember" (small scores are evidence) or "member" (large scores are).
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      [m] p-values in [0, 1] (0 only for an item of weight 0), NaN where the score is NaN or masked out.

    Raises:
      InputError: bad shapes, an infinite score, no calibration items, bad weights, unknown `null`.

    Cost: O((n + m) log n).

    >>> weighted_conformal_p_values([1.0, 4.0, 6.0], [5.0], [0.5, 0.5, 2.0], [1.0], null="member").tolist()
    [0.75]

    References: Tibshirani, Barber, Candes & Ramdas (2019); Jin & Candes (2023), eq. 5.
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    samples, operands = _checked(calibration, scores, calibration_weights, weights, calibration_mask, mask)
    return _p_values(*samples, *operands, null=null)


def weighted_conformal_selection(
    calibration: Any,
    scores: Any,
    calibration_weights: Any,
    weights: Any,
    *,
    alpha: Any,
    null: Literal["nonmember", "member"],
    prune: Literal["heterogeneous", "homogeneous", "deterministic"] = "homogeneous",
    key: jax.Array | None = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> WeightedSelection:
    """Select candidates under covariate shift, with FDR control; see `tdd.kernels.weighted.selection`.

    Each candidate's weighted conformal p-value is compared with alpha·R_j/m, R_j its own number of rejections of BH
    when it stands in for a calibration item; what passes is pruned until the counts agree.

    Guarantee: FDR <= alpha for known weights, finite-sample; by estimated weights approximate. Every `prune` is valid,
    their power is not alike: of 100 members among 400 candidates "homogeneous" found 36 %, "heterogeneous" 21 % and
    "deterministic" under 1 %, where BH, which has no guarantee here, found 37 %. "homogeneous" keeps or drops the
    passing items nearly as a whole, by one uniform.

    Args:
      calibration: [n] loss-like scores of items for which the null holds.
      scores: [m] loss-like scores of the candidates.
      calibration_weights: [n] weights of the calibration items, not negative, not all zero.
      weights: [m] weights of the candidates, not negative.
      alpha: level in (0, 1); may be traced. Compared with a tolerance of four machine epsilons.
      null: "nonmember" (find members) or "member" (certify clean items).
      prune: what the counts R_j are multiplied with before they are pruned: one uniform for all ("homogeneous"), one
        for each item ("heterogeneous"), or 1 ("deterministic").
      key: PRNG key for the first two.
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      `WeightedSelection`.

    Raises:
      InputError: as `weighted_conformal_p_values`, alpha out of range, unknown `prune`, a missing key.

    Cost: O((n + m) log(n + m)); the auxiliary p-values of the definition, m² of them, are never formed.

    >>> found = weighted_conformal_selection(
    ...     range(9), [-1.0, 9.0], [1.0] * 9, [1.0, 2.0], alpha=0.2, null="nonmember", prune="deterministic")
    >>> found.selected.tolist(), found.bh_sizes.tolist()
    ([True, False], [1, 2])

    References: Jin & Candes (2023), algorithm 1, with w_j (not w_l) in the auxiliary p-value of l.
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    arrays.check_choice(prune, weighted.PRUNES, "prune")
    samples, operands = _checked(calibration, scores, calibration_weights, weights, calibration_mask, mask)
    random = prune != "deterministic"
    if random:
        arrays.check_key(key, f'prune="{prune}"')
    return _selection(*samples, *operands, level_operand(alpha), key if random else None, null=null, prune=prune)


def effective_sample_size(weights: Any) -> jax.Array:
    """(sum w)^2 / sum w^2: of how many equally weighted items a weighted sample is worth.

    Args:
      weights: [n] not negative, not all zero.

    Raises:
      InputError: bad weights.

    >>> float(effective_sample_size([1.0, 1.0, 0.0, 2.0]).round(3))
    2.6670000553131104

    References: Kish (1965).
    """
    weights = arrays.as_vector(weights, "weights")
    arrays.check_weights(weights, "weights", "a weight is a ratio of densities")
    weights, _ = _common_unit(weights, weights)
    return _effective(jnp.asarray(weights, jnp.result_type(float)))


def _checked(
    calibration: Any, scores: Any, calibration_weights: Any, weights: Any, calibration_mask: Any, mask: Any
) -> tuple[Any, Any]:
    """Ordered samples, and (weights, masks) as operands."""
    calibration, scores, calibration_mask, mask = checked_scores(calibration, scores, calibration_mask, mask)
    own = shift.as_item_weights(calibration_weights, calibration, calibration_mask, "calibration_weights", some=True)
    other = shift.as_item_weights(weights, scores, mask, "weights", some=False)
    own, other = _common_unit(own, other)
    samples, masks = order_preserving((calibration, scores), (calibration_mask, mask))
    return samples, (*(jnp.asarray(each, jnp.result_type(float)) for each in (own, other)), *masks)


@functools.partial(jax.jit, static_argnames="null")
def _p_values(calibration, scores, calibration_weights, weights, calibration_mask, mask, *, null) -> jax.Array:
    masks = {"calibration_mask": calibration_mask, "mask": mask}
    return weighted.p_values(calibration, scores, calibration_weights, weights, null=null, **masks)


@functools.partial(jax.jit, static_argnames=("null", "prune"))
def _selection(
    calibration, scores, calibration_weights, weights, calibration_mask, mask, alpha, key, *, null, prune
) -> WeightedSelection:
    masks = {"calibration_mask": calibration_mask, "mask": mask}
    step = weighted.selection(
        calibration, scores, calibration_weights, weights, alpha, null=null, prune=prune, key=key, **masks
    )
    real = calibration_mask
    if jnp.issubdtype(calibration.dtype, jnp.inexact):
        real = real & ~jnp.isnan(calibration)
    return WeightedSelection(
        selected=step.selected,
        p_values=step.p_values,
        adjusted=step.adjusted,
        threshold=step.threshold,
        proportion=jnp.zeros_like(step.threshold),
        num_selected=step.num_selected,
        num_tests=step.num_tests,
        num_calibration=step.num_calibration,
        min_selections=step.min_selections,
        method=f"weighted_conformal_selection/{prune}",
        null=null,
        guarantee=GUARANTEES[prune],
        bh_sizes=step.bh_sizes,
        effective_sample_size=weighted.effective_sample_size(calibration_weights, mask=real),
    )


@jax.jit
def _effective(weights):
    return weighted.effective_sample_size(weights)


def _common_unit(first: Any, second: Any) -> tuple[Any, Any]:
    """Both weights in one unit, in which the largest is about 1; only their ratios matter. By a power of two: exact."""
    if not (isinstance(first, np.ndarray) and isinstance(second, np.ndarray)):
        return first, second
    together = np.concatenate([first, second])
    known = together[np.isfinite(together)]
    exponent = math.frexp(known.max(initial=0.0))[1]
    return np.ldexp(first, -exponent), np.ldexp(second, -exponent)
