"""E-values with checked input: conformal e-values, their average over splits or detectors, and e-BH."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import conformal, evalues
from tdd.kernels.evalues import EStepUp
from tdd.procedures.calls import (
    at_common_size,
    in_own_precision,
    key_of,
    level_operand,
    narrowed,
    order_preserving,
)
from tdd.records import Guarantee, Null
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

_SUM = "in expectation, whatever the dependence between them; a mean of at most 1 each suffices"
_CLOSED = "Xu, Solari, Fischer, de Heide, Ramdas & Goeman (2025)"
GUARANTEES: dict[str, Guarantee] = {
    "e_bh": Guarantee.finite_sample(
        "FDR <= alpha",
        (f"the e-values of the true nulls sum to at most m {_SUM}",),
        "Wang & Ramdas (2022), theorem 2; Ren & Barber (2024) for the sum",
    ),
    "closed_e_bh": Guarantee.finite_sample(
        "FDR <= alpha", (f"the e-values of the m0 true nulls sum to at most m0 {_SUM}",), _CLOSED
    ),
    "conformal_e_values": Guarantee.finite_sample(
        "the e-values of the true nulls sum to at most m0 in expectation, and so do averages over splits or detectors",
        (
            "the null holds for the calibration items",
            "in each split and for each detector, given the scores of the other test items, calibration scores and "
            "null test scores are exchangeable",
            "the scores, alpha and every other option were chosen before any result was seen",
        ),
        "Bashari et al. (2023), theorem 3.1",
    ),
}
GUARANTEE_ROWS = [(f"tdd.{name}", "", guarantee) for name, guarantee in GUARANTEES.items()]


@in_own_settings()
def e_bh(e_values: Any, alpha: Any, *, mask: Any = None, key: jax.Array | None = None) -> EStepUp:
    """e-BH on checked e-values: k* = max{k: e_(k) >= m/(alpha·k)}, reject e_j >= m/(alpha·k*), nothing if no k
    qualifies.

    Guarantee: FDR <= alpha under any dependence, finite-sample, if the e-values of the nulls have means of at most 1
    (or sum to at most m in expectation) (Wang & Ramdas 2022). With `key` the same, over its draw too, and never fewer
    rejections (Xu & Ramdas 2023): the key is part of the guarantee. Take a random one for each call, from the operating
    system or a chain of `jax.random.split`; drawing another because of what the first selected voids the guarantee.

    Args:
      e_values: [m] not negative, +inf allowed; NaN is left out of m.
      alpha: level in (0, 1); may be traced. Equality is decided in favour of rejection within four machine epsilons.
      mask: [m] bool, True = real item.
      key: PRNG key for randomised e-BH, which divides the e-values by one uniform number, drawn from the key and a hash
        of the e-values.

    Returns:
      `EStepUp(reject, adjusted, threshold, num_rejected, num_tests)`.

    Raises:
      InputError: a negative e-value, alpha outside (0, 1), wrong shapes, an invalid key.

    >>> e_bh([40.0, 20.0, 10.0, 0.0], 0.1).reject.tolist()
    [True, True, False, False]
    """
    uniform = None
    if key is not None:
        arrays.check_key(key, "randomised e-BH")
        e_values = arrays.as_vector(e_values, "e_values")
        uniform = drawn_uniform(key_of(key, (e_values, mask)))
    return _decided(functools.partial(_e_bh, uniform=uniform), e_values, alpha, mask)


def drawn_uniform(key: jax.Array) -> jax.Array:
    """Draw a uniform [] on (0, 1]."""
    return 1 - jax.random.uniform(key)


@in_own_settings()
def closed_e_bh(e_values: Any, alpha: Any, *, mask: Any = None) -> EStepUp:
    """Closed e-BH on checked e-values: rejects whatever `e_bh` rejects, often more; it needs a stronger assumption.

    It rejects the r largest e-values R, for the largest r such that the mean of e over every set S of hypotheses is at
    least |S and R|/(alpha·r) (Xu, Solari, Fischer, de Heide, Ramdas & Goeman 2025).

    Guarantee: FDR <= alpha under any dependence, finite-sample, if the e-values of the m0 true nulls sum to at most m0
    in expectation. Those of conformal p-values do; those of knockoffs sum to at most the number of all items instead.

    Args:
      e_values: [m] not negative, +inf allowed; NaN is left out of m.
      alpha: level in (0, 1); may be traced. Equality is decided in favour of rejection within a few roundings.
      mask: [m] bool, True = real item.

    Raises:
      InputError: as `e_bh`.

    >>> closed_e_bh([60.0, 12.0, 12.0, 0.0], 0.1).reject.tolist(), e_bh([60.0, 12.0, 12.0, 0.0], 0.1).reject.tolist()
    ([True, True, True, False], [True, False, False, False])

    Cost: O(m^2 log m).
    """
    return _decided(_closed_e_bh, e_values, alpha, mask)


def _decided(procedure: Any, e_values: Any, alpha: Any, mask: Any) -> EStepUp:
    """Run the procedure in the precision of its input and return the result in JAX's own."""
    e_values = arrays.as_vector(e_values, "e_values")
    arrays.check_e_values(e_values)
    mask = arrays.as_mask(mask, e_values, "mask")

    def run(samples: list[Any]) -> EStepUp:
        level, coarse = level_operand(alpha), procedure is not _closed_e_bh  # whose cost is the square of a length
        return at_common_size(lambda e, real: procedure(e, level, mask=real), *samples, mask, alpha, coarse=coarse)

    return narrowed(in_own_precision(run, (e_values,), alpha, mask), alpha)


