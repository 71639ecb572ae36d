"""Scores of items that come in clusters (passages of one book) or in groups (sources, languages).

Where whole clusters are exchangeable, not items, each cluster gets one score, or one item stands for its cluster, or an
item is ranked with every calibration cluster weighing 1 (`hierarchical_p_values`). Groups: an item is ranked within its
own group (`group_p_values`, Mondrian conformal).

Labels are int32 in 0..C-1; `num_clusters` C is static. Masked items (`mask` False, or NaN) belong to no cluster.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import conformal, platforms, ranks, weighted

__all__ = [
    "AGGREGATES",
    "ClusterScores",
    "GroupPValues",
    "cluster_scores",
    "cluster_shares",
    "draw_items",
    "group_p_values",
    "hierarchical_p_values",
]

AGGREGATES = ("mean", "median", "min")


class ClusterScores(NamedTuple):
    """One score a cluster."""

    scores: jax.Array  # [C] loss-like; NaN for clusters without a real item
    size: jax.Array  # [C] int32, real items
    valid: jax.Array  # [C] bool, size > 0


class GroupPValues(NamedTuple):
    """Conformal p-values within groups."""

    p_values: jax.Array  # [m] rank/(n_g + 1), NaN for masked items; 1 where the group has no calibration item
    rank: jax.Array  # [m] int32 in 1..n_g+1; N + 2 (N the length of `calibration`) for masked items
    num_calibration: jax.Array  # [m] int32, n_g, the real calibration items of the item's group; 0 for masked items
    valid: jax.Array  # [m] bool


def cluster_scores(
    scores: jax.Array,
    clusters: jax.Array,
    *,
    num_clusters: int,
    aggregate: Literal["mean", "median", "min"],
    mask: jax.Array | None = None,
) -> ClusterScores:
    """One score a cluster: the mean, the median (of an even number the mean of the two middle ones) or the minimum.

    Each is a function of the cluster alone, so exchangeable clusters have exchangeable scores.

    Args:
      scores, clusters, mask: [n] loss-like scores, labels, and bool, True = real item.
      num_clusters: C, static.
      aggregate: The mean sees every item, the median ignores outliers, the minimum finds one memorised item.

    Raises ValueError: unknown `aggregate`.
    Cost: one pass; the median sorts.
    """
    if aggregate not in AGGREGATES:
        raise ValueError(f"aggregate must be one of {AGGREGATES}, got {aggregate!r}")
    scores, real = _floats(scores, mask)
    labels = jnp.where(real, clusters, num_clusters).astype(jnp.int32)
    size = jax.ops.segment_sum(real.astype(jnp.int32), labels, num_clusters)
    if aggregate == "mean":
        values = jax.ops.segment_sum(jnp.where(real, scores, 0), labels, num_clusters) / size.astype(scores.dtype)
    elif aggregate == "min":
        values = jax.ops.segment_min(jnp.where(real, scores, jnp.inf), labels, num_clusters)
    else:
        ordered = jax.lax.sort((labels, scores), num_keys=2)[1]
        start = jnp.cumsum(size) - size
        last = max(scores.shape[0] - 1, 0)
        low, high = jnp.minimum(start + (size - 1) // 2, last), jnp.minimum(start + size // 2, last)
        values = ordered[low] / 2 + ordered[high] / 2 if scores.shape[0] else jnp.zeros(num_clusters, scores.dtype)
    return ClusterScores(jnp.where(size > 0, values, jnp.nan), size, size > 0)


def cluster_shares(clusters: jax.Array, *, num_clusters: int, mask: jax.Array | None = None) -> jax.Array:
    """[n] share 1/n_c of an item in its cluster, n_c the real items of the cluster; 0 for masked items."""
    real = jnp.ones(clusters.shape, bool) if mask is None else mask
    size = jax.ops.segment_sum(real.astype(jnp.int32), jnp.where(real, clusters, num_clusters), num_clusters)
    dtype = jnp.result_type(float)
    sizes = size[jnp.clip(clusters, 0, num_clusters - 1)] if num_clusters else jnp.ones(clusters.shape, jnp.int32)
    return jnp.where(real, 1 / jnp.maximum(sizes, 1).astype(dtype), 0)


def draw_items(
    clusters: jax.Array, *, num_clusters: int, key: jax.Array, mask: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """One real item of each cluster, uniformly at random, independent over clusters; `clusters` and `mask` are [n].

    Returns: [C] int32 indices of the drawn items (0 where a cluster has no real item) and [C] bool, whether it has one.
    """
    n = clusters.shape[0]
    real = jnp.ones(n, bool) if mask is None else mask
    order = jax.random.permutation(key, n).astype(jnp.int32)
    place = jnp.zeros(n, jnp.int32).at[order].set(jnp.arange(n, dtype=jnp.int32), unique_indices=True)
    first = jax.ops.segment_min(jnp.where(real, place, n), jnp.where(real, clusters, num_clusters), num_clusters)
    some = first < n
    return jnp.where(some, order[jnp.clip(first, 0, max(n - 1, 0))], 0) if n else first * 0, some


def hierarchical_p_values(
    calibration: jax.Array,
    scores: jax.Array,
    calibration_clusters: jax.Array,
    *,
    num_clusters: int,
    null: Literal["nonmember", "member"],
    calibration_mask: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> jax.Array:
    """p_j = (1 + sum over clusters c of #{i in c: T_ci at least as extreme as T_j}/n_c) / (C + 1).

    Guarantee: P(p_j <= t) <= t for every t, for one item drawn at random from a null cluster that is exchangeable with
    the C calibration clusters (their sizes included), or for any of its items if items of a cluster are exchangeable;
    finite-sample. Nothing is assumed of the dependence within clusters. Several p-values depend on one another in an
    unknown way: decide them by `stepup.by`.

    Args:
      calibration, calibration_clusters, calibration_mask: [n] loss-like scores of items for which the null holds,
        labels, and bool, True = real item.
      scores, mask: [m] loss-like scores to test, and bool.
      num_clusters: Static upper bound of the labels.
      null: "nonmember" (small scores are extreme) or "member".

    Returns: [m] in (0, 1], NaN for masked items. C counts clusters with a real item. Clusters of one item give the
    plain conformal p-values.
    Raises ValueError: unknown `null`.
    Cost: one sort of n, m binary searches.
    References: Lee, Barber & Willett (2023), theorem 1; Dunn, Wasserman & Ramdas (2023).
    """
    _, real = _floats(calibration, calibration_mask)
    share = cluster_shares(calibration_clusters, num_clusters=num_clusters, mask=real)
    # Weighted conformal with the weight 1 of a cluster for the candidate; the denominator is C + 1 up to rounding.
    return weighted.p_values(
        calibration,
        scores,
        share,
        jnp.ones(scores.shape, share.dtype),
        null=null,
        calibration_mask=real,
        mask=mask,
    )


def group_p_values(
    calibration: jax.Array,
    scores: jax.Array,
    calibration_groups: jax.Array,
    groups: jax.Array,
    *,
    null: Literal["nonmember", "member"],
    calibration_mask: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> GroupPValues:
    """Mondrian conformal p-values: p_j = (1 + #{i in the group of j: T_i at least as extreme as T_j}) / (n_g + 1).

    Guarantee: P(p_j <= t | group) <= t for every t, if within each group calibration scores and null test scores are
    exchangeable; finite-sample. The groups may differ in law and in size. A group without calibration items has p = 1.

    Args:
      calibration, calibration_groups, calibration_mask: [n] loss-like scores of items for which the null holds,
        non-negative labels, and bool, True = real item.
      scores, groups, mask: [m] scores of the same dtype, labels, and bool.
      null: "nonmember" or "member".

    Raises ValueError: unknown `null`.
    Cost: one sort of n + m by (group, score).
    References: Vovk, Lindsay, Nouretdinov & Gammerman (2003); Vovk (2012).
    """
    calibration, scores = conformal.oriented(calibration, scores, null)
    real, valid = ranks.real(calibration, calibration_mask), ranks.real(scores, mask)
    n, m = calibration.shape[0], scores.shape[0]
    last = jnp.iinfo(jnp.int32).max
    group = jnp.concatenate(
        [jnp.where(real, calibration_groups, last), jnp.where(valid, groups, last)], dtype=jnp.int32
    )
    score = jnp.concatenate([calibration, scores])
    # In a tie calibration items (index below n) come before test items, so they are counted against them.
    group, _, origin = jax.lax.sort((group, score, jnp.arange(n + m, dtype=jnp.int32)), num_keys=3)
    up_to = platforms.cumsum(((origin < n) & (group < last)).astype(jnp.int32))
    before = up_to - ((origin < n) & (group < last)).astype(jnp.int32)
    change = group[1:] != group[:-1]
    one = jnp.ones(min(n + m, 1), bool)
    starts, ends = jnp.concatenate([one, change]), jnp.concatenate([change, one])
    base = platforms.cummax(jnp.where(starts, before, 0))
    total = platforms.cummin(jnp.where(ends, up_to, n), reverse=True)
    back = jnp.zeros(n + m, jnp.int32).at[origin].set(jnp.arange(n + m, dtype=jnp.int32), unique_indices=True)[n:]
    rank, size = 1 + (up_to - base)[back], (total - base)[back]
    dtype = jnp.result_type(float)
    return GroupPValues(
        jnp.where(valid, rank.astype(dtype) / (size + 1).astype(dtype), jnp.nan),
        jnp.where(valid, rank, n + 2),
        jnp.where(valid, size, 0),
        valid,
    )


def _floats(scores: jax.Array, mask: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """Scores in at least single precision, and which are real."""
    scores = jnp.asarray(scores)
    real = ranks.real(scores, mask)
    return ranks.at_least_single(scores), real
