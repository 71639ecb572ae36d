"""Several detectors in one exact conformal rank, whatever the dependence between them.

Each detector's scores are ranked inside calibration and test together; the combined evidence of an item is a fixed
function of its K pooled ranks, so it treats calibration and test items alike; and the evidence of each test item is
ranked against that of the calibration items. If the K-vectors of calibration and null test items are exchangeable, so
is their evidence, given everything else: what holds for conformal ranks of one score holds here.

A floating-point evidence must be the same function of an item wherever it stands in an array, or rounding decides
ties by position. So the function of a pooled rank is tabulated once, with the weight in it, and an item's evidence is
looked up and added: K additions in one order, which vectorisation cannot change.

References: Marandon, Lei, Mary & Roquain (2024), "Adaptive novelty detection with false discovery rate guarantee".
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import combine, conformal, ranks
from tdd.kernels.conformal import ConformalRanks

__all__ = ["RULES", "Pool", "PooledRanks", "pool", "rank"]

RULES = ("sum", "cauchy")
"""Functions of the pooled ranks: their sum, or the sum of cot(pi·rank/(N+1))."""


class Pool(NamedTuple):
    """One detector's scores ranked inside calibration and test together."""

    calibration: jax.Array  # [n] int32 twice the mid-rank from the most extreme item on, in 2..2N; 0 for masked items
    scores: jax.Array  # [m] int32 likewise
    # [m] int32 conservative conformal rank of the test scores against this detector's calibration scores, in 1..n+1; N
    # + 2 (N the length of `calibration`) for masked items, as in `conformal.rank`
    alone: jax.Array
    num_pool: jax.Array  # [] int32, N: real items of both kinds


class PooledRanks(NamedTuple):
    """Conformal ranks of the combined evidence."""

    combined: ConformalRanks  # `ConformalRanks` of the test items
    alone: jax.Array  # [K, m] int32 conformal ranks by each detector alone
    calibration: jax.Array  # [n] float32 combined evidence of the calibration items, large = extreme
    scores: jax.Array  # [m] float32 likewise of the test items


