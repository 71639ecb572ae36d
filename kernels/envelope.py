"""The envelope of JECS: an upper bound of the null distribution of the largest of K conformal p-values.

P_j = R_j/(n+1), R_j the largest of the K ranks of item j, is stochastically large under the null (an item that is a
member of one of K models, not of all, has one uniform p-value among K). JECS estimates the null distribution of P from
the right tail, where nulls dominate, and continues it to the left by a line through the origin. Everything it compares
is rational in the integer ranks: the tail, the choice of the grid point and the decision are made between integers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import lattice, stepup
from tdd.kernels.stepup import StepUp

__all__ = ["Anchor", "Envelope", "adaptive_bh", "fit", "identity", "line_scale"]

_FEWEST = 10  # p-values above a grid point that make it a candidate

_Factors = tuple[Any, ...]


class Anchor(NamedTuple):
    """The integers behind the chosen grid point tau = numerator/denominator; the slope is q C (n+1)/(N D + s C (n+1)).

    Attributes:
      limit: [] int32, the largest rank with P <= tau.
      above: [] int32, N = #{P > tau}.
      near: [] int32, C = #{tau < P <= r_(k)}, r_(k) the k-th smallest p-value above tau, k = ceil(sqrt(N)).
      distance: [] int32, D = q (n+1) (r_(k) - tau).
      numerator: [] int32, s.
      denominator: [] int32, q.
    """

    limit: jax.Array
    above: jax.Array
    near: jax.Array
    distance: jax.Array
    numerator: jax.Array
    denominator: jax.Array


class Envelope(NamedTuple):
    """A piecewise distribution function G of the largest p-value under the null.

    G(x) = slope·x for x <= tau, and slope·tau + (1 - slope·tau)·F(x) above, F the empirical distribution of the
    p-values above tau.

    Attributes:
      x: [m] the p-values at which G was evaluated, in input order; NaN for masked items.
      value: [m] G(x), NaN for masked items.
      tau: [] the grid point that was chosen; 0 where no grid point had enough p-values above it.
      slope: [] G(tau)/tau, 1 where none was chosen (G is the identity then).
      grid: [t] the grid of candidate points.
      slopes: [t] the slope at each of them, +inf where it was skipped.
      num_above: [t] int32, p-values above each of them.
      fitted: [] bool, False where no grid point qualified: the selection is that of JMCS then.
      null_proportion: [] (1 + #{P > tau}) / (m (1 - G(tau))), 1 where not fitted.
      anchor: the same envelope in integers, for exact decisions.
    """

    x: jax.Array
    value: jax.Array
    tau: jax.Array
    slope: jax.Array
    grid: jax.Array
    slopes: jax.Array
    num_above: jax.Array
    fitted: jax.Array
    null_proportion: jax.Array
    anchor: Anchor


def identity(rank: jax.Array, num_calibration: Any, *, max_rank: int, mask: jax.Array | None = None) -> Envelope:
    """G(x) = x, the envelope of JMCS, with an empty grid. Arguments as `fit`."""
    valid = rank <= max_rank if mask is None else (rank <= max_rank) & mask
    points = jnp.asarray(num_calibration, jnp.int32) + 1
    dtype, one = jnp.result_type(float), jnp.int32(1)
    x = jnp.where(valid, rank.astype(dtype) / points.astype(dtype), jnp.nan)
    none = jnp.zeros(0, dtype)
    return Envelope(
        x,
        x,
        jnp.zeros((), dtype),
        jnp.ones((), dtype),
        none,
        none,
        none.astype(jnp.int32),
        jnp.asarray(False),
        jnp.ones((), dtype),
        Anchor(points, one, one, one, one, one),
    )


def fit(
    rank: jax.Array, num_calibration: Any, *, max_rank: int, grid: Sequence[Any], mask: jax.Array | None = None
) -> Envelope:
    """Fit the envelope on the ranks of the largest p-values, P_j = R_j/(n+1).

    For every tau of the grid: r = sorted {P_j > tau}, N = |r|, k = ceil(sqrt(N)), boundary density
    h = (#{r <= r_(k)}/N)/(r_(k) - tau) with the whole tie group of r_(k) counted, anchor G(tau) = tau h/(1 + tau h).
    The tau with the smallest slope G(tau)/tau is chosen (the first of equals); N < 10 is skipped.

    Guarantee: G bounds the null distribution of P asymptotically, if that distribution is convex, pure items are rarer
    than nulls just above tau, and n grows faster than sqrt(N), so that the lattice of the p-values is finer than the
    neighbourhood in which the density is measured.

    Args:
      rank: [m] int32 in 1..n+1; values above `max_rank` count as masked out.
      num_calibration: [] n.
      max_rank: static upper bound of n + 1.
      grid: static candidates tau in (0, 1), taken as exact fractions.
      mask: [m] bool, True = real item.

    Returns:
      `Envelope`.

    Raises:
      ValueError: an empty grid, a point outside (0, 1), or a common denominator of the points that reaches
        2^31/max_rank.

    Cost: one histogram of the ranks and one cumulative sum, O(m + n), and a few operations a grid point; no sort.

    References: JECS, section 3.3 (eq. 13-15) and appendix D.1.
    """
    valid = rank <= max_rank if mask is None else (rank <= max_rank) & mask
    tests = jnp.sum(valid, dtype=jnp.int32)
    points = jnp.asarray(num_calibration, jnp.int32) + 1
    at_most = _cumulative(rank, valid, max_rank)
    numerators, common = _common_denominator(grid, max_rank)
    dtype = jnp.result_type(float)

    start, q = jnp.asarray(numerators, jnp.int32), jnp.int32(common)
    limit = start * points // q
    below = at_most[limit]
    above = tests - below
    kth = jnp.searchsorted(at_most, below + _ceil_sqrt(above), side="left").astype(jnp.int32)  # r_(k) (n+1)
    near = at_most[jnp.minimum(kth, max_rank)] - below
    anchors = Anchor(limit, above, near, kth * q - start * points, start, jnp.full_like(start, q))
    qualified = above >= _FEWEST
    slopes = jnp.where(qualified, _slope(anchors, points, dtype), jnp.inf)
    fitted = jnp.any(qualified)
    chosen = _smallest_slope(anchors, qualified, points)
    anchor: Anchor = jax.tree.map(lambda field: field[chosen], anchors)
    anchor = anchor._replace(limit=jnp.where(fitted, anchor.limit, points))

    s = anchor.numerator.astype(dtype)
    tau = jnp.where(fitted, s / q.astype(dtype), 0)
    slope = jnp.where(fitted, _slope(anchor, points, dtype), 1)
    x = rank.astype(dtype) / points.astype(dtype)
    odds = s * anchor.near.astype(dtype) * points.astype(dtype) / anchor.distance.astype(dtype)  # N G/(1 - G) at tau
    size = jnp.maximum(anchor.above, 1).astype(dtype)
    right = (odds + _tail_count(rank, at_most, anchor).astype(dtype)) / (odds + size)
    value = jnp.where(rank <= anchor.limit, slope * x, right)
    pi0 = (1 + size) * (1 + odds / size) / jnp.maximum(tests, 1).astype(dtype)
    return Envelope(
        jnp.where(valid, x, jnp.nan),
        jnp.where(valid, value, jnp.nan),
        tau,
        slope,
        start.astype(dtype) / q.astype(dtype),
        slopes,
        above,
        fitted,
        jnp.where(fitted, pi0, 1),
        anchor,
    )


def line_scale(envelope: Envelope, num_calibration: Any, num_tests: Any) -> tuple[_Factors, _Factors]:
    """rho = pi0·slope·m/(n+1), the scale of `stepup.bh_ranks` on the linear branch, as integer factors.

    Args:
      envelope: as `fit` returned it.
      num_calibration: [] n.
      num_tests: [] m.

    Returns:
      Numerator and denominator factors, (1 + N) q C over N D; m over n + 1 where not fitted.
    """
    anchor, one = envelope.anchor, jnp.int32(1)
    numerator = (1 + anchor.above, anchor.denominator, anchor.near)
    otherwise = (jnp.asarray(num_tests, jnp.int32), one, one)
    denominator = (anchor.above, anchor.distance)
    choose = functools.partial(jnp.where, envelope.fitted)
    return (
        tuple(choose(a, b) for a, b in zip(numerator, otherwise, strict=True)),
        tuple(
            choose(a, b) for a, b in zip(denominator, (jnp.asarray(num_calibration, jnp.int32) + 1, one), strict=True)
        ),
    )


def adaptive_bh(
    rank: jax.Array,
    num_calibration: Any,
    alpha: Any,
    envelope: Envelope,
    *,
    max_rank: int,
    mask: jax.Array | None = None,
) -> StepUp:
    """BH at alpha on pi0·G(P_j), decided between integers.

    On the line pi0·G is a multiple of the rank: `stepup.bh_ranks`. Above it, with L items on the line and c_j items of
    the tail at or below item j, item j passes where (1 + N)(s C (n+1) + c_j D) <= alpha (L + c_j) N D. Both sides are
    linear in c_j and the left one grows faster, so the items that pass are those with c_j up to one cut, and if there
    are any then everything on the line passes too.

    Guarantee: that of the envelope; asymptotic. With an envelope that is not fitted this is BH on P.

    Args:
      rank: [m] int32, the ranks that the envelope was fitted on.
      num_calibration: [] n.
      alpha: level in (0, 1); a static one decides exactly, a traced one with a tolerance of four machine epsilons.
      envelope: as `fit` returned it.
      max_rank: static upper bound of n + 1.
      mask: [m] bool, as for `fit`.

    Returns:
      `StepUp` with `threshold` on the scale of P.

    Raises:
      ValueError: static alpha outside (0, 1). A traced one gives no rejections and NaN adjusted values.

    Cost: O(m) a pass and a scalar bisection; `adjusted` O(m + n).

    References: JECS, eq. 16-17.
    """
    level, anchor, dtype = lattice.as_level(alpha), envelope.anchor, jnp.result_type(float)
    valid = rank <= max_rank if mask is None else (rank <= max_rank) & mask
    tests = jnp.sum(valid, dtype=jnp.int32)
    points = jnp.asarray(num_calibration, jnp.int32) + 1
    on_line = valid & (rank <= anchor.limit)
    step = stepup.bh_ranks(
        rank,
        num_calibration,
        alpha,
        max_rank=max_rank,
        scale=line_scale(envelope, num_calibration, tests),
        mask=on_line,
    )
    count = _tail_count(rank, _cumulative(rank, valid, max_rank), anchor)
    line_count = step.num_tests
    cut = _largest_tail_count(level, anchor, points, line_count, rank.shape[0])
    in_tail = valid & ~on_line & (count <= cut)
    some = jnp.any(in_tail)
    reject = step.reject | in_tail | (on_line & some)

    left, right = _tail_sides(anchor, points, line_count, count, dtype)
    scaled = jnp.where(valid & ~on_line, left / right, jnp.inf)
    adjusted = jnp.where(on_line, jnp.minimum(step.adjusted, jnp.min(scaled, initial=jnp.inf)), scaled)
    single = dtype == jnp.float32
    sides = (level.below32, level.above32) if single else (level.below64, level.above64)
    low, high = (jnp.asarray(side).astype(dtype) for side in sides)
    adjusted = jnp.where(reject, jnp.minimum(adjusted, low), jnp.maximum(jnp.minimum(adjusted, 1), high))
    in_range = lattice.is_exact(level) | ((level.value > 0) & (level.value < 1))
    return StepUp(
        reject,
        jnp.where(valid & in_range, adjusted, jnp.nan),
        jnp.max(jnp.where(reject, rank.astype(dtype) / points.astype(dtype), 0), initial=0),
        jnp.sum(reject, dtype=jnp.int32),
        tests,
        envelope.null_proportion,
    )


def _common_denominator(grid: Sequence[Any], max_rank: int) -> tuple[list[int], int]:
    """The grid as numerators s over one denominator q."""
    if len(grid) == 0:
        raise ValueError("grid is empty; it needs at least one number between 0 and 1")
    levels = []
    for tau in grid:
        try:
            levels.append(lattice.as_level(tau))
        except (ValueError, TypeError) as error:
            raise ValueError(f"grid must hold numbers strictly between 0 and 1, got {tau!r}") from error
        if not lattice.is_exact(levels[-1]):
            raise ValueError("grid must be static: numbers, not JAX arrays")
    fractions = [(int(level.numerator), int(level.denominator)) for level in levels]
    common = math.lcm(*(q for _, q in fractions))
    if common * max_rank >= 2**31:
        raise ValueError(f"grid has the common denominator {common}, too large for {max_rank - 1} calibration items")
    return [s * (common // q) for s, q in fractions], common


def _cumulative(rank: jax.Array, valid: jax.Array, max_rank: int) -> jax.Array:
    """#{ranks <= r} for r = 0..max_rank."""
    slots = jnp.where(valid, rank, max_rank + 1)
    return jnp.cumsum(jnp.zeros(max_rank + 2, jnp.int32).at[slots].add(1))[:-1]


def _tail_count(rank: jax.Array, at_most: jax.Array, anchor: Anchor) -> jax.Array:
    """[m] items above tau with at most this rank; meaningless (not positive) on the line."""
    last = at_most.shape[0] - 1
    return at_most[jnp.minimum(rank, last)] - at_most[jnp.minimum(anchor.limit, last)]


def _ceil_sqrt(count: jax.Array) -> jax.Array:
    """The smallest integer whose square is at least `count`, exactly."""
    root = jnp.floor(jnp.sqrt(count.astype(jnp.float32))).astype(jnp.int32)
    root = jnp.maximum(root - 1, 0)  # below the answer by at most three, whatever the rounding
    for _ in range(3):
        root = jnp.where(root * root < count, root + 1, root)
    return root


def _slope(anchor: Anchor, points: jax.Array, dtype: Any) -> jax.Array:
    above, near, distance, numerator, denominator = (field.astype(dtype) for field in anchor[1:])
    weighted = near * points.astype(dtype)
    return denominator * weighted / (above * distance + numerator * weighted)


def _smallest_slope(anchors: Anchor, qualified: jax.Array, points: jax.Array) -> jax.Array:
    """Index of the smallest slope among the qualified, the first of equals: q/slope = s + N D/(C (n+1)), exactly."""

    fields = (anchors.numerator, anchors.above, anchors.near, anchors.distance)
    s, above, near, distance = (field[:, None] for field in fields)
    other_s, other_above, other_near, other_distance = (field[None, :] for field in fields)
    smaller = _sum_le(
        ((other_s, points, other_near, near), (other_above, other_distance, near)),
        ((s, points, near, other_near), (above, distance, other_near)),
    )
    wins = qualified & jnp.all(smaller | ~qualified[None, :], axis=1)
    return jnp.argmax(wins)


def _tail_sides(anchor: Anchor, points: jax.Array, line_count: jax.Array, count: jax.Array, dtype: Any) -> Any:
    """(1 + N)(s C (n+1)/D + c) and N (L + c) in floating point."""
    above, near, distance, numerator, _ = (field.astype(dtype) for field in anchor[1:])
    start = numerator * near * points.astype(dtype) / distance
    return (1 + above) * (start + count.astype(dtype)), above * (line_count + count).astype(dtype)


def _largest_tail_count(
    level: lattice.Level, anchor: Anchor, points: jax.Array, line_count: jax.Array, size: int
) -> jax.Array:
    """The largest c in 1..N that passes, 0 where none does."""
    dtype = jnp.result_type(float)

    def passes(count: jax.Array) -> jax.Array:
        above, near, distance, s = anchor.above, anchor.near, anchor.distance, anchor.numerator
        if lattice.is_exact(level):
            grown = (1 + above, level.denominator)
            return _sum_le(
                ((*grown, s, near, points), (*grown, count, distance)),
                ((level.numerator, line_count + count, above, distance),),
            )
        left, right = _tail_sides(anchor, points, line_count, count, dtype)
        value = jnp.asarray(level.value)
        tolerance = 4 * max(float(jnp.finfo(dtype).eps), float(jnp.finfo(value.dtype).eps))
        in_range = (value > 0) & (value < 1)
        return in_range & (left <= value.astype(dtype) * (1 + tolerance) * right)

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = (low + high + 1) // 2
        ok = passes(middle)
        return jnp.where(ok, middle, low), jnp.where(ok, high, jnp.maximum(middle - 1, low))

    return jax.lax.fori_loop(0, size.bit_length(), halve, (jnp.zeros_like(anchor.above), anchor.above))[0]


def _sum_le(left: Sequence[_Factors], right: Sequence[_Factors]) -> jax.Array:
    """Whether one sum of products is at most another, exactly; integers below 2^31 as for `lattice.product_le`."""
    small, large = (functools.reduce(_add, map(lattice._digits, side)) for side in (left, right))
    less, equal = jnp.asarray(False), jnp.asarray(True)
    for a, b in reversed(list(zip_longest(small, large, fillvalue=jnp.uint32(0)))):
        less = less | (equal & (a < b))
        equal = equal & (a == b)
    return less | equal


def _add(left: list[jax.Array], right: list[jax.Array]) -> list[jax.Array]:
    """Sum of two numbers in base 2^16, least significant digit first."""
    out, carry = [], jnp.uint32(0)
    for a, b in zip_longest(left, right, fillvalue=jnp.uint32(0)):
        total = a + b + carry
        out.append(total & jnp.uint32(0xFFFF))
        carry = total >> 16
    return [*out, carry]