_e_bh = jax.jit(evalues.e_bh)
_closed_e_bh = jax.jit(evalues.closed_e_bh)


@in_own_settings()
def conformal_e_values(
    calibration: Any,
    scores: Any,
    *,
    alpha: Any,
    null: Null,
    calibration_mask: Any = None,
    mask: Any = None,
) -> jax.Array:
    """Conformal e-values, for one split or averaged over several splits or detectors.

    e_j = (n+1)·1{T_j <= s*} / (1 + #{i: T_i <= s*}) for null="nonmember", the reverse for "member"; s* is the cut of BH
    at alpha, or the largest score below all calibration scores if BH selects nothing (Bashari, Epstein, Romano & Sesia
    2023). From one split, `e_bh` at the same alpha selects what BH selects. For an average over several, take half of
    the level of the e-BH that follows (Ren & Barber 2024); any level is valid.

    Guarantee: the e-values of the null items sum to at most m0 in expectation if, in each split and for each detector,
    calibration and null test scores are exchangeable; finite-sample, whatever the dependence between splits.

    Args:
      calibration: [n] loss-like scores of items for which the null holds, or [K, n], a row for each split or detector
        (shorter rows are padded with NaN).
      scores: [m] loss-like scores to test, or [K, m]; [m] with [K, n] tests the same scores in each split.
      alpha: level in (0, 1) that places s*; may be traced.
      null: "nonmember" (calibrated on known non-members, small scores are evidence) or "member".
      calibration_mask: [n] or [K, n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      [m] e-values; NaN if the item is masked out or has a NaN in any row. Cost: O(K (n + m) log n).

    Raises:
      InputError: wrong shapes, infinite scores, a row without calibration items, unknown `null`, alpha out of range.

    >>> e = conformal_e_values([3.0, 4.0, 5.0], [1.0, 2.0, 6.0], alpha=0.5, null="nonmember")
    >>> e.tolist(), e_bh(e, 0.5).reject.tolist()
    ([4.0, 4.0, 0.0], [True, True, False])
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    calibration, scores = _rows(calibration, "calibration"), _rows(scores, "scores")
    if calibration.ndim < scores.ndim or (scores.ndim == 2 and len(scores) != len(calibration)):
        raise InputError(
            f"calibration has shape {tuple(calibration.shape)} and scores {tuple(scores.shape)}; give [n] and [m], or "
            "one row of calibration scores a split with [m] scores or as many rows of them"
        )
    calibration_mask = arrays.as_mask(calibration_mask, calibration, "calibration_mask")
    if scores.ndim == 1:
        scores = scores[None]
    calibration = calibration[None] if calibration.ndim == 1 else calibration
    mask = arrays.as_mask(mask, scores[0], "mask") if len(scores) else mask
    if len(calibration) == 0:
        raise InputError("calibration has no row: at least one split or detector is needed")
    masks = [None] * len(calibration) if calibration_mask is None else calibration_mask.reshape(calibration.shape)
    ordered = []
    for i, (row, row_mask) in enumerate(zip(calibration, masks, strict=True)):
        name = "calibration" if len(calibration) == 1 else f"calibration[{i}]"
        arrays.check_some(row, row_mask, name, "at least one item for which the null holds is needed")
        samples, sample_masks = order_preserving((row, scores[i if len(scores) > 1 else 0]), (row_mask, mask))
        ordered.append((*samples, *sample_masks))
    stacked = [jnp.stack(parts) for parts in zip(*ordered, strict=True)]
    return _conformal(*stacked, level_operand(alpha), null=null)


@functools.partial(jax.jit, static_argnames="null")
def _conformal(calibration, scores, calibration_mask, mask, alpha, *, null) -> jax.Array:
    by_row = jax.vmap(
        lambda c, s, c_mask, s_mask: evalues.conformal_e_values(
            c, s, alpha, null=null, calibration_mask=c_mask, mask=s_mask
        )
    )(calibration, scores, calibration_mask, mask)
    return evalues.average(by_row)


def average_e_values(e_values: Any) -> jax.Array:
    """Average K e-values of each item; the mean is an e-value whatever their dependence (Vovk & Wang 2021, proposition
    3.1).

    Args:
      e_values: [K, m] not negative, a row for each split, detector or test; +inf allowed.

    Returns:
      [m]; NaN if any e-value of the item is NaN.

    Raises:
      InputError: a negative e-value, no row, wrong shapes.

    >>> average_e_values([[4.0, 0.0], [2.0, 1.0]]).tolist()
    [3.0, 0.5]
    """
    e_values = arrays.as_matrix(e_values, "e_values", "[splits or detectors, items]")
    arrays.check_e_values(e_values)
    if e_values.shape[0] == 0:
        raise InputError("e_values has no row: at least one split or detector is needed")
    mean = in_own_precision(lambda samples: _average(*samples), (e_values,))
    return jax.device_put(mean.astype(jnp.result_type(float))) if isinstance(mean, np.ndarray) else mean


_average = jax.jit(evalues.average)


def _rows(values: Any, name: str) -> Any:
    """Check numbers [n] or [K, n], finite or NaN."""
    two = arrays.num_axes(values) == 2
    array = arrays.as_matrix(values, name, "[splits or detectors, items]") if two else arrays.as_vector(values, name)
    arrays.check_finite(array, name)
    return array
