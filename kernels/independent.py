"""Combinations of independent p-values: Fisher, Pearson, Stouffer, Tippett.

All are exact for K independent uniform p-values and conservative for super-uniform ones; dependence voids them.
Upper tails are computed as such, never as 1 - cdf. All take [..., K, ...] in [0, 1] with K on `axis` and return
`Combined` of [...]; NaN among the p-values, or a value outside [0, 1], gives NaN; K = 0 raises ValueError.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import gammainc, logsumexp, ndtr, ndtri

from tdd.kernels import combine
from tdd.kernels.combine import Combined

__all__ = ["fisher", "pearson", "stouffer", "tippett"]


def fisher(p_values: jax.Array, *, axis: int = -1) -> Combined:
    """-2·sum log p_k against the upper tail of chi-squared with 2K degrees of freedom.

    With s = -sum log p_k the tail is e^-s·(1 + s + ... + s^(K-1)/(K-1)!): a sum of positive terms, taken in logarithms.

    Guarantee: super-uniform for independent p-values; finite-sample.

    Returns:
      `Combined`; p = 0 and an infinite statistic where a p-value is 0.

    References: Fisher (1925).
    """
    p = _probabilities(p_values, axis)
    total = -jnp.sum(jnp.log(p), axis=0)
    finite = jnp.where(total == jnp.inf, 1, total)
    log_terms = jnp.stack([_log_power(finite, i) - math.lgamma(i + 1) for i in range(p.shape[0])])
    log_tail = jnp.minimum(logsumexp(log_terms, axis=0) - finite, 0)
    return Combined(jnp.where(total == jnp.inf, 0, jnp.exp(log_tail)), 2 * total)


def pearson(p_values: jax.Array, *, axis: int = -1) -> Combined:
    """2·sum log(1 - p_k), small where all p-values are small, against the lower tail of chi-squared.

    Guarantee: super-uniform for independent p-values; finite-sample.

    Returns:
      `Combined` with the statistic 2·sum log(1 - p_k) <= 0; p = 1 where a p-value is 1.

    References: Pearson (1933).
    """
    p = _probabilities(p_values, axis)
    total = -jnp.sum(jnp.log1p(-p), axis=0)
    shape = jnp.full_like(total, p.shape[0])
    tail = gammainc(shape, jnp.where(total == jnp.inf, 0, total))
    return Combined(jnp.where(total == jnp.inf, 1, tail), -2 * total)


def stouffer(p_values: jax.Array, *, weights: jax.Array | None = None, axis: int = -1) -> Combined:
    """Z = sum w_k·z_k / sqrt(sum w_k^2), z_k the upper normal quantile of p_k; p = P(N(0,1) >= Z).

    Guarantee: super-uniform for independent uniform p-values and fixed weights; finite-sample.

    Args:
      p_values: [..., K, ...].
      weights: [K] or the shape of `p_values`, not negative; equal by default. A p-value of weight 0 is ignored.
      axis: where K is.

    Returns:
      `Combined`. p-values 0 and 1 together give NaN, as do weights that are negative, not finite or all 0.

    References: Stouffer et al. (1949); Liptak (1958) for the weights.
    """
    p, w = combine.operands(p_values, weights, axis)
    largest = jnp.max(w, axis=0, keepdims=True)
    fine = jnp.all((w >= 0) & jnp.isfinite(w), axis=0, keepdims=True) & (largest > 0)
    w = jnp.where(fine, w / largest, jnp.nan)
    quantiles = -ndtri(combine.in_range(p))
    z = jnp.sum(jnp.where(w == 0, 0, w * quantiles), axis=0) / jnp.sqrt(jnp.sum(w * w, axis=0))
    return Combined(ndtr(-z), z)


def tippett(p_values: jax.Array, *, axis: int = -1) -> Combined:
    """min p_k, against 1 - (1 - min)^K.

    Guarantee: super-uniform for independent p-values; finite-sample.

    References: Tippett (1931).
    """
    p = _probabilities(p_values, axis)
    least = jnp.min(p, axis=0)
    return Combined(-jnp.expm1(p.shape[0] * jnp.log1p(-least)), least)


def _probabilities(p_values: jax.Array, axis: int) -> jax.Array:
    return combine.in_range(combine.operands(p_values, None, axis)[0])


def _log_power(total: jax.Array, i: int) -> jax.Array:
    """log(total^i), 0 for i = 0."""
    return jnp.zeros_like(total) if i == 0 else i * jnp.log(total)
