"""Combinations of K p-values into one: Cauchy's, and Fisher's, Pearson's, Stouffer's and Tippett's.

Cauchy: T = sum of w_k·cot(pi·p_k), p = atan2(1, T)/pi. The textbook form tan((1/2 - p)·pi) loses every digit for small
p (in float32 its sign flips below p = 1.5e-8). Here the argument of the tangent never exceeds pi/4 and is always an
exact difference, so the combination keeps its relative accuracy down to the smallest normal float; `log_cauchy` has no
smallest p-value at all.

Fisher, Pearson, Stouffer, Tippett: super-uniform in finite samples for independent super-uniform p-values; dependence
voids them. Upper tails are computed as such, never as 1 - cdf.

All take [..., K, ...] in [0, 1] with K on `axis`; NaN, or a value outside [0, 1], gives NaN; K = 0 raises ValueError.

References: Liu & Xie (2020), "Cauchy combination test"; TD4Eval, eq. 8-9.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri

from tdd.kernels import ranks
from tdd.kernels.gamma_tails import gamma_tails
from tdd.kernels.platforms import over_rows

__all__ = [
    "Combined",
    "cauchy",
    "cauchy_statistic",
    "fisher",
    "log_cauchy",
    "pearson",
    "stouffer",
    "tippett",
    "truncated_cauchy",
]

_LOG_PI = math.log(math.pi)
_TAN_PI_8, _COT_PI_8 = math.sqrt(2) - 1, math.sqrt(2) + 1
# The odd polynomials of Moshier (1989), "Methods and Programs for Mathematical Functions": Cephes' tanf and atanf.
_TANGENT = (9.38540185543e-3, 3.11992232697e-3, 2.44301354525e-2, 5.34112807005e-2, 1.33387994085e-1, 3.33331568548e-1)
_ARCTANGENT = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_FAR = 20  # beyond e^20, arctan(1/T) is 1/T and tan(x) is x to double precision


class Combined(NamedTuple):
    """One p-value for each group of K, and the statistic behind it."""

    p_value: jax.Array  # [...] the combined p-value
    statistic: jax.Array  # [...] what it was computed from


def cauchy(p_values: jax.Array, *, weights: jax.Array | None = None, axis: int = -1) -> jax.Array:
    """Cauchy combination p = atan2(1, T)/pi, T = sum_k w_k·cot(pi·p_k) / sum_k w_k.

    Guarantee: asymptotic: P(p <= t)/t -> 1 as t -> 0 for K uniform p-values that are pairwise bivariate normal scores,
    with fixed weights; exact at any t for independent ones. At usual levels the size exceeds t under dependence
    (.24 at .2 for K = 10 and correlation .3). Weights that depend on the p-values void it.

    Args:
      p_values: [..., K, ...] in [0, 1]. 0 gives 0 and 1 gives 1; both together, with positive weights, give NaN: the
        evidence is contradictory without bound. A single p-value with a positive weight is returned as it is.
      weights: [K] or the shape of `p_values`, not negative; equal by default. A p-value of weight 0 is ignored, NaN
        included. Only ratios matter. A weight that is negative or not finite, or only zeros, give NaN; another shape
        raises ValueError.
      axis: Axis of K.

    References: Liu & Xie (2020), eq. 2-3; TD4Eval, eq. 8-9.
    """
    p, w = operands(p_values, weights, axis)
    combined = _upper_tail(_statistic(w, cotangent(p)))
    if weights is None:
        return jnp.where(jnp.isnan(combined), combined, p[0]) if p.shape[0] == 1 else combined
    used, _ = _fractions(w)
    alone = over_rows(jnp.sum, jnp.where(used, p, 0))
    return jnp.where((jnp.sum(used, axis=0) == 1) & ~jnp.isnan(combined), alone, combined)


def cauchy_statistic(p_values: jax.Array, *, weights: jax.Array | None = None, axis: int = -1) -> jax.Array:
    """T of `cauchy`, the weighted mean of cot(pi·p_k): standard Cauchy for independent uniform p-values.

    Arguments and NaN as `cauchy`. Infinite where a p-value is 0 or 1.
    """
    p, w = operands(p_values, weights, axis)
    return _statistic(w, cotangent(p))


def truncated_cauchy(
    p_values: jax.Array, *, tau: float = 0.5, weights: jax.Array | None = None, axis: int = -1
) -> Combined:
    """Cauchy combination of the p-values below tau; the others count as 0 in the mean of all K.

    T = sum_k w_k·1{p_k < tau}·cot(pi·p_k) / sum_k w_k, so that one p-value near 1 cannot cancel strong evidence.
    T = 0 and p = 1/2 where no p-value is below tau.

    Guarantee: asymptotic, as `cauchy`; never smaller than the full statistic for tau >= 1/2, so less conservative.

    Other arguments and NaN as `cauchy`. Raises ValueError: static tau outside (0, 1].
    References: Fang, Chang, Park & Tseng (2023), "Heavy-tailed distribution for combining dependent p-values".
    """
    if not isinstance(tau, jax.Array) and not 0 < tau <= 1:
        raise ValueError(f"tau must lie in (0, 1], got {tau!r}")
    p, w = operands(p_values, weights, axis)
    statistic = _statistic(w, jnp.where(in_range(p) >= tau, 0, cotangent(p)))
    return Combined(_upper_tail(statistic), statistic)


def log_cauchy(log_p_values: jax.Array, *, weights: jax.Array | None = None, axis: int = -1) -> jax.Array:
    """`cauchy` on natural logarithms: log p_k -> log p, with no underflow at either end.

    The relative error of the combined p-value is that of the inputs, |log p|·eps: p = 1e-300 and 1 - 1e-30 are
    ordinary values here, in float32 too.

    `log_p_values` [..., K, ...] lie in [-inf, 0]; -inf is p = 0 and 0 is p = 1. A positive one gives NaN. Other
    arguments as `cauchy`. Returns log p, [...].
    """
    log_p, w = operands(log_p_values, weights, axis)
    log_p = jnp.where(log_p <= 0, log_p, jnp.nan)
    used, fractions = _fractions(w)
    sign, size = _log_cotangent(log_p)
    # T = scaled·e^top. A cotangent of 0 has size -inf and adds nothing; one of infinity must not meet the scale.
    top = over_rows(jnp.max, jnp.where(used & jnp.isfinite(size), size, 0))
    terms = jnp.where(size == jnp.inf, sign * size, fractions * sign * jnp.exp(size - top[None]))
    scaled = over_rows(jnp.sum, jnp.where(used, terms, 0))
    log_t = top + jnp.log(jnp.abs(scaled))
    near = jnp.arctan2(jnp.ones_like(log_t), jnp.exp(jnp.minimum(log_t, 2 * _FAR))) / jnp.pi  # the upper tail of |T|
    log_tail = jnp.where(log_t > _FAR, -log_t - _LOG_PI, jnp.log(near))
    combined = jnp.where(scaled >= 0, log_tail, jnp.log1p(-jnp.exp(log_tail)))
    alone = over_rows(jnp.sum, jnp.where(used, log_p, 0))
    return jnp.where((jnp.sum(used, axis=0) == 1) & ~jnp.isnan(combined), alone, combined)


def fisher(p_values: jax.Array, *, axis: int = -1) -> Combined:
    """-2·sum log p_k against the upper tail of chi-squared with 2K degrees of freedom.

    With s = -sum log p_k the tail is e^-s·(1 + s + ... + s^(K-1)/(K-1)!); see `gamma_tails`. p = 0 and the statistic is
    infinite where a p-value is 0.

    References: Fisher (1925).
    """
    p = probabilities(p_values, axis)
    total = -over_rows(jnp.sum, jnp.log(p))
    _, tail = gamma_tails(p.shape[0], jnp.where(total == jnp.inf, 1, total))
    return Combined(jnp.where(total == jnp.inf, 0, tail), 2 * total)


def pearson(p_values: jax.Array, *, axis: int = -1) -> Combined:
    """-2·sum log(1 - p_k), small where all p-values are, against the lower tail of chi-squared with 2K df.

    `statistic` is 2·sum log(1 - p_k) <= 0. p = 1 where a p-value is 1.

    References: Pearson (1933).
    """
    p = probabilities(p_values, axis)
    total = -over_rows(jnp.sum, jnp.log1p(-p))
    tail, _ = gamma_tails(p.shape[0], jnp.where(total == jnp.inf, 1, total))
    return Combined(jnp.where(total == jnp.inf, 1, tail), -2 * total)


def stouffer(p_values: jax.Array, *, weights: jax.Array | None = None, axis: int = -1) -> Combined:
    """Z = sum w_k·z_k / sqrt(sum w_k^2), z_k the upper normal quantile of p_k; p = P(N(0,1) >= Z).

    The weights must be fixed; their shapes and NaN as in `cauchy`. p-values 0 and 1 together give NaN.

    References: Stouffer et al. (1949); Liptak (1958) for the weights.
    """
    p, w = operands(p_values, weights, axis)
    largest = jnp.max(w, axis=0, keepdims=True)
    fine = jnp.all((w >= 0) & jnp.isfinite(w), axis=0, keepdims=True) & (largest > 0)
    w = jnp.where(fine, w / largest, jnp.nan)
    quantiles = -ndtri(in_range(p))
    z = over_rows(jnp.sum, jnp.where(w == 0, 0, w * quantiles)) / jnp.sqrt(over_rows(jnp.sum, w * w))
    return Combined(ndtr(-z), z)


def tippett(p_values: jax.Array, *, axis: int = -1) -> Combined:
    """min p_k, against 1 - (1 - min)^K. References: Tippett (1931)."""
    p = probabilities(p_values, axis)
    least = over_rows(jnp.min, p)
    return Combined(-jnp.expm1(p.shape[0] * jnp.log1p(-least)), least)


def operands(p_values: jax.Array, weights: jax.Array | None, axis: int) -> tuple[jax.Array, jax.Array]:
    """p-values [K, ...] and weights [K or K, ...] of one floating type, K in front, ready to broadcast."""
    p = jnp.asarray(p_values)
    p = p.astype(ranks.common(p.dtype, jnp.float32) if jnp.issubdtype(p.dtype, jnp.floating) else float)
    if p.ndim == 0 or p.shape[axis] == 0:
        raise ValueError(f"there must be at least one p-value along axis {axis}, got shape {p.shape}")
    front = jnp.moveaxis(p, axis, 0)
    if weights is None:
        return front, jnp.ones((front.shape[0],) + (1,) * (front.ndim - 1), p.dtype)
    w = jnp.asarray(weights).astype(p.dtype)
    if w.shape == p.shape:
        return front, jnp.moveaxis(w, axis, 0)
    if w.shape != front.shape[:1]:
        raise ValueError(f"weights must have shape {front.shape[:1]} or {p.shape}, got {w.shape}")
    return front, w.reshape(w.shape + (1,) * (front.ndim - 1))


def in_range(p: jax.Array) -> jax.Array:
    """p, NaN outside [0, 1]."""
    return jnp.where((p >= 0) & (p <= 1), p, jnp.nan)


def probabilities(p_values: jax.Array, axis: int) -> jax.Array:
    """p-values [K, ...] of a floating type, K in front; NaN outside [0, 1]."""
    return in_range(operands(p_values, None, axis)[0])


def cotangent(p: jax.Array) -> jax.Array:
    """cot(pi·p), accurate in relative terms on all of [0, 1]; NaN elsewhere."""
    p = in_range(p)
    low, high = p <= 0.25, p >= 0.75
    tangent = _small_tangent(jnp.pi * jnp.where(low, p, jnp.where(high, 1 - p, 0.5 - p)))
    return jnp.where(low, 1 / tangent, jnp.where(high, -1 / tangent, tangent))


def _log_cotangent(log_p: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sign and logarithm of the size of cot(pi·p)."""
    half = -math.log(2)
    q = jnp.where(log_p < half, jnp.exp(log_p), -jnp.expm1(log_p))  # the distance of p from the nearer end
    near = q < 0.25
    tangent = jnp.log(jnp.tan(jnp.pi * jnp.where(near, q, 0.5 - q)))
    size = jnp.where(log_p < -_FAR, -log_p - _LOG_PI, jnp.where(near, -tangent, tangent))
    return jnp.where(log_p < half, 1, -1).astype(log_p.dtype), size


