"""E-values: non-negative statistics with mean at most 1 under the null, and the step-up procedure on them.

An average of e-values is an e-value whatever their dependence, so results of several splits, detectors or knockoffs
are averaged and selected from once. `conformal_e_values` turns one BH run on conformal p-values into e-values that
lose nothing: e-BH at the same level gives back the same selection.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import conformal, lattice, stepup

__all__ = ["EStepUp", "average", "conformal_e_values", "e_bh"]


class EStepUp(NamedTuple):
    """Decisions of e-BH.

    Attributes:
      reject: [m] bool, in input order; False for masked items.
      adjusted: [m] the smallest level at which the item is rejected, in [0, 1] (1: at no level below 1), NaN for masked
        items; `reject == (adjusted <= alpha)`.
      threshold: [] the smallest rejected e-value, +inf where nothing is rejected.
      num_rejected: [] int32.
      num_tests: [] int32, m without masked and NaN items.
    """

    reject: jax.Array
    adjusted: jax.Array
    threshold: jax.Array
    num_rejected: jax.Array
    num_tests: jax.Array


def e_bh(e_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> EStepUp:
    """e-BH: k* = max{k: e_(k) >= m/(alpha·k)}, e_(1) the largest; reject e_j >= m/(alpha·k*), nothing if no k is.

    It is BH on 1/e. Equality is decided with a tolerance of four machine epsilons in favour of rejection.

    Guarantee: FDR <= alpha·m0/m under any dependence if every null e-value has mean at most 1, and FDR <= alpha if
    their sum over the nulls has mean at most m; finite-sample.

    Args:
      e_values: [m] non-negative, +inf allowed; NaN and negative values are masked out of m.
      alpha: level in (0, 1); a Python number is a static level, a JAX array may be traced.
      mask: [m] bool, True = real item.

    Returns:
      `EStepUp`; adjusted_j is the minimum of m/(k'·e_(k')) over the k' >= the place of e_j.

    Raises:
      ValueError: static alpha outside (0, 1). A traced one gives no rejections and NaN adjusted values.

    Cost: a few passes over m; `adjusted` sorts.

    References: Wang & Ramdas (2022), definition 1 and theorem 2.
    """
    e_values = e_values.astype(jnp.promote_types(e_values.dtype, jnp.float32))
    step = stepup.bh(jnp.where(e_values >= 0, 1 / e_values, jnp.nan), alpha, mask=mask)
    threshold = jnp.min(jnp.where(step.reject, e_values, jnp.inf), initial=jnp.inf)
    return EStepUp(step.reject, step.adjusted, threshold, step.num_rejected, step.num_tests)


def conformal_e_values(
    calibration: jax.Array,
    scores: jax.Array,
    alpha: Any,
    *,
    null: Literal["nonmember", "member"],
    calibration_mask: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> jax.Array:
    """Conformal e-values e_j = (n+1)·1{T_j <= s*} / (1 + #{i: T_i <= s*}).

    For `null="nonmember"` s* is the largest score s, of calibration and test together, with
    (m/(n+1))·(1 + #{i: T_i <= s}) / #{j: T_j <= s} <= alpha, or with no calibration score up to it; for "member" every
    inequality between scores is turned round. The search must run over both samples: over test scores alone s* is no
    stopping time, and the mean of a null e-value reaches 1.5. Where the first condition places s*, the items up to it
    are what BH at alpha selects: the decision is that of `stepup.bh_ranks`, exact for a static alpha. Where the second
    does, BH selects nothing, and the items below all calibration scores have e-value n + 1. Either way e-BH at the same
    alpha repeats BH. Averages over detectors or splits need a smaller alpha here than in the e-BH that follows: half of
    it serves well.

    Guarantee: the e-values of the null items sum to at most m0 in expectation if calibration and null test scores are
    exchangeable; finite-sample.

    Args:
      calibration: [n] loss-like scores of items for which the null holds.
      scores: [m] loss-like scores to test.
      alpha: level in (0, 1) that places s*; it costs no validity.
      null: "nonmember" (small scores are extreme) or "member" (large scores are).
      calibration_mask: [n] bool, True = real item; NaN is left out besides.
      mask: [m] bool, likewise.

    Returns:
      [m] e-values; NaN for items that are masked out or NaN, and everywhere for a traced alpha out of range. Ties
      are on one side of s* together.

    Raises:
      ValueError: unknown `null`; static alpha outside (0, 1).

    Cost: O((n + m) log n).

    References: Bashari, Epstein, Romano & Sesia (2023), section 3.1; Ren & Barber (2024) for the smaller level.
    """
    level = lattice.as_level(alpha)
    ranked = conformal.rank(calibration, scores, null=null, calibration_mask=calibration_mask, mask=mask)
    n, bound = ranked.num_calibration, calibration.shape[0] + 1
    step = stepup.bh_ranks(ranked.rank, n, level, max_rank=bound)
    allowed = _allowed_rank(level, step.num_rejected, n, ranked.num_tests, bound)
    reached = 1 + _before(calibration, calibration_mask, null, jnp.minimum(allowed, n + 1), n)
    dtype = jnp.result_type(float)
    beyond = jnp.where(step.num_rejected > 0, step.reject, ranked.valid & (ranked.rank == 1))
    reached = jnp.where(step.num_rejected > 0, reached, 1)
    values = jnp.where(beyond, (n + 1).astype(dtype) / reached.astype(dtype), 0)
    usable = ranked.valid if lattice.is_exact(level) else ranked.valid & (level.value > 0) & (level.value < 1)
    return jnp.where(usable, values, jnp.nan)


def average(e_values: jax.Array) -> jax.Array:
    """The mean of K e-values of each item, which is an e-value whatever their dependence.

    The sum is compensated: it carries one rounding however large K is, so that equalities in `e_bh` survive.

    Guarantee: that of the e-values averaged.

    Args:
      e_values: [K, m] non-negative; K at least 1.

    Returns:
      [m]; NaN where any of an item's e-values is NaN.

    Raises:
      ValueError: K = 0.

    Cost: O(K m).

    References: Vovk & Wang (2021), proposition 3.1; Neumaier (1974) for the sum.
    """
    num_rows = e_values.shape[0]
    if num_rows == 0:
        raise ValueError("e_values has no row to average: its shape must be [K, m] with K at least 1")
    e_values = e_values.astype(jnp.promote_types(e_values.dtype, jnp.float32))

    def add(state: tuple[jax.Array, jax.Array], row: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        total, lost = state
        new = total + row
        error = jnp.where(total >= row, (total - new) + row, (row - new) + total)
        return (new, lost + error), None

    zero = jnp.zeros_like(e_values[0])
    (total, lost), _ = jax.lax.scan(add, (zero, zero), e_values)
    return jnp.where(jnp.isfinite(total), total + lost, total) / num_rows


def _allowed_rank(level: lattice.Level, rejected: jax.Array, n: jax.Array, m: jax.Array, bound: int) -> jax.Array:
    """The largest rank r in 0..bound with r·m <= alpha·rejected·(n + 1)."""
    if lattice.is_exact(level):
        return lattice.floor_ratio((level.numerator, rejected, n + 1), (level.denominator, m), bound)
    dtype = jnp.result_type(float)
    value = level.value.astype(dtype) * (1 + 4 * float(max(jnp.finfo(dtype).eps, jnp.finfo(level.value.dtype).eps)))
    quotient = value * rejected.astype(dtype) * (n + 1).astype(dtype) / jnp.maximum(m, 1).astype(dtype)
    return jnp.where(quotient >= 0, jnp.minimum(jnp.floor(quotient), bound), 0).astype(jnp.int32)


def _before(calibration: jax.Array, mask: jax.Array | None, null: str, place: jax.Array, n: jax.Array) -> jax.Array:
    """How many calibration scores are strictly more extreme than the one at `place` in 1..n; n for place n + 1."""
    if calibration.shape[0] == 0:
        return jnp.zeros_like(n)
    floating = jnp.issubdtype(calibration.dtype, jnp.inexact)
    real = ~jnp.isnan(calibration) if floating else jnp.ones(calibration.shape, bool)
    real = real if mask is None else real & mask
    largest = jnp.inf if floating else jnp.iinfo(calibration.dtype).max
    ordered = jnp.sort(jnp.where(real, calibration, jnp.asarray(largest, calibration.dtype)))
    index = place - 1 if null == "nonmember" else n - place
    edge = ordered[jnp.clip(index, 0, calibration.shape[0] - 1)]
    beyond = calibration < edge if null == "nonmember" else calibration > edge
    return jnp.where(place > n, n, jnp.sum(real & beyond, dtype=jnp.int32))
