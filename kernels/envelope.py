"""The envelope of JECS: an upper bound of the null distribution of the largest of K conformal p-values.

P_j = R_j/(n+1), R_j the largest of the K ranks of item j, is stochastically large under the null (an item that is a
member of one of K models, not of all, has one uniform p-value among K). JECS estimates the null distribution of P from
the right tail, where nulls dominate, and continues it to the left by a line through the origin. Everything it compares
is rational in the integer ranks: the tail, the choice of the grid point and the decision are made between integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import envelope_anchor, lattice, ranks, stepup
from tdd.kernels.envelope_anchor import Anchor
from tdd.kernels.stepup import StepUp

__all__ = ["Anchor", "Envelope", "adaptive_bh", "fit", "identity", "line_scale"]


class Envelope(NamedTuple):
    """A piecewise distribution function G of the largest p-value under the null.

    G(x) = slope·x for x <= tau, and slope·tau + (1 - slope·tau)·F(x) above, F the empirical distribution of the
    p-values above tau.
    """

    x: jax.Array  # [m] the p-values at which G was evaluated, in input order; NaN for masked items
    value: jax.Array  # [m] G(x), NaN for masked items
    tau: jax.Array  # [] the grid point that was chosen; 0 where no grid point had enough p-values above it
    slope: jax.Array  # [] G(tau)/tau, 1 where none was chosen (G is the identity then)
    grid: jax.Array  # [t] the grid of candidate points
    slopes: jax.Array  # [t] the slope at each of them, +inf where it was skipped
    num_above: jax.Array  # [t] int32, p-values above each of them
    fitted: jax.Array  # [] bool, False where no grid point qualified: the selection is that of JMCS then
    null_proportion: jax.Array  # [] (1 + #{P > tau}) / (m (1 - G(tau))), 1 where not fitted
    anchor: Anchor  # The same envelope in integers, for exact decisions


def identity(rank: jax.Array, num_calibration: Any, *, max_rank: int, mask: jax.Array | None = None) -> Envelope:
    """G(x) = x, the envelope of JMCS, with an empty grid. Arguments as `fit`."""
    valid = ranks.within(rank, max_rank, mask)
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
    rank: jax.Array,
    num_calibration: Any,
    *,
    max_rank: int,
    grid: Sequence[Any],
    neighbours: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> Envelope:
    """Fit the envelope on the ranks of the largest p-values, P_j = R_j/(n+1).

    For every tau of the grid: r = sorted {P_j > tau}, N = |r|, k = ceil(sqrt(N)) or k_N as given, boundary density
    h = (#{r <= r_(k)}/N)/(r_(k) - tau) with the whole tie group of r_(k) counted, anchor G(tau) = tau h/(1 + tau h).
    The tau with the smallest slope G(tau)/tau is chosen (the first of equals); N < 10 is skipped.

    Guarantee: G bounds the null distribution of P asymptotically, if that distribution is convex, pure items are rarer
    than nulls just above tau, k grows without bound, k/N falls to 0, and n grows faster than N/k (sqrt(N) for the
    default k), so that the lattice of the p-values is finer than the neighbourhood in which the density is measured.

    Args:
      rank, mask: [m] int32 in 1..n+1, and bool, True = real item; ranks above `max_rank` count as masked out.
      num_calibration: [] n.
      max_rank: Static upper bound of n + 1.
      grid, neighbours: As `envelope_anchor.candidates`, errors included.

    Cost: one histogram of the ranks and one cumulative sum, O(m + n), and a few operations a grid point; no sort.
    References: JECS, section 3.3 (eq. 13-15), appendix B.1 (proposition 6: any k) and appendix D.1.
    """
    valid = ranks.within(rank, max_rank, mask)
    tests = jnp.sum(valid, dtype=jnp.int32)
    points = jnp.asarray(num_calibration, jnp.int32) + 1
    at_most = ranks.up_to(jnp.where(valid, rank, max_rank + 1), max_rank + 1)
    candidates = envelope_anchor.candidates(at_most, num_calibration, grid, neighbours, max_tests=rank.shape[0])
    anchors, fitted = candidates.anchors, candidates.fitted
    anchor = jax.tree.map(lambda field: field.astype(jnp.int32), candidates.chosen)  # for items of any number
    dtype = jnp.result_type(float)
    slopes = jnp.where(candidates.qualified, envelope_anchor.slope(anchors, num_calibration, dtype), jnp.inf)

    s = anchor.numerator.astype(dtype)
    tau = jnp.where(fitted, s / anchor.denominator.astype(dtype), 0)
    slope = jnp.where(fitted, envelope_anchor.slope(anchor, num_calibration, dtype), 1)
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
        anchors.numerator.astype(dtype) / anchors.denominator.astype(dtype),
        slopes,
        anchors.above.astype(jnp.int32),
        fitted,
        jnp.where(fitted, pi0, 1),
        anchor,
    )


def line_scale(
    envelope: Envelope, num_calibration: Any, num_tests: Any
) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    """`envelope_anchor.line_scale` of a fitted envelope."""
    return envelope_anchor.line_scale(envelope.anchor, envelope.fitted, num_calibration, num_tests)


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

    Guarantee: As the envelope's; asymptotic. With an envelope that is not fitted this is BH on P.

    `alpha` is decided exactly where it is static, with a tolerance of four machine epsilons where it is traced; other
    arguments as `fit`. `threshold` is on the scale of P.

    Raises ValueError: static alpha outside (0, 1). A traced one gives no rejections and NaN adjusted values.
    Cost: O(m) a pass and a scalar search; `adjusted` O(m + n).
    References: JECS, eq. 16-17.
    """
    level, anchor, dtype = lattice.as_level(alpha), envelope.anchor, jnp.result_type(float)
    valid = ranks.within(rank, max_rank, mask)
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
    at_most = ranks.up_to(jnp.where(valid, rank, max_rank + 1), max_rank + 1)
    count = _tail_count(rank, at_most, anchor)
    line_count = step.num_tests
    cut = envelope_anchor.largest_tail_count(level, anchor, num_calibration, line_count)
    in_tail = valid & ~on_line & (count <= cut)
    some = jnp.any(in_tail)
    reject = step.reject | in_tail | (on_line & some)

    left, right = envelope_anchor.tail_sides(anchor, num_calibration, line_count, count, dtype)
    scaled = jnp.where(valid & ~on_line, left / right, jnp.inf)
    adjusted = jnp.where(on_line, jnp.minimum(step.adjusted, jnp.min(scaled, initial=jnp.inf)), scaled)
    adjusted = lattice.settle(reject, jnp.minimum(adjusted, 1), level)
    return StepUp(
        reject,
        jnp.where(valid & lattice.in_range(level), adjusted, jnp.nan),
        jnp.max(jnp.where(reject, rank.astype(dtype) / points.astype(dtype), 0), initial=0),
        jnp.sum(reject, dtype=jnp.int32),
        tests,
        envelope.null_proportion,
    )


def _tail_count(rank: jax.Array, at_most: jax.Array, anchor: Anchor) -> jax.Array:
    """[m] items above tau with at most this rank; meaningless (not positive) on the line."""
    last = at_most.shape[0] - 1
    return at_most[jnp.minimum(rank, last)] - at_most[jnp.minimum(anchor.limit, last)]
