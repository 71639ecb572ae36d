"""The integers behind the envelope of JECS: where it is anchored, and how much of its tail passes.

Everything is read off the cumulative histogram of the ranks, #{R_j <= r} for r = 0..n+1, and decided between integers
(`lattice` holds the digits), so that ties and equalities fall on the right side at any size.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import lattice, stepup_parts

__all__ = ["Anchor", "Candidates", "candidates", "largest_tail_count", "line_scale", "slope", "tail_sides"]

_FEWEST = 10  # p-values above a grid point that make it a candidate
_FAR = 2**29  # twice this fits an integer

_Factors = tuple[Any, ...]


class Anchor(NamedTuple):
    """The integers behind a grid point tau = numerator/denominator; its slope is q C (n+1)/(N D + s C (n+1)).

    Counts and the fraction are as narrow as their bounds allow (`lattice.narrow`); one more item fits, and s (n+1) fits
    what D does.
    """

    limit: jax.Array  # [] int32, the largest rank with P <= tau
    above: jax.Array  # [] N = #{P > tau}
    near: jax.Array  # [] C = #{tau < P <= r_(k)}, r_(k) the k-th smallest p-value above tau, k = ceil(sqrt(N)) or given
    distance: jax.Array  # [] D = q (n+1) (r_(k) - tau)
    numerator: jax.Array  # [] s
    denominator: jax.Array  # [] q


class Candidates(NamedTuple):
    """Every grid point, and the one that was chosen."""

    anchors: Anchor  # `Anchor` with fields [t]
    qualified: jax.Array  # [t] bool, at least ten p-values above
    fitted: jax.Array  # [] bool, whether any is
    # `Anchor` with fields []: the smallest slope, the first of equals. Where none qualified its limit is n + 1:
    # everything lies on the line.
    chosen: Anchor


def candidates(
    at_most: jax.Array,
    num_calibration: Any,
    grid: Sequence[Any],
    neighbours: jax.Array | None = None,
    *,
    max_tests: int = 2**30,
) -> Candidates:
    """Measure the density of the p-values just above every grid point, and choose one.

    Args:
      at_most: [max_rank + 1] int32, #{ranks <= r} for r = 0..max_rank, max_rank >= n + 1.
      num_calibration: [] n.
      grid: Static candidates tau in (0, 1), taken as exact fractions.
      neighbours: [m + 1] int32, k by the number N of p-values above tau, cut to 1..N; None: ceil(sqrt(N)).
      max_tests: Static upper bound of m; a small one saves digits (`lattice.narrow`).

    Raises ValueError: an empty grid, a point outside (0, 1), or a common denominator of the points that reaches
    2^31/max_rank.
    """
    max_rank = at_most.shape[0] - 1
    points = jnp.asarray(num_calibration, jnp.int32) + 1
    numerators, common = _common_denominator(grid, max_rank)
    start, q = jnp.asarray(numerators, jnp.int32), jnp.int32(common)
    limit = start * points // q
    at_most = lattice.narrow(at_most, max_tests + 1)
    below = at_most[limit]
    above = at_most[max_rank] - below
    if neighbours is None:
        k = _ceil_sqrt(above)
    else:
        k = jnp.clip(jnp.asarray(neighbours, jnp.int32)[above], 1, jnp.maximum(above.astype(jnp.int32), 1))
    wanted = below.astype(jnp.int32) + k
    kth = jnp.searchsorted(at_most.astype(jnp.int32), wanted, side="left").astype(jnp.int32)  # r_(k) (n+1)
    near = at_most[jnp.minimum(kth, max_rank)] - below
    fraction = (lattice.narrow(part, common) for part in (start, jnp.full_like(start, q)))
    distance = lattice.narrow(kth * q - start * points, common * (max_rank + 1))
    anchors = Anchor(limit, above, near, distance, *fraction)
    qualified = above >= _FEWEST
    fitted = jnp.any(qualified)
    chosen = _smallest_slope(anchors, qualified, points, common * max_rank)
    return Candidates(anchors, qualified, fitted, chosen._replace(limit=jnp.where(fitted, chosen.limit, points)))


def slope(anchor: Anchor, num_calibration: Any, dtype: Any) -> jax.Array:
    """G(tau)/tau in floating point."""
    points = (jnp.asarray(num_calibration, jnp.int32) + 1).astype(dtype)
    above, near, distance, numerator, denominator = (field.astype(dtype) for field in anchor[1:])
    weighted = near * points
    return denominator * weighted / (above * distance + numerator * weighted)


def line_scale(
    anchor: Anchor, fitted: jax.Array, num_calibration: Any, num_tests: Any, *, max_tests: int = 2**30
) -> tuple[_Factors, _Factors]:
    """rho = pi0·slope·m/(n+1), the scale of `stepup.bh_ranks` on the linear branch, as integer factors.

    Returns: Numerator and denominator factors, (1 + N) q C over N D; m over n + 1 where not `fitted` [].
    """
    points, tests = jnp.asarray(num_calibration, jnp.int32) + 1, jnp.asarray(num_tests, jnp.int32)
    tests = lattice.narrow(tests, max_tests)
    numerator = ((1 + anchor.above, tests), (anchor.denominator, 1), (anchor.near, 1))
    denominator = ((anchor.above, points), (anchor.distance, 1))
    return (
        tuple(jnp.where(fitted, factor, otherwise) for factor, otherwise in numerator),
        tuple(jnp.where(fitted, factor, otherwise) for factor, otherwise in denominator),
    )


def tail_sides(anchor: Anchor, num_calibration: Any, line_count: jax.Array, count: jax.Array, dtype: Any) -> Any:
    """(1 + N)(s C (n+1)/D + c) and N (L + c) in floating point: an item of the tail passes if left <= alpha·right."""
    points = (jnp.asarray(num_calibration, jnp.int32) + 1).astype(dtype)
    above, near, distance, numerator, _ = (field.astype(dtype) for field in anchor[1:])
    start = numerator * near * points / distance
    return (1 + above) * (start + count.astype(dtype)), above * (line_count + count).astype(dtype)


def largest_tail_count(level: lattice.Level, anchor: Anchor, num_calibration: Any, line_count: jax.Array) -> jax.Array:
    """The largest c in 1..N with (1 + N)(s C (n+1) + c D) <= alpha (L + c) N D, 0 where there is none.

    L = `line_count` items are on the line. Both sides are linear in c and the left one grows faster, so that the counts
    that pass are those up to a cut. The search begins at the quotient in single precision; where rounding has led that
    astray, it ends by halving. A level that is only known as a float has a tolerance of four machine epsilons. Returns
    [] int32.
    """
    dtype = jnp.result_type(float)
    start = anchor.numerator * (jnp.asarray(num_calibration, jnp.int32) + 1)  # below 2^31: q·max_rank is
    start = start.astype(anchor.distance.dtype)

    def passes(count: jax.Array) -> jax.Array:
        if lattice.is_exact(level):
            grown = (1 + anchor.above, level.denominator)
            return _sum_le(
                ((*grown, start, anchor.near), (*grown, count, anchor.distance)),
                ((level.numerator, line_count + count, anchor.above, anchor.distance),),
            )
        left, right = tail_sides(anchor, num_calibration, line_count, count, dtype)
        return left <= stepup_parts.critical(level, dtype) * right

    single = jnp.float32
    above, near, distance = (field.astype(single) for field in (anchor.above, anchor.near, anchor.distance))
    alpha = jnp.asarray(level.value).astype(single)
    grown = (1 + above) / above
    quotient = (alpha * line_count.astype(single) - grown * start.astype(single) * near / distance) / (grown - alpha)
    quotient = jnp.where(jnp.isnan(quotient), 0, quotient)
    most = anchor.above.astype(jnp.int32)
    guess = jnp.minimum(jnp.clip(jnp.floor(quotient), 1, above).astype(jnp.int32), most)  # `above` may be rounded up
    zero = jnp.zeros_like(guess)

    def narrow(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """One comparison: of the quotient, then of its neighbours, then twice as far each time, then by halving."""
        low, high, count, reach = state
        passed = passes(count)
        low, high = jnp.where(passed, count, low), jnp.where(passed, high, count - 1)
        step = jnp.minimum(reach, (high - low + 1) // 2)
        return low, high, jnp.where(passed, low + step, high + 1 - step), jnp.minimum(2 * reach, _FAR)

    state = (zero, most, guess, zero + 1)
    return jax.lax.while_loop(lambda state: state[0] < state[1], narrow, state)[0]


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


def _ceil_sqrt(count: jax.Array) -> jax.Array:
    """The smallest integer whose square is at least `count`, exactly."""
    root = jnp.floor(jnp.sqrt(count.astype(jnp.float32))).astype(jnp.int32)
    root = jnp.maximum(root - 1, 0)  # below the answer by at most three, whatever the rounding
    for _ in range(3):
        root = jnp.where(root * root < count.astype(jnp.int32), root + 1, root)
    return root


def _smallest_slope(anchors: Anchor, qualified: jax.Array, points: jax.Array, most: int) -> Anchor:
    """The qualified anchor of the smallest slope, the first of equals: q/slope = s + N D/(C (n+1)), exactly.

    `most` is a static upper bound of q (n+1).
    """

    def larger(one: Anchor, other: Anchor) -> jax.Array:
        """q/slope of the one above that of the other."""
        starts = [lattice.narrow(anchor.numerator.astype(jnp.int32) * points, most) for anchor in (one, other)]
        return ~_sum_le(
            ((starts[0], one.near, other.near), (one.above, one.distance, other.near)),
            ((starts[1], other.near, one.near), (other.above, other.distance, one.near)),
        )

    def at(i: jax.Array) -> Anchor:
        return jax.tree.map(lambda field: field[i], anchors)

    def meet(i: jax.Array, best: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        champion, any_so_far = best
        wins = qualified[i] & (~any_so_far | larger(at(i), at(champion)))
        return jnp.where(wins, i, champion), any_so_far | qualified[i]

    start = jnp.zeros((), jnp.int32), qualified[0]
    return at(jax.lax.fori_loop(1, qualified.shape[0], meet, start)[0])


def _sum_le(left: Sequence[_Factors], right: Sequence[_Factors]) -> jax.Array:
    """True if one sum of products is at most another, exactly; integers below 2^31 as for `lattice.product_le`."""
    return lattice.digits_le(*(functools.reduce(_add, map(lattice.digits, side)) for side in (left, right)))


def _add(left: list[Any], right: list[Any]) -> list[Any]:
    """Sum of two numbers in base 2^16, least significant digit first."""
    out, carry = [], np.uint32(0)
    for a, b in zip_longest(left, right, fillvalue=np.uint32(0)):
        total = a + b + carry
        out.append(total & jnp.uint32(0xFFFF))
        carry = total >> 16
    return [*out, carry]