def pool(
    calibration: jax.Array,
    scores: jax.Array,
    *,
    null: Literal["nonmember", "member"],
    calibration_mask: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> Pool:
    """Rank one detector's scores inside calibration and test together.

    The doubled mid-rank 2·#{more extreme} + #{equal} + 1 (the item itself among the equal) is symmetric in all items:
    relabelling calibration and test items permutes it.

    Arguments and errors as `conformal.rank`.
    Cost: a sort of n and one of m as integers, and two binary searches an item.
    """
    conformal.check_null(null)
    calibration, scores = ranks.comparable(calibration, scores)
    calibration_keys, calibration_real = ranks.order_keys(calibration, calibration_mask)
    test_keys, test_real = ranks.order_keys(scores, mask)
    n, m = (jnp.sum(real, dtype=jnp.int32) for real in (calibration_real, test_real))
    in_calibration, in_test = ranks.finder(calibration_keys, n), ranks.finder(test_keys, m)
    places = [(in_calibration(keys), in_test(keys)) for keys in (calibration_keys, test_keys)]
    doubled = []
    for real, (in_first, in_second) in zip((calibration_real, test_real), places, strict=True):
        less, up_to = (sum(pair[1:], pair[0]) for pair in zip(in_first, in_second, strict=True))
        extreme = less if null == "nonmember" else n + m - up_to
        doubled.append(jnp.where(real, 2 * extreme + up_to - less + 1, 0))
    less, up_to = places[1][0]  # the test scores among the calibration scores
    extreme = up_to if null == "nonmember" else n - less
    alone = jnp.where(test_real, 1 + extreme, calibration.shape[0] + 2)
    return Pool(doubled[0], doubled[1], alone, n + m)


def rank(
    calibration: jax.Array,
    scores: jax.Array,
    *,
    null: Literal["nonmember", "member"],
    rule: Literal["sum", "cauchy"],
    weights: jax.Array | None = None,
    key: jax.Array | None = None,
    calibration_mask: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> PooledRanks:
    """Conformal ranks of K detectors' combined evidence.

    evidence_i = sum_k w_k·f(pooled rank of item i by detector k), f falling from the most extreme item on: f(r) = -r
    ("sum"), or cot(pi·r/(N+1)) ("cauchy"). r_j = 1 + #{i in calibration: evidence_i >= evidence_j}.

    Guarantee: r_j/(n+1) is super-uniform for null items, and BH on the r_j has FDR <= alpha·m0/m, if the K-vectors of
    scores of calibration and null test items are exchangeable; any dependence between detectors, any alternatives;
    finite-sample. The weights must not depend on which items are calibration: fixed in advance, or symmetric in
    calibration and test, or from other data. Numbers of rejections are none of these.

    The rank of an item depends on the other test items: another batch gives other p-values.

    Args:
      calibration, calibration_mask: [K, n] loss-like scores of items for which the null holds, and [n] bool, True =
        real item. An item with a NaN from any detector is left out besides.
      scores, mask: [K, m] loss-like scores to test, and [m] bool.
      null: "nonmember" or "member".
      rule: "sum" or "cauchy".
      weights: [K] not negative, equal by default; only ratios matter.
      key: PRNG key: ties of the evidence are broken by one random order of calibration and test together, which makes
        the ranks exactly uniform. Without it ties count against the test item.

    Returns: `PooledRanks`. Weights that are negative, not finite or all zero mask every item.
    Raises ValueError: unknown `null` or `rule`, K = 0, or weights of another shape.
    Cost: K times `pool`, a sort of n and one binary search an item.
    """
    if rule not in RULES:
        raise ValueError(f"rule must be one of {RULES}, got {rule!r}")
    calibration, scores = jnp.asarray(calibration), jnp.asarray(scores)
    num_detectors = calibration.shape[0]
    if num_detectors == 0:
        raise ValueError("at least one detector is needed")
    weights = jnp.ones(num_detectors) if weights is None else jnp.asarray(weights, jnp.result_type(float))
    if weights.shape != (num_detectors,):
        raise ValueError(f"weights must have shape ({num_detectors},), got {weights.shape}")
    calibration_real = ranks.real_columns(calibration, calibration_mask)
    test_real = ranks.real_columns(scores, mask)
    pools = jax.vmap(lambda known, new: pool(known, new, null=null, calibration_mask=calibration_real, mask=test_real))(
        calibration, scores
    )
    tables = _tables(pools.num_pool[0], calibration.shape[1] + scores.shape[1], rule, weights)
    evidence = [_look_up(tables, place) for place in (pools.calibration, pools.scores)]
    fine = jnp.all((weights >= 0) & jnp.isfinite(weights)) & (jnp.max(weights) > 0)
    combined = conformal.rank(
        *(ranks.order_keys(part)[0] for part in evidence),
        null="member",  # large evidence is extreme, whichever tail it came from
        tie_break="conservative" if key is None else "shared",
        key=key,
        calibration_mask=calibration_real & fine,
        mask=test_real & fine,
    )
    return PooledRanks(combined, pools.alone, *evidence)


def _tables(num_pool: jax.Array, size: int, rule: str, weights: jax.Array) -> jax.Array:
    """[K, 2·size + 1] weighted value of each doubled mid-rank."""
    doubled = jnp.arange(2 * size + 1, dtype=jnp.int32).astype(weights.dtype)
    if rule == "sum":
        value = -doubled
    else:
        value = combine.cotangent(jnp.clip(doubled / (2 * (num_pool + 1)).astype(weights.dtype), 0, 1))
        value = jnp.where(doubled == 0, 0, value)
    # Relative to the largest: equal weights are 1, and sums of ranks are exact.
    table = (weights / jnp.max(weights))[:, None] * value[None, :]
    return jax.lax.optimization_barrier(table)  # looked up, never recomputed where it is used


def _look_up(tables: jax.Array, place: jax.Array) -> jax.Array:
    """Sum over detectors, from the first to the last."""
    total = tables[0][place[0]]
    for table, places in zip(tables[1:], place[1:], strict=True):
        total = total + table[places]
    return total
