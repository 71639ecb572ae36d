"""Student's t: the upper tail and its logarithm at any degrees of freedom, and the one-sided test of a mean.

The tail P(T >= t) = I_x(df/2, 1/2) / 2 with x = df/(df + t^2) is written, for t > 1, as

    sqrt((1/t^2 + 1/df) / (2 pi)) · c(df) · (1 + t^2/df)^(-df/2) · F(1, 1/2; df/2 + 1; -df/t^2),

c(df) = Gamma(df/2 + 1/2) / (Gamma(df/2) sqrt(df/2)), F Gauss's continued fraction. Every factor is positive and none
cancels, so single precision suffices from df = 1 to the normal limit df = inf.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import ranks

__all__ = ["OneSample", "log_sf", "one_sample", "sf"]

# log(Gamma(a + 1/2) / Gamma(a)) - log(a)/2 in powers a^-1, a^-3, ...
_HALF_STEP = (-1 / 8, 1 / 192, -1 / 640, 17 / 14336, -31 / 18432, 691 / 180224)
_SHIFT = 16  # the series is used from here on: its first left-out term is below 1e-17
_CENTRE_TERMS = 30  # at |t| <= 1 and df >= 1 the ratio of terms tends to at most 1/2; twice as many in float64
_FRACTION_TERMS = {4: 40, 8: 180}  # by bytes of the type; the slowest case is t = 1 in the normal limit


class OneSample(NamedTuple):
    """One-sided one-sample t-test."""

    statistic: jax.Array  # [] t; NaN where there is no test
    p_value: jax.Array  # [] P(T >= t), 1 where there is no test
    log_p_value: jax.Array  # [] its logarithm, 0 where there is no test
    mean: jax.Array  # [] of the values
    skewness: jax.Array  # [] third standardised moment (0 where there is no test)
    num_values: jax.Array  # [] int32, r without masked and NaN values


def log_sf(t: Any, df: Any) -> jax.Array:
    """log P(T >= t) for Student's t, element-wise.

    Relative accuracy is a few machine epsilons of the float type for df >= 1, at any t: finite far below the logarithm
    of the smallest float. Near 0, for t far below 0, it has the relative accuracy of `sf` at -t.

    t = +inf gives -inf, NaN gives NaN; df > 0 may be traced and infinite, others give NaN.

    Returns: Array of the broadcast shape.
    References: DLMF 15.8.1, 15.7.5 (the continued fraction), 5.11.13 (ratios of gamma functions).
    """
    return _tail(t, df)[1]


def sf(t: Any, df: Any) -> jax.Array:
    """P(T >= t) for Student's t, element-wise; `exp(log_sf)`, without the logarithm near the centre.

    Arguments as `log_sf`. The relative error is |log P| machine epsilons: a logarithm was rounded.
    """
    return _tail(t, df)[0]


def one_sample(values: jax.Array, *, mask: jax.Array | None = None, noise: Any = 0.0) -> OneSample:
    """Test whether the mean of the values is 0 against its being positive: t = mean / (sd / sqrt(r)), r - 1 df.

    The variance has ddof = 1. **Guarantee**: exact size for normal values; for other laws asymptotic in r. Values with
    a long left tail are rejected too often: to second order the size at alpha exceeds alpha by
    -skewness·phi(z)(2 z^2 + 1) / (6 sqrt(r)), phi the normal density at its upper alpha quantile z.

    There is no test, and p = 1, for fewer than two values and where all values are equal within `noise`: an infinite t
    would reject with probability 2^-r when values are +-1.

    Args:
      values, mask: [r], and bool, True = real item; NaN is left out besides.
      noise: [] standard deviations up to this (and up to 10 machine epsilons of the largest value) count as 0.

    Cost: O(r).
    References: the sharded exchangeability test, algorithm 1.
    """
    values = jnp.asarray(values)
    real = ranks.real(values, mask)
    count = jnp.sum(real, dtype=jnp.int32)
    size = jnp.maximum(count, 1).astype(values.dtype)
    largest = jnp.max(jnp.where(real, jnp.abs(values), 0), initial=0)
    unit = jnp.where(largest > 0, largest, 1)  # squares and cubes of scaled values neither overflow nor vanish
    scaled = jnp.where(real, values, 0) / unit
    mean = jnp.sum(scaled) / size
    deviation = jnp.where(real, scaled - mean, 0)
    sum_of_squares = jnp.sum(deviation**2)
    sd = jnp.sqrt(sum_of_squares / jnp.maximum(size - 1, 1))
    tested = (count >= 2) & (sd * unit > jnp.maximum(noise, 10 * jnp.finfo(values.dtype).eps * largest))
    safe = jnp.where(tested, sd, 1)
    statistic = mean / (safe / jnp.sqrt(size))
    df = jnp.where(tested, size - 1, 1)
    spread = jnp.sqrt(jnp.where(tested, sum_of_squares / size, 1))
    skewness = jnp.sum((deviation / spread) ** 3) / size
    p_value, log_p_value = _tail(statistic, df)
    return OneSample(
        jnp.where(tested, statistic, jnp.nan),
        jnp.where(tested, p_value, 1),
        jnp.where(tested, log_p_value, 0),
        mean * unit,
        jnp.where(tested, skewness, 0),
        count,
    )


def _tail(t: Any, df: Any) -> tuple[jax.Array, jax.Array]:
    """P(T >= t) and its logarithm."""
    dtype = ranks.common(ranks.common(t, df), jnp.float32)
    t, df = jnp.broadcast_arrays(jnp.asarray(t, dtype), jnp.asarray(df, dtype))
    inner = jnp.abs(t) <= 1
    middle, log_tail = 0.5 - _centre(t, df), _log_tail(t, df)
    tail = jnp.exp(log_tail)
    p = jnp.where(inner, middle, jnp.where(t >= 0, tail, 1 - tail))
    log_p = jnp.where(inner, jnp.log(middle), jnp.where(t >= 0, log_tail, jnp.log1p(-tail)))
    return jnp.where(df > 0, p, jnp.nan), jnp.where(df > 0, log_p, jnp.nan)


def _log_half_step(a: jax.Array) -> jax.Array:
    """log(Gamma(a + 1/2) / (Gamma(a) sqrt(a))), 0 at a = inf."""
    small = a < _SHIFT
    low = jnp.where(small, a, 1)
    steps = jnp.ones_like(a)
    for i in range(_SHIFT):
        steps = steps * ((low + i) / (low + i + 0.5))
    shifted = jnp.log(steps) + 0.5 * jnp.log1p(_SHIFT / low)
    inverse = 1 / jnp.where(small, a + _SHIFT, a)
    series = jnp.zeros_like(a)
    for coefficient in reversed(_HALF_STEP):
        series = series * inverse**2 + coefficient
    return series * inverse + jnp.where(small, shifted, 0)


def _log_kernel(square: jax.Array, t: jax.Array, df: jax.Array) -> jax.Array:
    """(df/2) log(1 + t^2/df), also where t^2 overflows or df is infinite."""
    ratio = square / df
    far = ratio > 1
    near = jnp.where(far | (ratio < 1e-30), 1, ratio)
    close = 0.5 * square * jnp.where(ratio < 1e-30, 1, jnp.log1p(near) / near)
    outer = jnp.where(far, jnp.abs(t) / jnp.sqrt(df), 1)
    return jnp.where(far, df * (jnp.log(outer) + 0.5 * jnp.log1p(outer**-2.0)), close)


def _log_tail(t: jax.Array, df: jax.Array) -> jax.Array:
    """log P(T >= |t|) for |t| >= 1 (smaller |t| are taken as 1)."""
    t = jnp.where(jnp.abs(t) < 1, 1, jnp.abs(t))
    inverse_square, step = (1 / t) ** 2, 2 / df

    def convergent(i: jax.Array, below: jax.Array) -> jax.Array:
        m = (terms - 1 - i).astype(t.dtype)
        odd = (2 * m + 1) * (1 + m * step) / ((1 + 2 * m * step) * (1 + (2 * m + 1) * step))
        even = (2 * m + 2) * (1 + (m + 0.5) * step) / ((1 + (2 * m + 1) * step) * (1 + (2 * m + 2) * step))
        return 1 + odd * inverse_square / (1 + even * inverse_square / below)

    terms = _FRACTION_TERMS[jnp.dtype(t.dtype).itemsize]
    fraction = jax.lax.fori_loop(0, terms, convergent, jnp.ones_like(t))
    scale = 0.5 * jnp.log((inverse_square + 1 / df) / (2 * math.pi))
    return scale + _log_half_step(df / 2) - _log_kernel(t * t, t, df) - jnp.log(fraction)


def _centre(t: jax.Array, df: jax.Array) -> jax.Array:
    """P(0 <= T <= t) for |t| <= 1, odd in t, by a series of positive terms."""
    t = jnp.clip(t, -1, 1)
    square = t * t
    half_over = 0.5 + 0.5 / df  # (df + 1)/2 over df
    y = 1 / (1 + square / df)  # the density at t is the normal-like factor times sqrt(y)

    def add(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        term, total = state
        n = i.astype(t.dtype)
        term = term * (half_over + n / df) * square * y / (1.5 + n)
        return term, total + term

    ones = jnp.ones_like(t)
    terms = _CENTRE_TERMS * (2 if jnp.dtype(t.dtype).itemsize > 4 else 1)
    _, total = jax.lax.fori_loop(0, terms, add, (ones, ones))
    log_density = _log_half_step(df / 2) - _log_kernel(square, t, df) + 0.5 * jnp.log(y) - 0.5 * math.log(2 * math.pi)
    return t * jnp.exp(log_density) * total
