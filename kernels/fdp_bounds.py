"""Upper bounds on the false discovery proportion of every threshold at once, and on the number of true nulls.

Null ranks have one law whatever the scores: N_k(i) = #{k uniforms < U_(i:n)} of k null items have a conservative rank
<= i. `calibrate` turns that law, by Monte Carlo, into an envelope u_k(i) that all N_k(i) stay under with probability
>= 1 - delta (`null_paths.calibrate`: by counting paths); `bounds` reads it at the ranks of any data set with these n
and m. `dkw` is the bound in closed form; `knockoff.fdp_bound` bounds knockoff statistics.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import lattice, platforms, ranks

__all__ = ["DkwBounds", "FdpBounds", "Template", "bounds", "calibrate", "dkw", "dkw_offset", "of_set"]

_FULL_GRID = 256  # up to this many calibration scores (test items), every rank (every number of nulls) is tabulated
_MAX_COUNTS = 128
_MAX_ELEMENTS = 2**22  # uniforms drawn side by side
_DEVIATIONS = 6  # half width of a tabulated tail, in standard deviations


class Template(NamedTuple):
    """The envelope of null ranks for one n and delta."""

    num_nulls: jax.Array  # [K] int32, the numbers k of nulls for which it is known, ascending, the last >= m
    rank: jax.Array  # [I] int32, the ranks i at which it is known, ascending
    bound: jax.Array  # [K, I] int32 u_k(i), not decreasing in k; k where nothing better is known
    num_calibration: jax.Array  # [] int32, n
    delta: jax.Array  # [] probability that the envelope fails; NaN where delta was traced and out of range


class FdpBounds(NamedTuple):
    """Bounds that hold for all cuts at once."""

    num_selected: jax.Array  # [N+1] int32, R(i) = #{r_j <= i} for i = 1..N+1; entry i - 1 belongs to rank i
    false_bound: jax.Array  # [N+1] int32, v(i): at most so many of them are nulls
    max_nulls: jax.Array  # [] int32: at most so many of the m items are nulls
    num_tests: jax.Array  # [] int32, m
    slot: jax.Array  # [m] int32, the entry of each item's own rank; -1 for masked items


class DkwBounds(NamedTuple):
    """Closed-form bounds at given thresholds."""

    fdp_bound: jax.Array  # [t] at most this fraction of {p_j <= threshold} is null; 0 where nothing is selected
    false_bound: jax.Array  # [t] at most so many of them are nulls (a real number; its floor bounds too)
    num_selected: jax.Array  # [t] int32, #{p_j <= threshold}
    offset: jax.Array  # [] lambda


def calibrate(
    key: jax.Array,
    num_calibration: Any,
    delta: Any,
    *,
    max_calibration: int,
    max_tests: int,
    num_draws: int = 999,
) -> Template:
    """The envelope u_k(i) of null ranks, by Monte Carlo.

    With G_ki(c) = P(BetaBinomial(k, i, n+1-i) >= c), the law of one N_k(i), and B draws of all of them,
    L_b = min_i G_ki(N_k^b(i)), g the floor(delta (B+1))-th smallest L_b, u_k(i) = max{c: G_ki(c) >= g}. The same
    uniforms serve every k, and u_k is replaced by the largest u_k' of k' <= k.

    Guarantee: P(N_k(i) <= u_k(i) for all i) >= 1 - delta for every k, over the draws and the data; finite-sample, for
    any number of draws (fewer than 1/delta - 1 give u_k = k). Rounding of G costs no validity: L_b and u_k read one
    table.

    Args:
      key: PRNG key.
      num_calibration: [] n <= max_calibration; may be traced.
      delta: Level in (0, 1), as `lattice.as_level` takes it; a traced one out of range gives u_k = k.
      max_calibration: Static N; up to 256 every rank is tabulated, beyond that every rank up to 32 and then
        about 32 for each factor e, at most N/128 apart.
      max_tests: Static M; up to 256 every k, beyond that 128 equal steps, of which the larger one bounds those between.
      num_draws: Static B.

    Raises ValueError: static delta outside (0, 1), or sizes below 1.
    Cost: O(B (N + M) + K I (B + W)), W the width of a tabulated tail, at most M + 1.
    References: Gazin, Blanchard & Roquain (2024) for the law; Song, Jin & Candes (2026).
    """
    if min(max_calibration, num_draws) < 1 or max_tests < 0:
        raise ValueError(f"sizes must be positive, got {(max_calibration, max_tests, num_draws)}")
    level = lattice.as_level(delta)
    n = jnp.asarray(num_calibration, jnp.int32)
    grid, step, num_steps = grids(max_calibration, max_tests)
    order_key, null_key = jax.random.split(key)
    order_statistics = _order_statistics(order_key, n, grid, max_calibration, num_draws)
    place = place_of(level, num_draws)
    width = width_of(max_calibration, step * num_steps)
    tabulated = jnp.asarray(grid)

    def one_count(state, index):
        cells, widest = state
        k = (index + 1) * step
        uniforms = jax.random.uniform(jax.random.fold_in(null_key, index), (num_draws, step), jnp.float32)
        cells = jax.vmap(_add_cells)(cells, order_statistics, uniforms)
        start, tails = tails_of(k, tabulated, n, width)
        observed = jnp.clip(jnp.cumsum(cells, axis=1)[:, :-1] - start[None], 0, width)
        least = jnp.min(jnp.take_along_axis(tails, observed.T, axis=1), axis=0)
        critical = jnp.where(place > 0, jnp.sort(least)[jnp.maximum(place - 1, 0)], 0)
        inside = tails >= critical
        last = jnp.max(jnp.where(inside, jnp.arange(width + 1, dtype=jnp.int32)[None], 0), axis=1)
        top = jnp.where((critical > 0) & (tabulated <= n), jnp.minimum(start + last, k), k)
        widest = jnp.maximum(widest, top)
        return (cells, widest), widest

    start = jnp.zeros((num_draws, grid.size + 1), jnp.int32), jnp.zeros(grid.size, jnp.int32)
    _, bound = jax.lax.scan(one_count, start, jnp.arange(num_steps, dtype=jnp.int32))
    num_nulls = step * jnp.arange(1, num_steps + 1, dtype=jnp.int32)
    value = jnp.asarray(level.value, jnp.result_type(float))
    return Template(num_nulls, tabulated, bound, n, jnp.where((value > 0) & (value < 1), value, jnp.nan))


def bounds(
    template: Template,
    rank: jax.Array,
    num_calibration: Any,
    *,
    max_rank: int,
    mask: jax.Array | None = None,
) -> FdpBounds:
    """The envelope at the ranks of a data set.

    max_nulls = max{k: k <= u_k(i) + m - R(i) for all i}; v = min(u_k, R) at k = max_nulls, then
    v(i) <- min over i' >= i of v(i') and v(i) <- min over i' <= i of v(i') + R(i) - R(i').

    Guarantee: with probability >= 1 - delta, for all i at once, at most v(i) of the R(i) items with rank <= i are nulls
    and at most max_nulls of all items are; finite-sample, if calibration and null test scores are exchangeable
    (alternatives arbitrary, ties allowed). For ranks of one score chosen beforehand, conservative or by one shared
    order: not for combined, weighted or randomised p-values.

    Args:
      template: Result of `calibrate`, for this number of calibration scores and at least this many items; if it is for
        others, the bounds are the trivial ones.
      rank, mask: [m] int32 ranks in 1..n+1, and bool, True = real item; ranks above `max_rank` count as masked out.
      num_calibration: [] n.
      max_rank: N + 1, static upper bound of n + 1.

    Cost: O(m + N + K I); no sort.
    """
    valid = ranks.within(rank, max_rank, mask)
    m = jnp.sum(valid, dtype=jnp.int32)
    slot = jnp.where(valid, rank - 1, max_rank)
    selected = ranks.up_to(slot, max_rank)
    at_grid = selected[jnp.minimum(template.rank, max_rank) - 1]

    steps = template.num_nulls
    usable = (template.num_calibration == num_calibration) & (m <= jnp.max(steps, initial=0))
    before = jnp.concatenate([jnp.zeros(1, jnp.int32), steps])[:-1]
    largest = jnp.minimum(jnp.minimum(steps, m), m + jnp.min(template.bound - at_grid[None], axis=1))
    nulls = jnp.max(jnp.where(largest > before, largest, 0), initial=0)
    nulls = jnp.where(usable, nulls, m)

    row = jnp.searchsorted(steps, nulls)
    envelope = jnp.concatenate([template.bound, jnp.zeros_like(template.bound, shape=(1, template.rank.size))])
    known = jnp.where(usable, envelope[jnp.minimum(row, steps.size)], m)
    # Every rank is bounded by what is known at any tabulated one from it on.
    known = jnp.full(max_rank, m).at[jnp.minimum(template.rank, max_rank) - 1].min(jnp.minimum(known, at_grid))
    false = jnp.minimum(jnp.minimum(platforms.cummin(known, reverse=True), selected), nulls)
    false = selected - platforms.cummax(selected - false)
    return FdpBounds(selected, false, nulls, m, jnp.where(valid, rank - 1, -1))


def of_set(bounds: FdpBounds, selected: jax.Array) -> jax.Array:
    """Largest number of nulls in any set of items, also one that was chosen after looking.

    min over i of v(i) + #{selected items with rank > i}, [] int32, of the `selected` [m] bool. Cost: O(m + N).
    """
    size = bounds.false_bound.shape[0]
    chosen = selected & (bounds.slot >= 0)
    inside = ranks.up_to(jnp.where(chosen, bounds.slot, size), size)
    total = jnp.sum(chosen, dtype=jnp.int32)
    best = jnp.min(bounds.false_bound + total - inside, initial=np.iinfo(np.int32).max)
    return jnp.minimum(jnp.minimum(best, total), bounds.max_nulls)


def dkw_offset(num_calibration: Any, num_tests: Any, delta: Any) -> jax.Array:
    """lambda with P(sup_t (F_m(t) - t) > lambda) <= delta for the empirical distribution F_m of m null p-values.

    The fixed point, from 1 downwards, of x <- min(1, sqrt(log(1/delta) + log(1 + 2 tau x sqrt(2 pi/(n+m)))) / sqrt(2
    tau)) with tau = n m/(n+m); 1 for m = 0, NaN for a traced delta outside (0, 1).

    Guarantee: finite-sample, for conformal p-values with exchangeable calibration and null test scores.

    References: Gazin, Blanchard & Roquain (2024), theorem 2.4.
    """
    level = lattice.as_level(delta)
    dtype = jnp.result_type(float)
    delta = jnp.asarray(level.value, dtype)
    delta = jnp.where((delta > 0) & (delta < 1), delta, jnp.nan)
    n, m = jnp.asarray(num_calibration, dtype), jnp.asarray(num_tests, dtype)
    tau = n * m / jnp.maximum(n + m, 1)

    def smaller(_, x):
        inside = jnp.log1p(2 * tau * x * jnp.sqrt(2 * math.pi / jnp.maximum(n + m, 1))) - jnp.log(delta)
        return jnp.minimum(1, jnp.sqrt(inside / (2 * tau)))

    return jax.lax.fori_loop(0, 64, smaller, jnp.ones((), dtype))  # every iterate is valid; it contracts quickly


def dkw(
    p_values: jax.Array,
    thresholds: jax.Array,
    num_calibration: Any,
    delta: Any,
    *,
    interpolate: bool = True,
    mask: jax.Array | None = None,
) -> DkwBounds:
    """Closed-form bound: at most m (t + lambda) of the p-values <= t are null, for all t at once.

    With `interpolate`, the bound at t is the smallest of m and m (p_j + lambda) + #{p_j < p_l <= t} over the p-values
    p_j <= t. Wider than the envelope of `calibrate`, above all at small t, but free of Monte Carlo.

    Guarantee: FDP(t) <= fdp_bound for all t at once with probability >= 1 - delta, for conservative conformal p-values
    of one score chosen beforehand, calibration and null test scores exchangeable; finite-sample.

    Args:
      p_values, mask: [m] p-values, NaN masked out; bool, True = real item.
      thresholds: [t] cuts; may be the p-values.
      num_calibration, delta: As `dkw_offset`.
      interpolate: True lets a bound at a smaller threshold serve a larger one.

    Cost: a sort of m.
    References: Gazin, Blanchard & Roquain (2024); Song, Jin & Candes (2026) for the interpolation.
    """
    values = ranks.at_least_single(p_values)
    cuts = thresholds.astype(values.dtype)
    valid = ranks.real(values, mask)
    m = jnp.sum(valid, dtype=jnp.int32)
    offset = dkw_offset(num_calibration, m, delta).astype(values.dtype)
    ordered = jnp.sort(jnp.where(valid, values, jnp.inf))
    count = jnp.minimum(jnp.searchsorted(ordered, cuts, side="right"), m).astype(jnp.int32)
    total = m.astype(values.dtype)
    if interpolate:
        at_most = jnp.searchsorted(ordered, ordered, side="right").astype(values.dtype)
        excess = platforms.cummin(jnp.minimum(1, ordered + offset) * total - at_most)
        excess = jnp.concatenate([jnp.full(1, jnp.inf, values.dtype), excess])
        # The trivial bound m stands for the empty cut, as in the plain form.
        false = jnp.minimum(excess[count], total) + count.astype(values.dtype)
    else:
        false = jnp.minimum(1, cuts + offset) * total
    false = jnp.clip(false, 0, count.astype(values.dtype))
    return DkwBounds(false / jnp.maximum(count, 1).astype(values.dtype), false, count, offset)


def grids(max_calibration: int, max_tests: int) -> tuple[np.ndarray, int, int]:
    """Tabulated ranks, the step between tabulated numbers of nulls, and how many of these there are."""
    tabulated = [1]
    while tabulated[-1] < max_calibration:
        coarse = min(tabulated[-1] // 32, max_calibration // 128)
        tabulated.append(min(tabulated[-1] + (1 if max_calibration <= _FULL_GRID else max(1, coarse)), max_calibration))
    step = 1 if max_tests <= _FULL_GRID else math.ceil(max_tests / _MAX_COUNTS)
    return np.asarray(tabulated, np.int32), step, math.ceil(max_tests / step)


def _order_statistics(key: jax.Array, n: jax.Array, grid: np.ndarray, size: int, num_draws: int) -> jax.Array:
    """[B, I] order statistics U_(i:n) at the tabulated ranks, from the spacings; 1 beyond n."""

    def one(draw_key):
        drawn = jax.random.exponential(draw_key, (size + 1,), jnp.float32)
        gaps = jnp.where(jnp.arange(size + 1, dtype=jnp.int32) <= n, drawn, 0)
        sums = jnp.cumsum(gaps)
        return jax.lax.cummax(jnp.where(grid <= n, sums[grid - 1] / sums[-1], 1))

    batch = min(num_draws, max(1, _MAX_ELEMENTS // (size + 1)))
    return jax.lax.map(one, jax.random.split(key, num_draws), batch_size=batch)


def _add_cells(cells: jax.Array, order_statistics: jax.Array, uniforms: jax.Array) -> jax.Array:
    """Count new uniforms into the cells between order statistics; equality, a rounding, counts as below."""
    return cells.at[jnp.searchsorted(order_statistics, uniforms)].add(1)


def place_of(level: lattice.Level, num_draws: int) -> jax.Array:
    """floor(delta (B + 1)), which of the ordered L_b is the critical one; 0 for a traced level out of range."""
    if lattice.is_exact(level):
        return lattice.floor_ratio((level.numerator, num_draws + 1), (level.denominator,), num_draws)
    value = level.value.astype(jnp.float32)
    place = jnp.floor(value * (num_draws + 1) * (1 + 4 * float(jnp.finfo(jnp.float32).eps)))
    return jnp.where((value > 0) & (value < 1), jnp.minimum(place, num_draws), 0).astype(jnp.int32)


def width_of(max_calibration: int, max_nulls: int) -> int:
    """Number of values of N tabulated around its mean: all, or enough for n down to a quarter of its bound."""
    deviation = 0.5 * math.sqrt(max_nulls * (1 + 4 * max_nulls / max_calibration))
    return min(max_nulls, max(1024, 2 * math.ceil(_DEVIATIONS * deviation)))


def tails_of(k: jax.Array, rank: jax.Array, n: jax.Array, width: int) -> tuple[jax.Array, jax.Array]:
    """P(BetaBinomial(k, i, n+1-i) >= c) for c = start..start + width: ([I], [I, width + 1]).

    From the ratios of neighbouring probabilities, relative to the tabulated range: 1 at its start, which is 0 unless
    the range is too narrow for all of 0..k. Decreasing in c; ranks beyond n have 1 throughout.
    """
    mean = k.astype(jnp.float32) * rank.astype(jnp.float32) / (n + 1).astype(jnp.float32)
    start = jnp.clip(jnp.round(mean).astype(jnp.int32) - width // 2, 0, jnp.maximum(k - width, 0))
    i, c = rank[:, None].astype(jnp.float32), start[:, None] + jnp.arange(width, dtype=jnp.int32)[None]
    possible = c < k
    c, left = c.astype(jnp.float32), jnp.where(possible, k - c, 1).astype(jnp.float32)
    others = jnp.maximum(n - rank, 0)[:, None].astype(jnp.float32) + left
    ratio = jnp.where(possible, jnp.log((i + c) / (c + 1)) + jnp.log(left / others), -jnp.inf)
    log_mass = jnp.concatenate([jnp.zeros((rank.size, 1), jnp.float32), jnp.cumsum(ratio, axis=1)], axis=1)
    mass = jnp.exp(log_mass - jnp.max(log_mass, axis=1, keepdims=True))
    tails = jnp.flip(jnp.cumsum(jnp.flip(mass, axis=1), axis=1), axis=1)
    tails = jax.lax.cummin(tails / tails[:, :1], axis=1)
    return start, jnp.where((rank <= n)[:, None], tails, 1)
