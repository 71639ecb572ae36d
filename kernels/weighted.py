"""Weighted conformal p-values and weighted conformal selection, for a calibration sample drawn from another law.

With weights w = dQ/dP, the density of null candidates over that of calibration items, known up to a factor,

    p_j = (sum of w_i over {i: S_i at least as extreme as S_j} + w_j) / (sum of w_i + w_j).

Several of these are not positively dependent, so they are decided by weighted conformal selection: candidate j is
compared with R_j, the number of rejections of BH on the p-values that the other candidates have when j stands in for
the unseen calibration item. Each R_j is two searches in tables of thresholds: among the candidates ordered by
extremity, the k-th smallest auxiliary p-value is decided by w_j alone for k beyond the place of j, and by sum w + w_j
before it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import conformal, lattice, platforms, ranks, stepup

__all__ = ["PRUNES", "WeightedStep", "effective_sample_size", "p_values", "selection"]

PRUNES = ("heterogeneous", "homogeneous", "deterministic")

Null = Literal["nonmember", "member"]


class WeightedStep(NamedTuple):
    """Decisions of weighted conformal selection."""

    selected: jax.Array  # [m] bool, in input order
    # [m] m·p_j/R_j, at most 1; moved above alpha for items that pass their own comparison and are pruned, so that
    # `selected == (adjusted <= alpha)`. R_j belongs to this alpha: not to be compared with another one.
    adjusted: jax.Array
    p_values: jax.Array  # [m] weighted conformal p-values; NaN for masked items
    bh_sizes: jax.Array  # [m] int32, R_j; 0 for masked items
    threshold: jax.Array  # [] the largest selected p-value, 0 where nothing is selected
    num_selected: jax.Array  # [] int32
    num_tests: jax.Array  # [] int32
    num_calibration: jax.Array  # [] int32
    # [] int32, the fewest selections that the weights allow; m + 1 where nothing can be selected
    min_selections: jax.Array


class _Masses(NamedTuple):
    """[m] calibration weight strictly more extreme, and at least as extreme, than each score; [] all of it."""

    more: jax.Array
    at_least: jax.Array
    total: jax.Array


def p_values(
    calibration: jax.Array,
    scores: jax.Array,
    calibration_weights: jax.Array,
    weights: jax.Array,
    *,
    null: Null,
    calibration_mask: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> jax.Array:
    """Weighted conformal p-values; ties count against the item, and unit weights give the plain p-values.

    Guarantee: P(p_j <= t) <= t under the null for every t, if calibration items are independent draws of P, the
    candidate is one of Q and w is proportional to dQ/dP; finite-sample. With estimated weights: approximate.

    Args:
      calibration, calibration_weights, calibration_mask: [n] loss-like scores of items for which the null holds,
        non-negative weights, and bool, True = real item.
      scores, weights, mask: [m] likewise, of the items to test.
      null: "nonmember" (small scores are extreme) or "member".

    Returns: [m] in [0, 1]; NaN for masked items and where a weight is negative or not finite; 1 where all weights are
    0.
    Raises ValueError: unknown `null`.
    Cost: one sort of n, m binary searches.
    References: Tibshirani, Barber, Candes & Ramdas (2019); Jin & Candes (2023), eq. 5.
    """
    calibration, scores = conformal.oriented(calibration, scores, null)
    real, valid = ranks.real(calibration, calibration_mask), ranks.real(scores, mask)
    calibration_weights, weights = _clean(calibration_weights, real, True), _clean(weights, valid, False)
    masses = _masses(calibration, scores, calibration_weights, real)
    return jnp.where(valid, _p(masses, weights), jnp.nan)


def selection(
    calibration: jax.Array,
    scores: jax.Array,
    calibration_weights: jax.Array,
    weights: jax.Array,
    alpha: Any,
    *,
    null: Null,
    prune: Literal["heterogeneous", "homogeneous", "deterministic"],
    key: jax.Array | None = None,
    calibration_mask: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> WeightedStep:
    """Weighted conformal selection.

    For candidate j, p_l^(j) = (sum of w_i over S_i more extreme than S_l + w_j 1{S_j more extreme than S_l}) /
    (sum of w_i + w_j) for l != j and p_j^(j) = 0, "more extreme" strictly; R_j is the number of rejections of BH at
    alpha on them. Kept are the j with p_j <= alpha·R_j/m. With xi_j uniform for each item ("heterogeneous"), one
    uniform for all ("homogeneous") or 1 ("deterministic"), r* = max{r: #{kept j: xi_j R_j <= r} >= r}; selected are
    the kept j with xi_j R_j <= r*.

    Guarantee: FDR <= alpha, if for every null candidate j, given the other candidates, calibration items and j are
    independent, from P and Q with dQ/dP proportional to w; finite-sample. With estimated weights: approximate.

    Arguments as `p_values`, and

    Args:
      alpha: Level in (0, 1); comparisons with it carry four machine epsilons in favour of equality.
      prune: Rule that prunes ties between the R_j.
      key: PRNG key for "heterogeneous" and "homogeneous".

    Returns: `WeightedStep`. Nothing is selected and `adjusted` is NaN for a traced alpha out of range and for traced
    weights that are negative or not finite.
    Raises ValueError: unknown `null` or `prune`, no `key` where one is needed, static alpha outside (0, 1).
    Cost: O((n + m) log(n + m)) time, O(n + m) memory.
    References: Jin & Candes (2023), algorithm 1; the auxiliary p-value carries w_j, not w_l.
    """
    if prune not in PRUNES:
        raise ValueError(f"prune must be one of {PRUNES}, got {prune!r}")
    if prune != "deterministic" and key is None:
        raise ValueError(f'prune="{prune}" needs key, a PRNG key from jax.random.key')
    level = lattice.as_level(alpha)
    calibration, scores = conformal.oriented(calibration, scores, null)
    real, valid = ranks.real(calibration, calibration_mask), ranks.real(scores, mask)
    calibration_weights, weights = _clean(calibration_weights, real, True), _clean(weights, valid, False)
    sound = ~jnp.isnan(jnp.sum(calibration_weights)) & ~jnp.isnan(jnp.sum(weights))
    dtype = weights.dtype
    critical = _critical(level, dtype)
    m = scores.shape[0]
    num_tests = jnp.sum(valid, dtype=jnp.int32)
    tests = jnp.maximum(num_tests, 1).astype(dtype)

    # In the order of extremity, masked items last.
    index = jnp.arange(m, dtype=jnp.int32)
    ordered, order = jax.lax.sort(
        (jnp.where(valid, scores, ranks.largest(scores.dtype)), jnp.where(valid, index, m + index)), num_keys=2
    )
    tested = order < m
    ordered_weights = jnp.where(tested, weights[jnp.minimum(order, m - 1)] if m else weights, 0)
    masses = _masses(calibration, ordered, calibration_weights, real)
    sizes = _bh_sizes(ordered, ordered_weights, masses, critical, num_tests, tests)
    p = _p(masses, ordered_weights)
    allowed = critical * sizes.astype(dtype) / tests
    passing = tested & sound & (p <= allowed)

    factor = jnp.ones(m, dtype)
    if prune == "heterogeneous":
        assert key is not None
        factor = (1 - jax.random.uniform(key, (m,), dtype))[jnp.minimum(order, m - 1)] if m else factor
    elif prune == "homogeneous":
        assert key is not None
        factor = factor * (1 - jax.random.uniform(key, (), dtype))
    pruned = jnp.where(passing, factor * sizes.astype(dtype), jnp.inf)
    place = jnp.arange(1, m + 1, dtype=jnp.int32)
    count = jnp.max(jnp.where(jnp.sort(pruned) <= place.astype(dtype), place, 0), initial=0)
    chosen = passing & (pruned <= count.astype(dtype))

    adjusted = jnp.minimum(p * tests / jnp.maximum(sizes, 1).astype(dtype), 1)
    adjusted = lattice.settle(chosen, adjusted, level)
    adjusted = jnp.where(sound & ~jnp.isnan(critical), adjusted, jnp.nan)

    floor = jnp.min(
        jnp.where(tested, _ratio(ordered_weights, masses.total + ordered_weights), jnp.inf), initial=jnp.inf
    )
    fewest = stepup.min_rejections(alpha, m, scale=((tests, floor), ()))
    back = jnp.zeros(m, jnp.int32).at[order].set(index, mode="drop", unique_indices=True)
    return WeightedStep(
        valid & chosen[back],
        jnp.where(valid, adjusted[back], jnp.nan),
        jnp.where(valid & sound, p[back], jnp.nan),
        jnp.where(valid, sizes[back], 0),
        jnp.max(jnp.where(chosen, p, 0), initial=0),
        jnp.sum(chosen, dtype=jnp.int32),
        num_tests,
        jnp.sum(real, dtype=jnp.int32),
        fewest if prune == "deterministic" else jnp.where(fewest > m, fewest, 1),
    )


def effective_sample_size(weights: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
    """(sum w)^2 / sum w^2: how many equally weighted items would be as informative; 0 where all weights are 0."""
    weights = _clean(weights, jnp.ones(weights.shape, bool) if mask is None else mask, False)
    largest = jnp.max(weights, initial=0)
    scaled = weights / jnp.where(largest > 0, largest, 1)
    return _ratio(jnp.square(jnp.sum(scaled)), jnp.sum(jnp.square(scaled)), 0)


def _bh_sizes(
    ordered: jax.Array,
    weights: jax.Array,
    masses: _Masses,
    critical: jax.Array,
    num_tests: jax.Array,
    tests: jax.Array,
) -> jax.Array:
    """R_j for candidates in the order of extremity, j taken as the last of its tie group, e_j its place (from 1).

    With A_k the mass strictly more extreme than the k-th candidate, W the total and q = alpha·k/m, the k-th smallest
    auxiliary p-value is (A_k + w_j)/(W + w_j) for k > e_j and A_{k-1}/(W + w_j) for k <= e_j. So k rejections are
    allowed where w_j <= (qW - A_k)/(1 - q), or where A_{k-1}/q <= W + w_j.
    """
    m = ordered.shape[0]
    place = jnp.arange(1, m + 1, dtype=jnp.int32)
    tested = place <= num_tests
    quota = critical * place.astype(weights.dtype) / tests
    beyond = jnp.where(quota < 1, (quota * masses.total - masses.more) / (1 - quota), jnp.inf)
    beyond = platforms.cummax(jnp.where(tested, beyond, -jnp.inf), reverse=True)
    far = jnp.searchsorted(-beyond, -weights, side="right").astype(jnp.int32)
    before = jnp.concatenate([jnp.zeros(1, weights.dtype), masses.more[:-1]])[:m]
    end = jnp.minimum(jnp.searchsorted(ordered, ordered, side="right").astype(jnp.int32), num_tests)
    near = 1 + _last_at_most(before / quota, masses.total + weights, end)
    sizes = jnp.where(masses.total + weights > 0, jnp.where(far > end, far, near), 1)  # without weight all p are 1
    return jnp.where(tested, jnp.maximum(sizes, 1), 0)


def _last_at_most(values: jax.Array, bounds: jax.Array, ends: jax.Array) -> jax.Array:
    """For each query the largest index i < end with values[i] <= bound, -1 where there is none.

    Minima of blocks of 1, 2, 4, ... values: climb from the end until a block holds one, then descend to its last.
    """
    if not values.shape[0]:
        return jnp.full(bounds.shape, -1, jnp.int32)
    depth = (values.shape[0] - 1).bit_length()
    level = jnp.concatenate([values, jnp.full((1 << depth) - values.shape[0], jnp.inf, values.dtype)])
    levels = [level]
    for _ in range(depth):
        levels.append(jnp.min(levels[-1].reshape(-1, 2), axis=1))
    block, found_height = ends - 1, jnp.full(ends.shape, -1, jnp.int32)
    for height, minima in enumerate(levels):
        searching = (found_height < 0) & (block >= 0)
        alone = (block & 1) == 0  # its parent would reach past the end
        hit = searching & alone & (minima[jnp.maximum(block, 0)] <= bounds)
        found_height = jnp.where(hit, height, found_height)
        block = jnp.where(found_height >= 0, block, (block - alone.astype(jnp.int32)) >> 1)
    for height in range(depth - 1, -1, -1):
        last = 2 * block + 1
        inside = found_height > height
        child = jnp.where(levels[height][jnp.where(inside, last, 0)] <= bounds, last, last - 1)
        block = jnp.where(inside, child, block)
    return jnp.where(found_height >= 0, block, -1)


def _masses(calibration: jax.Array, scores: jax.Array, weights: jax.Array, real: jax.Array) -> _Masses:
    """Sums from the extreme end, so that a small sum keeps its digits."""
    keys, _ = ranks.order_keys(calibration, real)
    queries, _ = ranks.order_keys(scores)
    ordered, size = jnp.sort(keys), keys.shape[0]
    is_last = jnp.concatenate([ordered[1:] != ordered[:-1], jnp.ones(min(size, 1), bool)])
    after = platforms.cummin(jnp.where(is_last, jnp.arange(1, size + 1, dtype=jnp.int32), size), reverse=True)
    # Equal scores share their places by chance: one place for all would add one weight after the other, with an error
    # that grows with their number.
    start = jnp.searchsorted(ordered, keys)
    chance = (jnp.arange(size, dtype=jnp.uint32) * jnp.uint32(0x9E3779B1) >> 8).astype(jnp.float32) / 2**24
    last = after[start] - 1
    slot = jnp.minimum(start + (chance * (last - start + 1).astype(chance.dtype)).astype(start.dtype), last)
    sums = jnp.concatenate([jnp.zeros(1, weights.dtype), jnp.cumsum(jnp.zeros_like(weights).at[slot].add(weights))])
    place = jnp.searchsorted(ordered, queries)
    met = (jnp.pad(ordered, (0, 1))[place] == queries) & (place < size)
    return _Masses(sums[place], sums[jnp.where(met, jnp.pad(after, (0, 1))[place], place)], sums[-1])


def _p(masses: _Masses, weights: jax.Array) -> jax.Array:
    return _ratio(masses.at_least + weights, masses.total + weights)


def _ratio(top: jax.Array, bottom: jax.Array, empty: int = 1) -> jax.Array:
    """top/bottom, `empty` where the bottom is 0."""
    return jnp.where(bottom == 0, empty, top / jnp.where(bottom == 0, 1, bottom)).astype(bottom.dtype)


def _critical(level: lattice.Level, dtype: Any) -> jax.Array:
    """alpha with the tolerance of the comparisons; NaN for a traced level out of range."""
    value = jnp.asarray(level.value)
    tolerance = 4 * max(float(jnp.finfo(dtype).eps), float(jnp.finfo(value.dtype).eps))
    return jnp.where((value > 0) & (value < 1), value * (1 + tolerance), jnp.nan).astype(dtype)


def _clean(weights: jax.Array, real: jax.Array, spread: bool) -> jax.Array:
    """Weights as floats, 0 for masked items, NaN for bad ones (`spread`: for all as soon as one is bad)."""
    weights = jnp.asarray(weights)
    weights = ranks.at_least_single(weights)
    bad = real & ~((weights >= 0) & (weights < jnp.inf))
    return jnp.where(jnp.any(bad) if spread else bad, jnp.nan, jnp.where(real, weights, 0))
