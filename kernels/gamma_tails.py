"""Both tails of a gamma variable with a whole shape, accurate in relative terms for shapes from 1 to millions.

P(G_K <= t) and P(G_K > t) are the upper and the lower tail of a Poisson count with mean t at K. Each Poisson
probability is c_i·exp(-D) with a constant c_i and the deviance D = i·h((t - i)/i), h(d) = d - log(1 + d); the form
i·log t - t - log i! would lose log10(i·log t) digits. About 9·sqrt(K) terms suffice on the side where they fall.

References: Loader (2000), "Fast and accurate computation of binomial probabilities".
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["gamma_tails"]

_NEAR = 0.1
_LEFT, _SPREAD = 40, 9  # terms beyond 9·sqrt(K) + 40 are below 1e-17 of the largest
_DEEP = 40  # minus a logarithm
_STIRLING = 16  # smallest number from which five terms of Stirling's series are exact in double precision


def gamma_tails(shape: int, value: jax.Array) -> tuple[jax.Array, jax.Array]:
    """P(G <= t) and P(G > t) for G ~ Gamma(K, 1).

    Args:
      shape: static K >= 1.
      value: [...] finite t >= 0, floating.

    Returns:
      ([...], [...]); the smaller one of the two to about a hundred roundings, down to the smallest normal number.

    Cost: O(sqrt(K)) for each t, a term after the other; memory of the values.
    """
    most = math.ceil(_SPREAD * math.sqrt(shape)) + _LEFT
    count = min(shape, most)
    upper = _probabilities(np.arange(shape - count, shape), value)  # of counts below K: they rise where t >= K
    lower = _probabilities(np.arange(shape, shape + most)[::-1], value)  # of the others: they fall where t <= K
    small = value < shape
    above = upper if count == shape else jnp.where(small, 1 - lower, upper)
    return jnp.where(small, lower, 1 - upper), above


def _probabilities(counts: np.ndarray, mean: jax.Array) -> jax.Array:
    """The sum of the Poisson probabilities of some counts, [...], added in their order.

    In a small tail the last is the largest; where it is very small, all are added in a unit in which none underflows.
    """
    t = jnp.where(mean == 0, 1, mean)

    def log_probability(i: jax.Array, constant: jax.Array) -> jax.Array:
        return constant - i * _h((t - i) / i, t / i)

    def add(so_far: jax.Array, term: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return so_far + jnp.exp(log_probability(*term) + unit), None

    positive = counts[counts > 0].astype(np.float64)
    terms = (jnp.asarray(positive, mean.dtype), jnp.asarray(_log_constants(positive), mean.dtype))
    last = log_probability(terms[0][-1], terms[1][-1]) if len(positive) else -t
    unit = lax.stop_gradient(jnp.where(last < -_DEEP, _DEEP, 0).astype(mean.dtype))
    start = jnp.exp(unit - t) if counts[0] == 0 else jnp.zeros_like(mean)
    total = jnp.minimum(lax.scan(add, start, terms)[0] * jnp.exp(-unit), 1)
    return jnp.where(mean == 0, float(counts[0] == 0), total)


def _h(d: jax.Array, ratio: jax.Array) -> jax.Array:
    """d - log(1 + d) for d = ratio - 1, by the series of 2·artanh(d/(2 + d)) near 0."""
    near = jnp.abs(d) < _NEAR
    r = jnp.where(near, d, 0) / (2 + jnp.where(near, d, 0))
    square = r * r
    series = jnp.zeros_like(r)
    for odd in (13, 11, 9, 7, 5, 3):
        series = series * square + 1 / odd
    return jnp.where(near, r * (d - 2 * square * series), d - jnp.log(ratio))


def _log_constants(i: np.ndarray) -> np.ndarray:
    """log of i^i·e^-i/i! for i >= 1."""
    small = np.array([math.lgamma(x + 1) - x * math.log(x) + x for x in np.minimum(i, _STIRLING)])
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / (1188 * i**2)) / i**2) / i**2) / i**2) / i
    return -np.where(i < _STIRLING, small, series + 0.5 * np.log(2 * np.pi * i))
