"""E-values with checked input: conformal e-values, their average over splits or detectors, and e-BH."""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import conformal, evalues, lattice
from tdd.kernels.evalues import EStepUp
from tdd.procedures.calls import level_operand, order_preserving
from tdd.procedures.precision import computed
from tdd.records import Guarantee
from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = ["GUARANTEES", "GUARANTEE_ROWS", "average_e_values", "closed_e_bh", "conformal_e_values", "e_bh"]

_ANY = "whatever the dependence between them"
GUARANTEES: dict[str, Guarantee] = {
    "e_bh": Guarantee(
        "FDR <= alpha",
        (f"the e-values of the true nulls sum to at most m in expectation, {_ANY}; each of mean at most 1 will do",),
        "finite-sample",
        "Wang & Ramdas (2022), theorem 2; Ren & Barber (2024) for the sum",
    ),
    "closed_e_bh": Guarantee(
        "FDR <= alpha",
        (
            f"the e-values of the m0 true nulls sum to at most m0 in expectation, {_ANY}; each of mean at most 1 will "
            "do",
        ),
        "finite-sample",
        "Xu, Solari, Fischer, de Heide, Ramdas & Goeman (2025)",
    ),
    "conformal_e_values": Guarantee(
        "the e-values of the true nulls sum to at most m0 in expectation, and so do averages over splits or detectors",
        (
            "the null holds for the calibration items",
            "in each split and for each detector, given the scores of the other test items, calibration scores and "
            "null test scores are exchangeable",
            "the scores, alpha and every other option were chosen before any result was seen",
        ),
        "finite-sample",
        "Bashari et al. (2023), theorem 3.1",
    ),
}
GUARANTEE_ROWS = [(f"tdd.{name}", "", guarantee) for name, guarantee in GUARANTEES.items()]


def e_bh(e_values: Any, alpha: Any, *, mask: Any = None, key: jax.Array | None = None) -> EStepUp:
    """e-BH on checked e-values: k* = max{k: e_(k) >= m/(alpha·k)}, reject e_j >= m/(alpha·k*).

    Guarantee: FDR <= alpha under any dependence, finite-sample, if the e-values of the nulls have means of at most 1
    (or sum to at most m in expectation). With `key` the same, over its draw too, and never fewer rejections; a key that
    is drawn again because of what it selected voids it.

    Args:
      e_values: [m] not negative, +inf allowed; NaN is left out of m.
      alpha: level in (0, 1); may be traced. Equality is decided in favour of rejection within four machine epsilons.
      mask: [m] bool, True = real item.
      key: PRNG key; where one is given, e-values are divided by one uniform number (randomised e-BH).

    Returns:
      `EStepUp(reject, adjusted, threshold, num_rejected, num_tests)`; nothing is rejected where no k qualifies.

    Raises:
      InputError: a negative e-value, alpha outside (0, 1), wrong shapes, a key that is none.

    >>> e_bh([40.0, 20.0, 10.0, 0.0], 0.1).reject.tolist()
    [True, True, False, False]

    References: Wang & Ramdas (2022); Xu & Ramdas (2023) for the randomisation.
    """
    uniform = None
    if key is not None:
        arrays.check_key(key, "randomised e-BH")
        uniform = drawn_uniform(key)
    return _decided(functools.partial(_e_bh, uniform=uniform), e_values, alpha, mask)


def drawn_uniform(key: jax.Array) -> jax.Array:
    """[] uniform on (0, 1]."""
    return 1 - jax.random.uniform(key)


