"""Bounds that make conformal p-values valid given the calibration sample, not only on average over samples.

Given the calibration scores, a null item with continuous scores has P(rank <= r) = U_(r), the r-th order statistic of n
uniforms. A table b_1 <= ... <= b_{n+1} = 1 with

    P(U_(r) <= b_r for all r = 1..n) >= 1 - delta

turns the rank r into the p-value b_r: with probability 1 - delta over the calibration sample,
P(b_r <= t | calibration) <= t for every t. Ties only help. Each function returns such a table [max_rank + 1], indexed
by the integer rank; entry 0 is 0 and entries above n+1 are 1. A delta outside (0, 1) gives NaN where it is traced and
raises ValueError where it is static.

References: Bates, Candes, Lei, Romano & Sesia (2023), section 3.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tdd.kernels import lattice
from tdd.kernels.conformal import ConformalRanks

__all__ = ["asymptotic_bounds", "dkwm_bounds", "hybrid_bounds", "monte_carlo_bounds", "p_values", "simes_bounds"]

LEAST_ASYMPTOTIC = 17
"""The smallest n whose triple logarithm is positive, below which the asymptotic boundary says nothing."""

_CHUNK_ELEMENTS = 2_000_000  # of one array of the Monte Carlo boundary


def p_values(ranks: ConformalRanks, bounds: jax.Array) -> jax.Array:
    """[m] calibration-conditional p-values b_r of conservative ranks, by `bounds` [R], R > n + 1; NaN if masked.

    Guarantee: with probability 1 - delta over the calibration sample P(p <= t | calibration) <= t for all t, if
    `bounds` is a table of this module, calibration and null test scores are independent draws of one law; finite-sample
    or asymptotic as the table is.
    """
    return jnp.where(ranks.valid, bounds[jnp.minimum(ranks.rank, bounds.shape[0] - 1)], jnp.nan)


def simes_bounds(num_calibration: Any, delta: Any, *, max_rank: int, k: Any = None) -> jax.Array:
    """Generalised Simes: b_{n+1-i} = 1 - [delta · i(i-1)...(i-k+1) / (n(n-1)...(n-k+1))]^(1/k).

    Guarantee: finite-sample; the probability that some U_(r) exceeds its bound is delta exactly. Bounds are tight for
    small ranks and 1 above rank n+1-k.

    Args:
      num_calibration: [] int32, n; may be traced.
      delta: [] in (0, 1), number, `lattice.Level` or array.
      max_rank: Static upper bound of n + 1.
      k: [] number of order statistics that share the bound, in 1..n; None is max(1, floor(n/2)).

    Raises ValueError: a static k below 1.
    Cost: one cumulative sum, in logarithms: relative error of a few eps in single precision at n = 100,000.
    References: Bates et al. (2023), eq. 11-13; Sarkar (2008).
    """
    if k is not None and not isinstance(k, jax.Array) and k < 1:
        raise ValueError(f"k must be at least 1, got {k!r}")
    value, n, rank = _operands(num_calibration, delta, max_rank)
    shared = jnp.maximum(1, n // 2 if k is None else jnp.asarray(k, jnp.int32))
    i = n + 1 - rank
    # From i + 1 to i the product changes by the factor (i + 1 - k)/(i + 1); the first rank, i = n, has the product 1.
    steps = (rank >= 2) & (i + 1 > shared)
    ratio = jnp.where(steps, shared.astype(value.dtype) / jnp.maximum(i + 1, 1).astype(value.dtype), 0)
    exponent = (jnp.log(value) + jnp.cumsum(jnp.log1p(-ratio))) / shared.astype(value.dtype)
    return _table(jnp.where(i >= shared, -jnp.expm1(exponent), 1), n, rank, value)


def dkwm_bounds(num_calibration: Any, delta: Any, *, max_rank: int) -> jax.Array:
    """Dvoretzky-Kiefer-Wolfowitz with Massart's constant: b_r = min(1, r/(n+1) + sqrt(log(1/delta)/(2n))).

    One side of the band is enough; a two-sided band at level delta is this table at delta/2. Massart's inequality
    holds for delta <= 1/2, so a larger delta counts as 1/2.

    Guarantee: finite-sample. Arguments as `simes_bounds`.

    References: Massart (1990), theorem 1.
    """
    value, n, rank = _operands(num_calibration, delta, max_rank)
    size = jnp.maximum(n, 1).astype(value.dtype)
    margin = jnp.sqrt(-jnp.log(jnp.minimum(value, 0.5)) / (2 * size))
    return _table(rank.astype(value.dtype) / (n + 1).astype(value.dtype) + margin, n, rank, value)


def asymptotic_bounds(num_calibration: Any, delta: Any, *, max_rank: int) -> jax.Array:
    """b_r = r/n + c_n sqrt(r(n-r))/n^(3/2), the boundary of the normalised uniform empirical process.

    c_n = [-log(-log(1-delta)) + 2 log log n + (log log log n - log pi)/2] / sqrt(2 log log n).

    Guarantee: asymptotic in n. Below n = 17 every bound is 1. Arguments as `simes_bounds`.

    References: Bates et al. (2023), eq. 15; Eicker (1979); Jaeschke (1979).
    """
    value, n, rank = _operands(num_calibration, delta, max_rank)
    size, place = jnp.maximum(n, 1).astype(value.dtype), rank.astype(value.dtype)
    width = jnp.sqrt(place * jnp.maximum(1 - place / size, 0)) / size
    bounds = jnp.where(n >= LEAST_ASYMPTOTIC, place / size + _process_constant(n, value) * width, 1)
    return _table(bounds.astype(value.dtype), n, rank, value)


def monte_carlo_bounds(
    num_calibration: Any, delta: Any, *, max_rank: int, key: jax.Array, num_draws: int = 999
) -> jax.Array:
    """The asymptotic shape, linear beyond n/2, with its constant c calibrated on draws of uniform order statistics.

    b_r = r/n + c·s_r with s_r = sqrt(r(n-r))/n^(3/2) up to r = n/2 and its last increment continued beyond. Every draw
    has the smallest c that holds it, max_r (U_(r) - r/n)/s_r, and c is the floor(delta·(B+1))-th largest of them.

    Guarantee: finite-sample, the draws being part of the probability: the sample's own constant is exchangeable with
    the B drawn ones. (An outer minimum with the Simes table at the same delta, as the boundary was proposed, would
    spend delta twice: that is `hybrid_bounds`.)

    `num_draws`, static, is B >= 1/delta - 1; fewer leave every bound at 1. Other arguments as `simes_bounds`.

    Raises ValueError: `num_draws` below 1.
    Cost: B·n draws, in pieces of bounded memory.
    References: Bates et al. (2023), section 3.4, with the calibration made exact.
    """
    if num_draws < 1:
        raise ValueError(f"num_draws must be at least 1, got {num_draws!r}")
    value, n, rank = _operands(num_calibration, delta, max_rank)
    size = jnp.maximum(n, 1).astype(value.dtype)
    centre, width = rank / size, _linear_width(n, rank, value.dtype)
    inside = (rank >= 1) & (rank <= n) & (width > 0)

    def constant(draw_key: jax.Array) -> jax.Array:
        """The smallest c that holds one draw of U_(1..n): partial sums of exponentials, normalised."""
        sums = jnp.cumsum(jax.random.exponential(draw_key, (max_rank + 1,), value.dtype))
        uniform = jnp.concatenate([jnp.zeros(1, value.dtype), sums[:-1] / sums[n]])
        needed = jnp.where(inside, (uniform - centre) / jnp.where(inside, width, 1), 0)
        return jnp.max(needed, initial=0)

    batch = max(1, min(num_draws, _CHUNK_ELEMENTS // (max_rank + 1)))
    drawn = jax.lax.map(constant, jax.random.split(key, num_draws), batch_size=batch)
    allowed = _allowed_count(delta, num_draws + 1)
    largest = jnp.concatenate([jnp.full(1, jnp.inf, value.dtype), jnp.flip(jnp.sort(drawn))])
    bounds = jnp.where(inside, centre + largest[allowed] * jnp.where(inside, width, 1), 1)
    return _table(bounds, n, rank, value)


def hybrid_bounds(num_calibration: Any, delta: Any, gamma: Any, *, max_rank: int) -> jax.Array:
    """The smaller of the Simes table at delta and the linearised asymptotic boundary with c_n at delta - gamma.

    Guarantee: none for a finite boundary. The Simes table alone is exceeded with probability delta, so that a minimum
    with anything else is exceeded more often. For comparison with published tables and for studies.

    `gamma` [] lies in (delta - 1, delta); other arguments as `simes_bounds`. Below n = 17 this is the Simes table.

    References: Bates et al. (2023), section 3.4.
    """
    value, n, rank = _operands(num_calibration, delta, max_rank)
    size = jnp.maximum(n, 1).astype(value.dtype)
    shape = rank.astype(value.dtype) / size + _process_constant(n, value - gamma) * _linear_width(n, rank, value.dtype)
    simes = simes_bounds(num_calibration, delta, max_rank=max_rank)
    return _table(jnp.where(n >= LEAST_ASYMPTOTIC, jnp.minimum(simes, shape), simes), n, rank, value)


def _operands(num_calibration: Any, delta: Any, max_rank: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """delta as a float, NaN where it is out of range; n; the ranks 0..max_rank."""
    level = lattice.as_level(delta)
    value = jnp.asarray(level.value, jnp.result_type(float))
    value = jnp.where((value > 0) & (value < 1), value, jnp.nan)
    return value, jnp.asarray(num_calibration, jnp.int32), jnp.arange(max_rank + 1, dtype=jnp.int32)


def _table(bounds: jax.Array, n: jax.Array, rank: jax.Array, value: jax.Array) -> jax.Array:
    """Bounds cut at 1, with the ends of the table in place; NaN for a level out of range."""
    inner = jnp.where(rank <= n, jnp.minimum(bounds, 1), 1)
    return jnp.where(jnp.isnan(value), jnp.nan, jnp.where(rank == 0, 0, inner)).astype(value.dtype)


def _process_constant(n: jax.Array, value: jax.Array) -> jax.Array:
    """c_n(delta); meaningless below n = 17."""
    size = jnp.maximum(n, LEAST_ASYMPTOTIC).astype(value.dtype)
    twice = jnp.log(jnp.log(size))
    top = -jnp.log(-jnp.log1p(-value)) + 2 * twice + (jnp.log(twice) - jnp.log(jnp.pi)) / 2
    return (top / jnp.sqrt(2 * twice)).astype(value.dtype)


def _linear_width(n: jax.Array, rank: jax.Array, dtype: Any) -> jax.Array:
    """sqrt(r(n-r))/n^(3/2) up to n/2, continued beyond by its last increment."""
    size = jnp.maximum(n, 1).astype(dtype)

    def width(r: jax.Array) -> jax.Array:
        place = r.astype(dtype)
        return jnp.sqrt(place * jnp.maximum(1 - place / size, 0)) / size

    half = jnp.maximum(n // 2, 1)
    last, before = width(half), width(half - 1)
    return jnp.where(rank <= half, width(rank), last + (last - before) * (rank - half).astype(dtype)).astype(dtype)


def _allowed_count(delta: Any, count: int) -> jax.Array:
    """floor(delta·count), exact where delta is known as a fraction."""
    level = lattice.as_level(delta)
    if lattice.is_exact(level):
        return lattice.floor_ratio((level.numerator, count), (level.denominator,), count)
    return jnp.clip(jnp.floor(jnp.nan_to_num(level.value) * count), 0, count - 1).astype(jnp.int32)
