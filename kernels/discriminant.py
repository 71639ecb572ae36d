"""A linear score learned from K scores of the items of two classes, invariant to the order of the items to the bit.

Only ranks of the scores count, so that no law is assumed. That the result is the same to the bit whatever the order of
the items, and the same for items with equal scores, is what makes ranks of a learned score exact.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from tdd.kernels import conformal, platforms, ranks

__all__ = ["Discriminant", "discriminant"]

_RIDGE = 0.05  # in units of the variance of a normal score
_ROUNDS = 2


class Discriminant(NamedTuple):
    """A learned score."""

    statistic: jax.Array  # [N] g, large = like the second class; NaN for items that are masked out
    coefficients: jax.Array  # [K] b, of the normal scores, whose extreme end is the positive one


def discriminant(
    scores: jax.Array,
    label: jax.Array,
    *,
    null: Literal["nonmember", "member"],
    sparse: bool,
    mask: jax.Array | None = None,
) -> Discriminant:
    """g_i = sum over k of b_k·x_ki, b = (S + 0.05·I)^-1 d, the linear discriminant with shrunken means.

    x_ki is the normal score of item i in row k: the normal quantile at (mid-rank - 1/2)/N among all N real items, the
    extreme end positive. With n1 items in the first class, mean mu and covariance S (divisor n1), and w_i the weights
    of the second class, W their sum and nu the weighted mean: d_k = sign(nu_k - mu_k)·max(|nu_k - mu_k| - s_k, 0),
    s_k^2 = S_kk·(1/n1 + 1/W), one standard error. b = (1, ..., 1) where no d_k is left.

    With `sparse`, some items of the second class are like the first: w_i = max(0, 1 - F_i), F_i an estimate of the
    false discovery proportion among items at least as extreme as i, (1 + their number in the first class)/(n1 + 1)
    over the like fraction of the second class. First for each row and for the sum of the rows' ranks, the largest
    weight counting; then, once, for g. Without, every w_i is 1 and d = nu - mu.

    Invariance: items are sorted by their class and their ranks before anything is summed, and items of one class with
    equal ranks get the value of the first of them. One compiled program gives the same g to the bit under every order
    of the items within a class.

    Args:
      scores: [K, N] loss-like; an item with a NaN in any row is left out.
      label: [N] int32: 0 first class, 1 second class, 2 second class with weight 1; -1: ranked and given a value, in
        no class.
      null: "nonmember" (small scores are extreme) or "member" (large scores are).
      sparse: Static.
      mask: [N] bool, True = real item.

    Raises ValueError: unknown `null`.
    Cost: O(K N log N + K^2 N + K^3).
    References: Tibshirani, Hastie, Narasimhan & Chu (2002), "Diagnosis of multiple cancer types by shrunken centroids
    of gene expression", for the means; Hastie, Tibshirani & Friedman (2009), section 4.3.1, for the ridge.
    """
    conformal.check_null(null)
    size = scores.shape[1]
    real = ranks.real_columns(scores, mask)
    code = jnp.where(real, label, 3).astype(jnp.int32)
    place = jax.vmap(lambda row: _doubled_mid_rank(row, real))(scores)
    count = 2 * jnp.sum(real, dtype=jnp.int32)
    place = jnp.where(real[None], place if null == "member" else count - place, 0)
    index = jnp.arange(size, dtype=jnp.int32)
    code, *rows, order = jax.lax.sort((code, *place, index), num_keys=1 + len(place))
    place = jnp.stack(rows)
    new = jnp.any(place[:, 1:] != place[:, :-1], axis=0) | (code[1:] != code[:-1])
    new = jnp.concatenate([jnp.ones(min(size, 1), bool), new])
    first_equal = platforms.cummax(jnp.where(new, index, 0))
    dtype = jnp.result_type(float)
    quantile = place.astype(dtype) / jnp.maximum(count, 1).astype(dtype)
    x = jnp.where((code < 3)[None], ndtri(quantile), 0)[:, first_equal]
    first, second, known = code == 0, code == 1, (code == 2).astype(dtype)
    n1 = jnp.maximum(jnp.sum(first), 1).astype(dtype)
    mean = jnp.sum(jnp.where(first[None], x, 0), axis=1) / n1
    centred = jnp.where(first[None], x - mean[:, None], 0)
    covariance = jnp.matmul(centred, centred.T, precision=jax.lax.Precision.HIGHEST) / n1

    def direction(weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        weight = jnp.where(second, weight, known)
        total = jnp.maximum(jnp.sum(weight), jnp.finfo(dtype).tiny)
        difference = jnp.where(total > 1e-6, jnp.sum(x * weight[None], axis=1) / total - mean, 0)
        error = jnp.sqrt(jnp.diagonal(covariance) * (1 / n1 + 1 / total)) if sparse else 0
        left = jnp.sign(difference) * jnp.maximum(jnp.abs(difference) - error, 0)
        b = _solved(covariance + _RIDGE * jnp.eye(len(x), dtype=dtype), left)
        b = jnp.where(jnp.any(left != 0), b, 1)
        return b, jnp.sum(b[:, None] * x, axis=0)[first_equal]

    if sparse:
        every = jnp.concatenate([place, jnp.sum(place, axis=0, keepdims=True, dtype=place.dtype)])
        weight = jnp.max(jax.vmap(lambda row: _weights(row, first, second))(every), axis=0)
        for _ in range(_ROUNDS - 1):
            weight = _weights(direction(weight)[1], first, second)
    else:
        weight = jnp.ones(size, dtype)
    b, g = direction(weight)
    statistic = jnp.zeros(size, dtype).at[order].set(g)
    return Discriminant(jnp.where(real, statistic, jnp.nan), b)


def _solved(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """[K] x of matrix·x = right by Gauss-Jordan elimination without pivots, for a positive definite matrix.

    On every platform the same program, where `jnp.linalg.solve` calls a library of each.
    """

    def eliminated(k: jax.Array, system: jax.Array) -> jax.Array:
        row = system[k] / system[k, k]
        return (system - system[:, k, None] * row[None]).at[k].set(row)

    system = jnp.concatenate([matrix, right[:, None]], axis=1)
    return jax.lax.fori_loop(0, len(matrix), eliminated, system)[:, -1]


def _doubled_mid_rank(row: jax.Array, real: jax.Array) -> jax.Array:
    """[N] int32: twice the number of real items below, and those equal once: 1..2N - 1."""
    found = ranks.counts(row, row, calibration_mask=real, mask=real)
    return 2 * found.less + found.equal


def _weights(value: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
    """max(0, 1 - F_i) of each item, for a value of which large ones are extreme."""
    beyond = []
    for group in (first, second):
        found = ranks.counts(value, value, calibration_mask=group)
        beyond.append((found.num_calibration - found.less, found.num_calibration))
    (false, n1), (reached, n2) = beyond
    dtype = jnp.result_type(float)
    fraction = (1 + false).astype(dtype) / (1 + n1).astype(dtype)
    return jnp.maximum(1 - fraction * n2.astype(dtype) / jnp.maximum(reached, 1).astype(dtype), 0)