def closed_e_bh(e_values: Any, alpha: Any, *, mask: Any = None) -> EStepUp:
    """Closed e-BH on checked e-values: rejects what `e_bh` rejects at the same guarantee, and often more.

    The largest r such that for every set S of hypotheses the mean of e over S is at least |S and R|/(alpha·r), R the r
    largest e-values.

    Guarantee: FDR <= alpha under any dependence, finite-sample, if the e-values of the m0 true nulls sum to at most m0
    in expectation.

    Args:
      e_values: [m] not negative, +inf allowed; NaN is left out of m.
      alpha: level in (0, 1); may be traced. Equality is decided in favour of rejection within a few roundings.
      mask: [m] bool, True = real item.

    Returns:
      `EStepUp(reject, adjusted, threshold, num_rejected, num_tests)`; nothing is rejected where no r qualifies.

    Raises:
      InputError: a negative e-value, alpha outside (0, 1), wrong shapes.

    Cost: O(m^2 log m): 60 ms for m = 1,000, 5 s for 10,000.

    >>> closed_e_bh([60.0, 12.0, 12.0, 0.0], 0.1).reject.tolist(), e_bh([60.0, 12.0, 12.0, 0.0], 0.1).reject.tolist()
    ([True, True, True, False], [True, False, False, False])

    References: Xu, Solari, Fischer, de Heide, Ramdas & Goeman (2025), "Bringing closure to false discovery rate
    control".
    """
    return _decided(_closed_e_bh, e_values, alpha, mask)


def _decided(procedure: Any, e_values: Any, alpha: Any, mask: Any) -> EStepUp:
    """The procedure in the precision of its input, the result in JAX's own."""
    e_values = _as_e_values(arrays.as_vector(e_values, "e_values"))
    mask = arrays.as_mask(mask, e_values, "mask")
    step = computed(lambda samples: procedure(*samples, level_operand(alpha), mask), (e_values,), alpha, mask)
    if not isinstance(step.adjusted, np.ndarray):
        return step
    level = jax.tree.map(np.asarray, lattice.as_level(alpha))
    adjusted = step.adjusted.astype(np.float32)
    adjusted = np.where(step.reject, np.minimum(adjusted, level.below32), np.maximum(adjusted, level.above32))
    with np.errstate(over="ignore"):  # an e-value can be larger than any single-precision number
        narrow = step._replace(adjusted=adjusted.astype(np.float32), threshold=step.threshold.astype(np.float32))
    return jax.tree.map(jnp.asarray, narrow)


@jax.jit
def _e_bh(e_values, alpha, mask, uniform) -> EStepUp:
    return evalues.e_bh(e_values, alpha, mask=mask, uniform=uniform)


@jax.jit
def _closed_e_bh(e_values, alpha, mask) -> EStepUp:
    return evalues.closed_e_bh(e_values, alpha, mask=mask)


