"""Conformal p-values: the rank of a test score among the calibration scores.

For `null="nonmember"` (calibration on known non-members, small scores are evidence)

    p_j = (1 + #{i: T_i <= T_j}) / (n + 1),

for `null="member"` (calibration on known members, large scores are evidence) the inequality is turned round. If
calibration and null test scores are exchangeable, P(p_j <= t) <= t for every t.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import ranks
from tdd.kernels.platforms import quotient

__all__ = ["ConformalRanks", "p_values", "randomized_p_values", "rank"]

NULLS = ("nonmember", "member")


class ConformalRanks(NamedTuple):
    """Conservative ranks; the p-value is rank / (num_calibration + 1)."""

    # [m] int32 in 1..n+1; N + 2 (N the length of `calibration`) for items that are masked out or NaN, so that no
    # threshold on ranks ever reaches them
    rank: jax.Array
    num_calibration: jax.Array  # [] int32, n
    num_tests: jax.Array  # [] int32, m without masked and NaN items
    valid: jax.Array  # [m] bool


def rank(
    calibration: jax.Array,
    scores: jax.Array,
    *,
    null: Literal["nonmember", "member"],
    tie_break: Literal["conservative", "shared"] = "conservative",
    key: jax.Array | None = None,
    calibration_mask: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> ConformalRanks:
    """Integer conformal ranks r_j = 1 + #{i: T_i at least as extreme as T_j}.

    Args:
      calibration, calibration_mask: [n] loss-like scores of items for which the null holds; bool, True = real item.
      scores, mask: [m] loss-like scores to test, and bool.
      null: "nonmember" (small scores are extreme) or "member" (large scores are).
      tie_break: "conservative" counts every tie against the item; "shared" puts calibration and test items into one
        uniformly random total order that refines the scores, which is exact and needs `key`.
      key: PRNG key for "shared".

    Raises ValueError: unknown `null` or `tie_break`, or no `key` where one is needed.
    References: Vovk, Gammerman & Shafer (2005); Bates et al. (2023), eq. 2.
    """
    check_null(null)
    if tie_break not in ("conservative", "shared"):
        raise ValueError(f"tie_break must be one of ('conservative', 'shared'), got {tie_break!r}")
    if tie_break == "shared":
        if key is None:
            raise ValueError('tie_break="shared" needs key, a PRNG key from jax.random.key')
        calibration, scores, calibration_mask, mask = _one_random_order(
            calibration, scores, calibration_mask, mask, key
        )
    count = ranks.positions(calibration, scores, calibration_mask, mask)
    extreme = count.up_to if null == "nonmember" else count.num_calibration - count.below
    masked = jnp.int32(calibration.shape[0] + 2)
    return ConformalRanks(
        jnp.where(count.valid, 1 + extreme, masked),
        count.num_calibration,
        jnp.sum(count.valid, dtype=jnp.int32),
        count.valid,
    )


def p_values(conformal_ranks: ConformalRanks) -> jax.Array:
    """[m] p-values rank / (n + 1), correctly rounded; NaN for items that are masked out or NaN."""
    dtype = jnp.result_type(float)
    total = (conformal_ranks.num_calibration + 1).astype(dtype)
    rank = jnp.where(conformal_ranks.valid, conformal_ranks.rank, 0).astype(dtype)
    return jnp.where(conformal_ranks.valid, quotient(rank, jnp.broadcast_to(total, rank.shape)), jnp.nan)


def randomized_p_values(
    calibration: jax.Array,
    scores: jax.Array,
    *,
    null: Literal["nonmember", "member"],
    key: jax.Array,
    calibration_mask: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> jax.Array:
    """Smoothed conformal p-values (#{strictly more extreme} + U_j (1 + #{equal})) / (n + 1).

    U_j is uniform on (0, 1], drawn from `key`, independent over items. Exactly uniform under the null, ties or not;
    never 0. Not for the proportion estimate of Storey's procedure, which needs conservative ranks.

    Other arguments and errors as `rank`. Returns: [m] in (0, 1]; NaN for items that are masked out or NaN.
    """
    check_null(null)
    if key is None:
        raise ValueError("randomized p-values need key, a PRNG key from jax.random.key")
    count = ranks.counts(calibration, scores, calibration_mask=calibration_mask, mask=mask)
    strict = count.less if null == "nonmember" else count.num_calibration - count.less - count.equal
    dtype = jnp.result_type(float)
    uniform = 1 - jax.random.uniform(key, scores.shape, dtype)
    values = (strict.astype(dtype) + uniform * (1 + count.equal).astype(dtype)) / (count.num_calibration + 1).astype(
        dtype
    )
    return jnp.where(count.valid, jnp.minimum(values, 1), jnp.nan)


def _one_random_order(
    calibration: jax.Array,
    scores: jax.Array,
    calibration_mask: jax.Array | None,
    mask: jax.Array | None,
    key: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array | None, jax.Array]:
    """Replace scores by their places in one random total order of calibration and test together."""
    n, m = calibration.shape[0], scores.shape[0]
    together = jnp.concatenate([calibration, scores])
    shuffled = jax.random.permutation(key, n + m).astype(jnp.int32)
    _, _, origin = jax.lax.sort((together, shuffled, jnp.arange(n + m, dtype=jnp.int32)), num_keys=2)
    place = jnp.zeros(n + m, jnp.int32).at[origin].set(jnp.arange(n + m, dtype=jnp.int32))
    real = ranks.counts(together[:1], together).valid  # NaN is lost in the places: carry it as a mask
    calibration_real = real[:n] if calibration_mask is None else real[:n] & calibration_mask
    return place[:n], place[n:], calibration_real, real[n:] if mask is None else real[n:] & mask


def check_null(null: str) -> None:
    """Raise ValueError for an unknown direction."""
    if null not in NULLS:
        raise ValueError(f'null must be "nonmember" or "member", got {null!r}')


def oriented(calibration: jax.Array, scores: jax.Array, null: str) -> tuple[jax.Array, jax.Array]:
    """Scores of which small ones are extreme; integers are turned round by their complement, which cannot overflow."""
    check_null(null)
    calibration, scores = ranks.comparable(calibration, scores)
    if null == "nonmember":
        return calibration, scores
    if jnp.issubdtype(scores.dtype, jnp.inexact):
        return -calibration, -scores
    return ~calibration, ~scores
