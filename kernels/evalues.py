"""E-values: non-negative statistics with mean at most 1 under the null, and the step-up procedure on them.

An average of e-values is an e-value whatever their dependence, so results of several splits, detectors or knockoffs
are averaged and selected from once. `conformal_e_values` turns one BH run on conformal p-values into e-values that
lose nothing: e-BH at the same level gives back the same selection.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import conformal, lattice, platforms, ranks, stepup, stepup_parts

__all__ = ["EStepUp", "UnitEValues", "average", "closed_e_bh", "conformal_e_values", "e_bh", "unit_e_values"]


class EStepUp(NamedTuple):
    """Decisions of e-BH."""

    reject: jax.Array  # [m] bool, in input order; False for masked items
    # [m] the smallest level at which the item is rejected, in [0, 1] (1: at no level below 1), NaN for masked items;
    # `reject == (adjusted <= alpha)`
    adjusted: jax.Array
    threshold: jax.Array  # [] the smallest rejected e-value, +inf where nothing is rejected
    num_rejected: jax.Array  # [] int32
    num_tests: jax.Array  # [] int32, m without masked and NaN items


class UnitEValues(NamedTuple):
    """E-values of items that belong to units."""

    e_values: jax.Array  # [m]; NaN for masked items
    score: jax.Array  # [M] int32, the row of scores that each unit is judged by
    num_calibration: jax.Array  # [] int32, calibration units C with a real item
    num_units: jax.Array  # [] int32, test units M with a real item


def e_bh(
    e_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None, uniform: jax.Array | None = None
) -> EStepUp:
    """e-BH: k* = max{k: e_(k) >= m/(alpha·k)}, e_(1) the largest; reject e_j >= m/(alpha·k*), nothing if no k is.

    It is BH on 1/e, with its tolerance. With `uniform`, one U for all items, it runs on e/U, which rejects at least as
    much.

    Guarantee: FDR <= alpha·m0/m under any dependence if every null e-value has mean at most 1, and FDR <= alpha if
    their sum over the nulls has mean at most m; finite-sample. With U uniform on (0, 1] and independent of the
    e-values, drawn once, the same. Proof: given the e-values, the number R(u) of rejections falls in u, and j is
    rejected up to some u_j <= c_j·R(u_j-), c_j = alpha·e_j/m. There 1/R(u) <= 1/R(u_j-), so the expected contribution
    of j to the FDP is at most u_j/R(u_j-) <= c_j; the nulls' c_j sum to alpha·m0/m.

    Args:
      e_values, mask: [m] non-negative, +inf allowed, NaN and negative values masked out of m; bool, True = real item.
      alpha: Level in (0, 1); a Python number is a static level, a JAX array may be traced.
      uniform: [] U in (0, 1], or None.

    Raises ValueError: static alpha outside (0, 1). A traced one gives no rejections and NaN adjusted values.
    Cost: a few passes over m; `adjusted` sorts.
    References: Wang & Ramdas (2022), definition 1 and theorem 2; Xu & Ramdas (2023) for the randomisation.
    """
    e_values = ranks.at_least_single(e_values)
    inverse = jnp.where(e_values >= 0, 1 / e_values, jnp.nan)
    if uniform is not None:
        inverse = jnp.where(jnp.isinf(inverse), inverse, inverse * uniform.astype(inverse.dtype))
    step = stepup.bh(inverse, alpha, mask=mask)
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
    inequality between scores is turned round. (Over test scores alone s* is no stopping time, and the mean of a null
    e-value reaches 1.5.) Where the first condition places s*, the items up to it are what BH at alpha selects, by
    `stepup.bh_ranks`, exact for a static alpha. Where the second does, BH selects nothing, and the items below all
    calibration scores have e-value n + 1. Either way e-BH at the same alpha repeats BH. Before an average over
    detectors or splits take half the alpha of the e-BH that follows.

    Guarantee: the e-values of the null items sum to at most m0 in expectation if calibration and null test scores are
    exchangeable; finite-sample.

    `alpha` in (0, 1) places s*; it costs no validity. Other arguments as `conformal.rank`.

    Returns: [m] e-values; NaN for items that are masked out or NaN, and everywhere for a traced alpha out of range.
    Ties are on one side of s* together.
    Raises ValueError: unknown `null`; static alpha outside (0, 1).
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
    return jnp.where(ranked.valid & lattice.in_range(level), values, jnp.nan)


def average(e_values: jax.Array) -> jax.Array:
    """The mean of K e-values of each item, [K, m] -> [m]: an e-value whatever their dependence; NaN where any is NaN.

    The sum is compensated: it carries one rounding however large K is, so that equalities in `e_bh` survive.

    Raises ValueError: K = 0.
    References: Vovk & Wang (2021), proposition 3.1; Neumaier (1974) for the sum.
    """
    num_rows = e_values.shape[0]
    if num_rows == 0:
        raise ValueError("e_values has no row to average: its shape must be [K, m] with K at least 1")
    e_values = ranks.at_least_single(e_values)

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
        points = lattice.narrow(n + 1, bound)
        return lattice.floor_ratio((level.numerator, rejected, points), (level.denominator, m), bound)
    dtype = jnp.result_type(float)
    allowed = stepup_parts.critical(level, dtype) * rejected.astype(dtype)
    quotient = allowed * (n + 1).astype(dtype) / jnp.maximum(m, 1).astype(dtype)
    return jnp.where(quotient >= 0, jnp.minimum(jnp.floor(quotient), bound), 0).astype(jnp.int32)


def _before(calibration: jax.Array, mask: jax.Array | None, null: str, place: jax.Array, n: jax.Array) -> jax.Array:
    """Number of calibration scores strictly more extreme than the one at `place` in 1..n; n for place n + 1."""
    if calibration.shape[0] == 0:
        return jnp.zeros_like(n)
    real = ranks.real(calibration, mask)
    ordered = jnp.sort(jnp.where(real, calibration, ranks.largest(calibration.dtype)))
    index = place - 1 if null == "nonmember" else n - place
    edge = ordered[jnp.clip(index, 0, calibration.shape[0] - 1)]
    beyond = calibration < edge if null == "nonmember" else calibration > edge
    return jnp.where(place > n, n, jnp.sum(real & beyond, dtype=jnp.int32))


def closed_e_bh(e_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> EStepUp:
    """Closed e-BH: the largest r such that the r largest e-values pass, against every set S of hypotheses, the test
    mean of e over S >= |S and R| / (alpha·r), R the r largest.

    An r that would part equal e-values is left out: a set that passes says nothing of its subsets. It rejects what e-BH
    rejects and often more: where many e-values are small but not zero, or a few are large.

    Guarantee: FDR <= alpha under any dependence if the e-values of the m0 nulls sum to at most m0 in expectation, as
    they do if each has mean at most 1; finite-sample.

    Arguments and errors as `e_bh`. Equality is decided in favour of rejection, within a few roundings.

    Cost: O(m^2 log m) time, O(m) memory.
    References: Xu, Solari, Fischer, de Heide, Ramdas & Goeman (2025), "Bringing closure to false discovery rate
    control", theorem 3.
    """
    exact = lattice.as_level(alpha)
    level = jnp.asarray(exact.value)
    values = ranks.at_least_single(e_values)
    dtype, size = values.dtype, values.shape[0]
    valid = values >= 0 if mask is None else mask & (values >= 0)
    m = jnp.sum(valid, dtype=jnp.int32)
    most = m.astype(dtype) * jnp.finfo(dtype).max ** 0.25  # finite, and beyond any level's need
    ascending = jnp.sort(jnp.where(valid, jnp.minimum(values, most), jnp.inf))
    number = jnp.arange(1, size + 1, dtype=jnp.int32)
    low = jnp.concatenate([jnp.zeros(1, dtype), jnp.cumsum(jnp.where(number <= m, ascending, 0))])

    def smallest_level(r: jax.Array) -> jax.Array:
        """The level from which the r largest pass: max over a of a / (r·least mean of sets with a of them)."""
        inside = low[jnp.minimum(m - r + number, m)] - low[jnp.maximum(m - r, 0)]

        def mean(b: jax.Array) -> jax.Array:
            return (inside + low[b]) / (number + b).astype(dtype)

        def halve(_: Any, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            left, right = ends  # the b smallest others lower the mean as long as the next one is below it
            b = (left + right) // 2
            on = (b < m - r) & (ascending[jnp.minimum(b, size - 1)] < mean(b))
            return jnp.where(on, b + 1, left), jnp.where(on, right, b)

        start = jnp.zeros(size, jnp.int32), jnp.broadcast_to(jnp.maximum(m - r, 0), (size,)).astype(jnp.int32)
        b, _ = jax.lax.fori_loop(0, max(size, 1).bit_length() + 1, halve, start)
        needed = number.astype(dtype) / (r.astype(dtype) * mean(b))
        return jnp.max(jnp.where(number <= r, needed, 0), initial=0)

    least = jax.lax.map(smallest_level, number, batch_size=16) if size else jnp.zeros(0, dtype)
    splits = (number < m) & (ascending[jnp.maximum(m - number, 0)] == ascending[jnp.maximum(m - number - 1, 0)])
    least = jnp.where((number <= m) & ~splits, least, jnp.inf)
    adjusted = jnp.minimum(platforms.cummin(least, reverse=True), 1)
    below = jnp.searchsorted(ascending, jnp.minimum(values, most), side="left")
    place = jnp.clip(m - below, 1, max(size, 1)) - 1  # of the last of those that tie, the largest first
    tolerance = 1 + 64 * float(jnp.finfo(dtype).eps)
    passed = jnp.where(valid, adjusted[place] if size else adjusted, jnp.nan)
    passed = jnp.where((level > 0) & (level < 1), passed, jnp.nan)
    reject = passed <= level.astype(dtype) * tolerance
    passed = lattice.settle(reject, passed, exact)
    threshold = jnp.min(jnp.where(reject, values, jnp.inf), initial=jnp.inf)
    return EStepUp(reject, passed, threshold, jnp.sum(reject, dtype=jnp.int32), m)


def unit_e_values(
    calibration: jax.Array,
    scores: jax.Array,
    calibration_units: jax.Array,
    units: jax.Array,
    alpha: Any,
    *,
    num_units: tuple[int, int],
    null: Literal["nonmember", "member"],
    calibration_mask: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> UnitEValues:
    """E-values of items in units (clusters, or each item by itself), by the best of K scores, chosen for each unit.

    With a(s) the calibration items up to s, r(s) the test items, and n_u(s) those of unit u: for u the score k and the
    largest s with (M/(C+1))·(a(s) + n_u(s)) <= alpha·(r(s) - n_u(s) + 1) are taken for which r - n_u, the other items
    up to s, are most. Its items up to s have e = (m/M)·(C+1)/(a(s) + n_u(s)), all others 0.

    Guarantee: e-BH on them selects so that the expected fraction of items of null units among the selected is at most
    alpha·M0/M (M0 null units), if for each null unit u, given the other test units, u and the C calibration units are
    exchangeable, their sizes and all K scores included; finite-sample, whatever the dependence within units and between
    the scores. Proof: k and s are functions of the other test units and of the C + 1 units without their order. Given
    those, n_u/(a + n_u) is the fraction of one of C + 1 exchangeable units, of mean 1/(C + 1) or 0, so the e-values of
    u sum to at most m/M in expectation of e/m, and e-BH has FDR <= alpha·(sum over null units of sum_j E e_j/m).

    Args:
      calibration, calibration_units, calibration_mask: [K, n] loss-like scores of items of null units, [n] int32 units
        in 0..C-1, and [n] bool, True = real item; an item with a NaN in any row is left out besides.
      scores, units, mask: [K, m] loss-like scores to test, [m] int32 units in 0..M-1, and [m] bool.
      alpha: Level in (0, 1) that places s; it costs no validity.
      num_units: Static upper bounds of C and M.
      null: "nonmember" (small scores are extreme) or "member".

    Raises ValueError: unknown `null`.
    Cost: O(K (n + m)) for each of the M units.
    References: Bashari, Epstein, Romano & Sesia (2023) for one score and units of one item; Lee, Barber & Willett
    (2023) for exchangeable clusters; Bai & Jin (2024), "Optimized conformal selection", for the choice of the score.
    """
    if null not in conformal.NULLS:
        raise ValueError(f"null must be one of {conformal.NULLS}, got {null!r}")
    n, m = calibration.shape[1], scores.shape[1]
    calibrates, tested = (ranks.real_columns(x, real) for x, real in ((calibration, calibration_mask), (scores, mask)))
    pooled = jnp.concatenate([calibration, scores], axis=1)
    if jnp.issubdtype(pooled.dtype, jnp.integer):
        last, turned = jnp.iinfo(pooled.dtype).max, ~pooled  # no float holds all integers
    else:
        pooled = ranks.at_least_single(pooled)
        last, turned = jnp.inf, -pooled
    pooled = jnp.where(jnp.concatenate([calibrates, tested]), pooled if null == "nonmember" else turned, last)
    unit = jnp.concatenate([jnp.full(n, -1, jnp.int32), units.astype(jnp.int32)])
    order = jnp.argsort(pooled, axis=1)
    ordered = jnp.take_along_axis(pooled, order, axis=1)
    closes = jnp.concatenate([ordered[:, 1:] != ordered[:, :-1], jnp.ones((len(ordered), 1), bool)], axis=1)
    closes = closes & (ordered < last)  # the last of those that tie
    real, belongs = jnp.concatenate([calibrates, tested])[order], unit[order]
    known = jnp.cumsum(real & (belongs < 0), axis=1, dtype=jnp.int32)
    num_below = jnp.cumsum(real & (belongs >= 0), axis=1, dtype=jnp.int32)
    has = [
        jax.ops.segment_max(is_real.astype(jnp.int32), which, size) > 0
        for is_real, which, size in zip((calibrates, tested), (calibration_units, units), num_units, strict=True)
    ]
    num_known, num_tested = (jnp.sum(some, dtype=jnp.int32) for some in has)
    dtype, level = jnp.result_type(float), lattice.as_level(alpha)
    weight = num_tested.astype(dtype) / (num_known + 1).astype(dtype)
    allowed = jax.vmap(lambda reached: _allowed_rank(level, reached, num_known, num_tested, n + m))(
        jnp.arange(m + 2, dtype=jnp.int32)
    )  # the most a + n_u with (M/(C+1))·(a + n_u) <= alpha·reached
    index = jnp.arange(n + m, dtype=jnp.int32)

    def judge(number: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Score, threshold and a + n_u of one unit; 0 where it has no threshold."""
        mine = jnp.cumsum(real & (belongs == number), axis=1, dtype=jnp.int32)
        counted, others = known + mine, num_below - mine
        passes = closes & (counted <= allowed[others + 1])
        place = jnp.max(jnp.where(passes, index, -1), axis=1, initial=-1)
        at = jnp.maximum(place, 0)[:, None]
        gain = jnp.where(place >= 0, jnp.take_along_axis(others, at, axis=1)[:, 0], -1)
        best = jnp.argmax(gain).astype(jnp.int32)
        place = at[best, 0]
        return best, ordered[best, place], jnp.where(gain[best] >= 0, counted[best, place], 0)

    best, cut, counted = jax.lax.map(judge, jnp.arange(num_units[1], dtype=jnp.int32), batch_size=16)
    chosen = pooled[best[units], n + jnp.arange(m)] if m else jnp.zeros(0, pooled.dtype)
    size = jnp.sum(tested).astype(dtype) / (weight * jnp.maximum(counted, 1).astype(dtype))
    e_values = jnp.where((chosen <= cut[units]) & (counted[units] > 0), size[units], 0)
    usable = tested & lattice.in_range(level)
    return UnitEValues(jnp.where(usable, e_values, jnp.nan), best, num_known, num_tested)