def conformal_e_values(
    calibration: Any,
    scores: Any,
    *,
    alpha: Any,
    null: Literal["nonmember", "member"],
    calibration_mask: Any = None,
    mask: Any = None,
) -> jax.Array:
    """Conformal e-values, for one split or averaged over several splits or detectors.

    e_j = (n+1)·1{T_j <= s*} / (1 + #{i: T_i <= s*}) for null="nonmember", the reverse for "member"; s* is where BH at
    alpha cuts, or, where BH selects nothing, the largest score below all calibration scores. `e_bh` at the same alpha
    gives BH's selection back from one split; for an average over several take half of the level of the e-BH that
    follows, which costs no validity.

    Guarantee: the e-values of the null items sum to at most m0 in expectation if, in each split and for each detector,
    calibration and null test scores are exchangeable; finite-sample, whatever the dependence between splits.

    Args:
      calibration: [n] loss-like scores of items for which the null holds, or [K, n], a row each split or detector (NaN
        fills up shorter rows).
      scores: [m] loss-like scores to test, or [K, m]; [m] with [K, n] tests the same scores in each split.
      alpha: level in (0, 1) that places s*; may be traced.
      null: "nonmember" (calibrated on known non-members, small scores are evidence) or "member".
      calibration_mask: [n] or [K, n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      [m] e-values; NaN where the item is masked out or has a NaN in any row.

    Raises:
      InputError: wrong shapes, infinite scores, a row without calibration items, unknown `null`, alpha out of range.

    Cost: O(K (n + m) log n).

    >>> e = conformal_e_values([3.0, 4.0, 5.0], [1.0, 2.0, 6.0], alpha=0.5, null="nonmember")
    >>> e.tolist(), e_bh(e, 0.5).reject.tolist()
    ([4.0, 4.0, 0.0], [True, True, False])

    References: Bashari, Epstein, Romano & Sesia (2023); Ren & Barber (2024).
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    calibration, scores = _rows(calibration, "calibration"), _rows(scores, "scores")
    if calibration.ndim < scores.ndim or (scores.ndim == 2 and len(scores) != len(calibration)):
        raise InputError(
            f"calibration has shape {tuple(calibration.shape)} and scores {tuple(scores.shape)}; give [n] and [m], or "
            "one row of calibration scores a split with [m] scores or as many rows of them"
        )
    own_mask = arrays.as_mask(calibration_mask, calibration, "calibration_mask")
    if scores.ndim == 1:
        scores = scores[None]
    calibration = calibration[None] if calibration.ndim == 1 else calibration
    mask = arrays.as_mask(mask, scores[0], "mask") if len(scores) else mask
    if len(calibration) == 0:
        raise InputError("calibration has no row: at least one split or detector is needed")
    own_masks = [None] * len(calibration) if own_mask is None else own_mask.reshape(calibration.shape)
    ordered = []
    for i, (own, real) in enumerate(zip(calibration, own_masks, strict=True)):
        name = "calibration" if len(calibration) == 1 else f"calibration[{i}]"
        arrays.check_some(own, real, name, "at least one item for which the null holds is needed")
        test = scores[i if len(scores) > 1 else 0]
        (own, test), (real, test_real) = order_preserving((own, test), (real, mask))
        ordered.append((own, test, real, test_real))
    stacked = [jnp.stack(parts) for parts in zip(*ordered, strict=True)]
    return _conformal(*stacked, level_operand(alpha), null=null)


@functools.partial(jax.jit, static_argnames="null")
def _conformal(calibration, scores, calibration_mask, mask, alpha, *, null) -> jax.Array:
    each = jax.vmap(
        lambda own, test, own_real, real: evalues.conformal_e_values(
            own, test, alpha, null=null, calibration_mask=own_real, mask=real
        )
    )(calibration, scores, calibration_mask, mask)
    return evalues.average(each)


def average_e_values(e_values: Any) -> jax.Array:
    """The mean of K e-values of each item: an e-value whatever their dependence.

    Args:
      e_values: [K, m] not negative, a row each split, detector or test; +inf allowed.

    Returns:
      [m]; NaN where any of the item's is NaN.

    Raises:
      InputError: a negative e-value, no row, wrong shapes.

    >>> average_e_values([[4.0, 0.0], [2.0, 1.0]]).tolist()
    [3.0, 0.5]

    References: Vovk & Wang (2021), proposition 3.1.
    """
    e_values = _as_e_values(arrays.as_matrix(e_values, "e_values", "[splits or detectors, items]"))
    if e_values.shape[0] == 0:
        raise InputError("e_values has no row: at least one split or detector is needed")
    mean = computed(lambda samples: _average(*samples), (e_values,))
    return jnp.asarray(mean, jnp.result_type(float)) if isinstance(mean, np.ndarray) else mean


_average = jax.jit(evalues.average)


def _rows(values: Any, name: str) -> Any:
    """[n] or [K, n] finite numbers or NaN."""
    two = np.ndim(values) == 2
    array = arrays.as_matrix(values, name, "[splits or detectors, items]") if two else arrays.as_vector(values, name)
    arrays.check_finite(array, name)
    return array


def _as_e_values(e_values: Any) -> Any:
    """Not negative, floating."""
    if not isinstance(e_values, Tracer):
        host = np.asarray(e_values)
        bad = np.argwhere(host < 0)
        if len(bad):
            where = tuple(int(i) for i in bad[0])
            raise InputError(
                f"e_values[{', '.join(map(str, where))}] is {float(host[where])!r}; e-values are not negative "
                f"({len(bad)} of {host.size} are)"
            )
    return e_values
