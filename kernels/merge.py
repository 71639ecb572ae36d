"""p-values merged without any assumption on their dependence.

Guarantee of all but `simes`: if each of p_1..p_K is super-uniform under the null, so is the merged value, whatever the
joint law: P(merged <= t) <= t for every t; finite-sample. Everything is cut at 1, and one p-value (K = 1) is returned
as it is. NaN among the p-values, or a value outside [0, 1], gives NaN. All take [..., K, ...] with K on `axis` and
return [...]; K = 0 raises ValueError. Cost: O(K) unless said otherwise.

References: Vovk & Wang (2020), "Combining p-values via averaging", Biometrika 107.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels.combine import probabilities
from tdd.kernels.platforms import over_rows

__all__ = [
    "bonferroni",
    "geometric",
    "harmonic",
    "harmonic_constant",
    "hommel",
    "maximum",
    "ruger",
    "simes",
    "twice_mean",
]

_PAIRWISE = 16  # up to here, comparing all pairs is cheaper than XLA's sort


def bonferroni(p_values: jax.Array, *, axis: int = -1) -> jax.Array:
    """K·min p_k."""
    p = probabilities(p_values, axis)
    return _cut(p.shape[0] * over_rows(jnp.min, p))


def simes(p_values: jax.Array, *, axis: int = -1) -> jax.Array:
    """min over k of K·p_(k)/k.

    Guarantee: super-uniform for independent or positively dependent (PRDS) p-values only; finite-sample. Under any
    dependence take `hommel`. Cost O(K^2) for K <= 16, else a sort.

    References: Simes (1986); Sarkar (1998).
    """
    return _cut(_simes(probabilities(p_values, axis)))


def hommel(p_values: jax.Array, *, axis: int = -1) -> jax.Array:
    """(1 + 1/2 + ... + 1/K)·min over k of K·p_(k)/k. Cost as `simes`. References: Hommel (1983)."""
    p = probabilities(p_values, axis)
    harmonic_number = math.fsum(1 / k for k in range(1, p.shape[0] + 1))
    return _cut(harmonic_number * _simes(p))


def ruger(p_values: jax.Array, *, k: int | None = None, axis: int = -1) -> jax.Array:
    """K·p_(k)/k for one k fixed in advance; by default k = ceil(K/2), about twice the median.

    Raises ValueError: k outside 1..K.
    Cost: a sort of K.
    References: Rueger (1978).
    """
    p = probabilities(p_values, axis)
    size = p.shape[0]
    k = (size + 1) // 2 if k is None else k
    if not 1 <= k <= size:
        raise ValueError(f"k must lie in 1..{size}, got {k!r}")
    chosen = jnp.sort(p, axis=0)[k - 1]
    return _cut(jnp.where(jnp.any(jnp.isnan(p), axis=0), jnp.nan, chosen * (size / k)))


def maximum(p_values: jax.Array, *, axis: int = -1) -> jax.Array:
    """max p_k; super-uniform also where only one of the K nulls is true."""
    return over_rows(jnp.max, probabilities(p_values, axis))


def twice_mean(p_values: jax.Array, *, axis: int = -1) -> jax.Array:
    """2·(p_1 + ... + p_K)/K.

    References: Rueschendorf (1982); Vovk & Wang (2020), section 3.
    """
    p = probabilities(p_values, axis)
    factor = 1 if p.shape[0] == 1 else 2
    return _cut(factor * over_rows(jnp.sum, p) / p.shape[0])


def geometric(p_values: jax.Array, *, axis: int = -1) -> jax.Array:
    """e·(p_1·...·p_K)^(1/K), as a product of roots: no underflow before the p-values themselves.

    References: Vovk & Wang (2020), proposition 5.
    """
    p = probabilities(p_values, axis)
    factor = 1 if p.shape[0] == 1 else math.e
    return _cut(factor * over_rows(jnp.prod, p ** (1 / p.shape[0])))


def harmonic(p_values: jax.Array, *, axis: int = -1) -> jax.Array:
    """a_K·K/(1/p_1 + ... + 1/p_K) with the smallest valid constant a_K (`harmonic_constant`), above 1 for K > 1.

    References: Vovk & Wang (2020), proposition 6; Wilson (2019) for the uncorrected mean.
    """
    p = probabilities(p_values, axis)
    if p.shape[0] == 1:
        return _cut(p[0])  # a compiler may make p·p/p of p/(p/p), and p·p underflows
    least = over_rows(jnp.min, p)
    mean = p.shape[0] * least / over_rows(jnp.sum, least[None] / p)  # scaled by the least: no overflow of 1/p
    return _cut(harmonic_constant(p.shape[0]) * jnp.where(least == 0, 0, mean))


@functools.cache
def harmonic_constant(num_p_values: int) -> float:
    """The smallest a with a·(harmonic mean of K p-values) super-uniform under every dependence.

    a = (y + K)^2 / (K (y + 1)) with y > 0 the solution of y^2 = K ((y + 1) log(y + 1) - y), for K >= 3; 2 for K = 2
    and 1 for K = 1. It grows as log K. On the host.

    >>> [round(harmonic_constant(k), 3) for k in (2, 3, 5, 10)]
    [2.0, 2.746, 3.565, 4.56]

    References: Vovk & Wang (2020), proposition 6.
    """
    k = num_p_values
    if k < 3:
        return float(k)
    # Divided by y^2, the left side falls from above 1 at 0 (its limit is K/2) towards 0.
    low, high = 0.0, 2.0 * k
    while k * ((high + 1) * math.log1p(high) - high) > high * high:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        above = k * ((middle + 1) * math.log1p(middle) - middle) > middle * middle
        low, high = (middle, high) if above else (low, middle)
    return (low + k) ** 2 / (k * (low + 1))


def _simes(p: jax.Array) -> jax.Array:
    size = p.shape[0]
    if size > _PAIRWISE:
        place = jnp.arange(1, size + 1, dtype=p.dtype).reshape((size,) + (1,) * (p.ndim - 1))
        # NaN is sorted to the end, where the minimum still finds it.
        return over_rows(jnp.min, size * jnp.sort(p, axis=0) / place)
    # Each p-value with the number of p-values up to it: within a tie the largest place decides, as in the order.
    place = jnp.sum(p[None] <= p[:, None], axis=1, dtype=jnp.int32).astype(p.dtype)
    return over_rows(jnp.min, jnp.where(jnp.isnan(p), jnp.nan, size * p / place))


def _cut(merged: jax.Array) -> jax.Array:
    return jnp.minimum(merged, np.asarray(1, merged.dtype))