def _fractions(w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The p-values that are used, and weights that sum to 1; NaN everywhere for unusable weights."""
    largest = jnp.max(w, axis=0, keepdims=True)
    fine = jnp.all((w >= 0) & jnp.isfinite(w), axis=0, keepdims=True) & (largest > 0)
    scaled = w / largest
    fractions = jnp.where(fine, scaled / jnp.sum(scaled, axis=0, keepdims=True), jnp.nan)
    return jnp.where(fine, w > 0, True), fractions


def _statistic(w: jax.Array, cotangents: jax.Array) -> jax.Array:
    used, fractions = _fractions(w)
    return over_rows(jnp.sum, jnp.where(used, fractions * cotangents, 0))


def _upper_tail(statistic: jax.Array) -> jax.Array:
    """P(standard Cauchy >= T)."""
    if statistic.dtype != jnp.float32:
        return jnp.minimum(jnp.arctan2(jnp.ones_like(statistic), statistic) / jnp.pi, 1)
    size = jnp.abs(statistic)
    far, near = size > _COT_PI_8, size < _TAN_PI_8
    small = _small_arctangent(jnp.where(far, 1 / size, jnp.where(near, size, (size - 1) / (size + 1)))) / jnp.pi
    tail = jnp.where(far, small, jnp.where(near, 0.5, 0.25) - small)
    return jnp.where(statistic < 0, 1 - tail, tail)


def _small_tangent(x: jax.Array) -> jax.Array:
    """tan(x) for |x| <= pi/4; in single precision by a polynomial that the compiler vectorises, unlike its own tan."""
    return jnp.tan(x) if x.dtype != jnp.float32 else _odd(x, _TANGENT)


def _small_arctangent(x: jax.Array) -> jax.Array:
    """arctan(x) for |x| <= tan(pi/8) in single precision."""
    return _odd(x, _ARCTANGENT)


def _odd(x: jax.Array, coefficients: tuple[float, ...]) -> jax.Array:
    """x + x^3·(c_0 x^(2k) + ... + c_k)."""
    square = x * x
    value = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * square + coefficient
    return value * square * x + x
