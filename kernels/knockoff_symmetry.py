"""Exact tests that knockoffs of known non-members win as often as they should, given the sizes of the statistics.

Under the assumption behind a knockoff threshold the signs of the statistics of non-members are independent coins given
their absolute values, positive with probability 1/(1 + k'): the numbers of positive signs among all items, and among
those with the largest absolute values, are binomial.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import proportion, ranks

__all__ = ["Signs", "Tails", "binomial_tails", "count_signs", "signed_rank_tails"]


class Signs(NamedTuple):
    """Signs of the statistics that are neither 0, masked nor NaN."""

    positive: jax.Array  # [] int32
    total: jax.Array  # [] int32
    tail_positive: jax.Array  # [] int32, positive signs in the tail of |W|
    tail_total: jax.Array  # [] int32, items in the tail


class Tails(NamedTuple):
    """Natural logarithms of both one-sided p-values of an observation x of X."""

    log_upper: jax.Array  # [] log P(X >= x)
    log_lower: jax.Array  # [] log P(X <= x)
    statistic: jax.Array  # [] the observation, on a scale without units


def count_signs(w: jax.Array, *, tail: Any = 0.1, mask: jax.Array | None = None) -> Signs:
    """Count the positive statistics among all, and among the fraction `tail` with the largest |W|.

    The tail holds max(1, floor(tail·m)) of the m items with W != 0, and whatever ties with the last of them.

    `w` and `mask` are [n]; a static tail is exact. Raises ValueError: static tail outside (0, 1). Cost: one sort.
    """
    size = jnp.where(ranks.real(w, mask), jnp.abs(w), 0)
    total = jnp.sum(size > 0, dtype=jnp.int32)
    positive = (size > 0) & (w > 0)
    if w.shape[0] == 0:
        return Signs(total, total, total, total)
    count = proportion.tail_size(total, tail, w.shape[0])
    cut = jnp.sort(size)[w.shape[0] - jnp.minimum(count, w.shape[0])]
    inside = (size > 0) & (size >= cut)
    return Signs(
        jnp.sum(positive, dtype=jnp.int32),
        total,
        jnp.sum(positive & inside, dtype=jnp.int32),
        jnp.sum(inside, dtype=jnp.int32),
    )


def binomial_tails(successes: Any, trials: Any, *, num_knockoffs: int = 1, bound: int) -> Tails:
    """Both tails of Bin(trials, 1/(1 + num_knockoffs)) at `successes`, exact up to rounding and far below 1e-38.

    Sums of the ratios of neighbouring probabilities, taken outwards from the mode, where they are near 1.

    `successes` and `trials` are [] int32, `bound` a static upper bound of `trials`. `statistic` is successes/trials,
    NaN where there are no trials (both tails are 1 then). Cost: O(bound).
    """
    dtype = jnp.result_type(float)
    successes, trials = jnp.asarray(successes, jnp.int32), jnp.asarray(trials, jnp.int32)
    i = jnp.arange(bound + 1, dtype=jnp.int32)
    mode = (trials + 1) // (1 + num_knockoffs)
    # log P(X = i + 1)/P(X = i)
    step = jnp.log(jnp.maximum(trials - i, 1).astype(dtype)) - jnp.log((i + 1).astype(dtype) * num_knockoffs)
    up = jnp.cumsum(jnp.where((i >= mode) & (i < trials), step, 0))
    up = jnp.concatenate([jnp.zeros(1, dtype), up[:-1]])
    down = jax.lax.cumsum(jnp.where(i < mode, -step, 0), reverse=True)
    log_mass = jnp.where(i <= trials, jnp.where(i >= mode, up, down), -jnp.inf)
    whole = jax.nn.logsumexp(log_mass)
    regions = (i >= successes, i <= successes, i > successes, i < successes)
    at_least, at_most, above, below = (
        jax.nn.logsumexp(jnp.where(region, log_mass, -jnp.inf)) - whole for region in regions
    )
    fraction = successes.astype(dtype) / trials.astype(dtype)
    return Tails(_likely(at_least, below), _likely(at_most, above), fraction)


def signed_rank_tails(w: jax.Array, *, mask: jax.Array | None = None) -> Tails:
    """Wilcoxon's signed-rank statistic, standardised given |W|: mid-ranks for ties, zeros left out, normal tails.

    Guarantee: asymptotic in the number of items with W != 0.

    `statistic` is (sum of sign·rank)/sqrt(sum of rank^2), 0 where every W is 0; `w` and `mask` are [n].
    Cost: O(n log n).
    References: Wilcoxon (1945); Pratt (1959) keeps zeros, which is not done here.
    """
    used = ranks.real(w, mask) & (w != 0)
    size = jnp.abs(w)
    count = ranks.counts(size, size, calibration_mask=used, mask=used)
    dtype = jnp.result_type(float)
    # Fractions of the number of items: their squares stay small.
    rank = (2 * count.less + count.equal + 1).astype(dtype) / (2 * jnp.maximum(count.num_calibration, 1)).astype(dtype)
    rank = jnp.where(used, rank, 0)
    spread = jnp.sqrt(jnp.sum(jnp.square(rank)))
    total = jnp.sum(jnp.where(w > 0, rank, -rank))
    z = jnp.where(spread > 0, total / jnp.where(spread > 0, spread, 1), 0)
    return Tails(jax.scipy.special.log_ndtr(-z), jax.scipy.special.log_ndtr(z), z)


def _likely(log_p: jax.Array, log_complement: jax.Array) -> jax.Array:
    """log p, by the complement where p is near 1."""
    return jnp.where(log_complement < -0.7, jnp.log1p(-jnp.exp(log_complement)), jnp.minimum(log_p, 0))
