"""Permutation p-values: of random draws and of complete lists.

The p-value of B random draws is (1 + #{b: L_b >= L}) / (1 + B): the observed order counts among the draws, and ties
count against it. Equality is decided with a tolerance, since equal sums of log-probabilities differ by rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels.platforms import quotient

__all__ = ["PermutationP", "complete_p_value", "counted", "p_value", "tie_tolerance"]


class PermutationP(NamedTuple):
    """A permutation p-value with the integers behind it."""

    p_value: jax.Array  # []
    log_p_value: jax.Array  # []
    num_at_least: jax.Array  # [] int32, draws (or listed permutations) whose statistic reaches the observed one
    num_draws: jax.Array  # [] int32, B without masked and NaN draws (or the length of the list)


def tie_tolerance(dtype: Any) -> float:
    """Relative tolerance of a tie: 100 machine epsilons in float64, 4 in narrower types.

    The narrow types get fewer because 100 of their epsilons are larger than the differences that are to be seen: of a
    log-probability of -1e5 they are 1.2 nats in float32.

    Raises TypeError: integers.
    """
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"statistics must be floats, or `tolerance` given, got {jnp.dtype(dtype).name}")
    finfo = jnp.finfo(dtype)
    return float(finfo.eps) * (100 if finfo.bits >= 64 else 4)


def p_value(
    observed: Any, permuted: jax.Array, *, mask: jax.Array | None = None, tolerance: Any = None, scale: Any = None
) -> PermutationP:
    """p = (1 + #{b: L_b >= L - tolerance·scale}) / (1 + B).

    **Guarantee**: P(p <= t) <= t for every t, finite-sample, if L and L_1..L_B are exchangeable: the permutations are
    independent uniform draws from a group *including* the identity (repeats allowed), or distinct ones without it.
    Neither drawing again whenever the identity comes up nor drawing from a set that is no group (adjacent swaps) is
    valid.

    Args:
      observed: [] L, large values are evidence.
      permuted, mask: [B] L_b, NaN left out; bool, True = real draw.
      tolerance: Relative tolerance of a tie; None for that of the float type (`tie_tolerance`).
      scale: [] what the tolerance is relative to; |L| by default.

    Returns: `PermutationP`; p = 1 without draws, NaN where `observed` is NaN.
    Cost: O(B).
    References: the sharded exchangeability test, section 3.1 (with >= in place of >); Phipson & Smyth (2010), eq. 2.
    """
    count = counted(*_two_counts(*_reaching(observed, permuted, mask, tolerance, scale)), permuted.dtype)
    return nan_where(jnp.isnan(observed), count)


def counted(num_at_least: jax.Array, num_draws: jax.Array, dtype: Any = None) -> PermutationP:
    """(1 + num_at_least) / (1 + num_draws), from the counts (int32 scalars)."""
    dtype = dtype or jnp.result_type(float)
    p = quotient(*jnp.broadcast_arrays((1 + num_at_least).astype(dtype), (1 + num_draws).astype(dtype)))
    return PermutationP(p, jnp.log(p), num_at_least, num_draws)


def complete_p_value(
    observed: Any, statistics: jax.Array, *, mask: jax.Array | None = None, tolerance: Any = None, scale: Any = None
) -> PermutationP:
    """p = #{g: L_g >= L - tolerance·scale} / N over a complete list of permutations, the identity among them.

    **Guarantee**: P(p <= t) <= t for every t, finite-sample, if the list runs through a group once (or through each of
    its cosets equally often).

    Arguments as `p_value`, with `statistics` [N] in place of the draws. The identity counts even if rounding makes its
    statistic fall below the observed one by more than the tolerance: p >= 1/N.

    References: Lehmann & Romano (2005), theorem 15.2.1.
    """
    at_least, real = _reaching(observed, statistics, mask, tolerance, scale)
    dtype = jnp.asarray(statistics).dtype
    reached, total = _two_counts(at_least, real)
    reached = jnp.maximum(reached, jnp.minimum(total, 1))
    p = jnp.where(total > 0, quotient(reached.astype(dtype), jnp.maximum(total, 1).astype(dtype)), 1)
    return nan_where(jnp.isnan(observed), PermutationP(p, jnp.log(p), reached, total))


def _reaching(
    observed: Any, permuted: Any, mask: jax.Array | None, tolerance: Any, scale: Any
) -> tuple[jax.Array, jax.Array]:
    """Draws that reach the observed statistic, and real draws."""
    permuted = jnp.asarray(permuted)
    observed = jnp.asarray(observed, permuted.dtype)
    real = ~jnp.isnan(permuted)
    real = real if mask is None else real & mask
    relative = jnp.asarray(tie_tolerance(permuted.dtype) if tolerance is None else tolerance, permuted.dtype)
    slack = relative * (jnp.abs(observed) if scale is None else jnp.asarray(scale, permuted.dtype))
    return real & (permuted >= observed - slack), real


def _two_counts(first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How many are true of each [B] bool, in one pass: halves of one int32 hold the counts of up to 2^14 of them."""
    both = first.astype(jnp.int32) + (second.astype(jnp.int32) << 16)
    rest = both.shape[0] % 2**14
    whole, part = both[rest:].reshape(-1, 2**14), both[:rest]
    sums = jnp.append(jnp.sum(whole, axis=1, dtype=jnp.int32), jnp.sum(part, dtype=jnp.int32))
    return jnp.sum(sums & 0xFFFF, dtype=jnp.int32), jnp.sum(sums >> 16, dtype=jnp.int32)


def nan_where(bad: jax.Array, result: PermutationP) -> PermutationP:
    """The result, its p-value NaN where `bad`."""
    return result._replace(
        p_value=jnp.where(bad, jnp.nan, result.p_value), log_p_value=jnp.where(bad, jnp.nan, result.log_p_value)
    )
