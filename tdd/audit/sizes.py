"""Diagnostics of sizes: what n calibration items can resolve, how many really count, how clusters differ in size."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tdd.audit.word_split import normalise, strings
from tdd.records import Evidence, Texts
from tdd.validate.errors import InputError

__all__ = [
    "ClusterSizes",
    "EffectiveCalibration",
    "Resolution",
    "cluster_sizes",
    "effective_calibration_size",
    "resolution",
]

_LARGE = Fraction(1, 20)
_LEVEL = 0.01
_DRAWS = 999


@dataclasses.dataclass(frozen=True)
class Resolution:
    """The resolution of n calibration items among m tests at level alpha.

    Attributes:
      smallest_p_value: 1/(n + 1).
      min_selections: smallest k with null_proportion/(n + 1) <= alpha k/m; m + 1 if no k up to m satisfies it, so that
        nothing can be selected.
      calibration_for_one: calibration items with which a single item could be selected.
      warning: empty where at most one item, or at most 5 % of the items, are needed for a selection.
    """

    smallest_p_value: float
    min_selections: int
    calibration_for_one: int
    warning: str


@dataclasses.dataclass(frozen=True)
class EffectiveCalibration:
    """The calibration items that carry information.

    Attributes:
      num_given: calibration items given.
      num_missing: items without a score (NaN).
      num_repeated: items with a score that are exact duplicates of an earlier one.
      size: num_given - num_missing - num_repeated.
      num_distinct: different values among the scores; fewer than scores means ties.
      warning: empty where every item counts and ties are rare.
    """

    num_given: int
    num_missing: int
    num_repeated: int
    size: int
    num_distinct: int
    warning: str


def resolution(
    num_calibration: int,
    num_tests: int,
    alpha: float | Fraction,
    null_proportion: float | Fraction = 1,
    *,
    min_selections: int | None = None,
) -> Resolution:
    """The fewest items that a step-up procedure on conformal p-values can select.

    Benjamini and Hochberg's procedure selects k of m items only if the k-th smallest of the null_proportion * p is
    at most alpha k/m, and no conformal p-value is below 1/(n + 1). Computed in whole numbers, with `alpha` and
    `null_proportion` taken as the decimals they are written as.

    Args:
      num_calibration: n, calibration items with a score.
      num_tests: m, candidates with a score.
      alpha: level, in (0, 1).
      null_proportion: estimated proportion of candidates under the null that scales the p-values; may exceed 1.
      min_selections: the smallest k, where a procedure has computed it already from the exact estimate.

    Raises:
      InputError: a negative or broken size, `alpha` outside (0, 1), `null_proportion` negative or not finite.

    >>> resolution(99, 1000, 0.1).min_selections
    100
    >>> resolution(99, 1000, 0.1).calibration_for_one
    9999
    """
    for name, size in (("num_calibration", num_calibration), ("num_tests", num_tests)):
        if size < 0 or size != int(size):
            raise InputError(f"{name}={size!r} must be a whole number, 0 or more")
    level = _exact_fraction("alpha", alpha, below_one=True)
    scale = _exact_fraction("null_proportion", null_proportion, below_one=False)
    needed = scale * num_tests / level
    fewest = max(1, math.ceil(needed / (num_calibration + 1))) if min_selections is None else min_selections
    for_one = max(0, math.ceil(needed) - 1)
    warning = ""
    if fewest > num_tests > 0:
        for_any = max(0, math.ceil(scale / level) - 1)
        warning = (
            f"nothing can be selected: {num_calibration} calibration items give no p-value below "
            f"1/{num_calibration + 1}, and at level {float(level):g} at least {for_any} are needed to select all "
            f"{num_tests} candidates, {for_one} to select a single one"
        )
    elif fewest > 1 and fewest > _LARGE * num_tests:
        warning = (
            f"with {num_calibration} calibration items no fewer than {fewest} of {num_tests} candidates can be "
            f"selected at level {float(level):g}: a smaller number of members stays undetected; "
            f"{for_one} calibration items would allow a single selection"
        )
    return Resolution(1 / (num_calibration + 1), min(fewest, num_tests + 1), for_one, warning)


def effective_calibration_size(scores: ArrayLike, texts: Texts | Sequence[str] | None = None) -> EffectiveCalibration:
    """Calibration items that carry information: with a score, and no copy of another one.

    Args:
      scores: [n] scores of the calibration items, NaN where there is none.
      texts: their texts, or None if unknown (then no item counts as repeated). Differences of case, Unicode
        composition and white space are ignored.

    Raises:
      InputError: scores of more than one axis, or as many texts as there are not scores.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1:
        raise InputError(f"scores must have one axis, got shape {values.shape}")
    if texts is not None and len(texts) != values.size:
        raise InputError(f"{values.size} scores but {len(texts)} texts: they must belong to the same items")
    scored = ~np.isnan(values)
    num_scored = int(np.count_nonzero(scored))
    num_repeated = 0
    if texts is not None:
        written = strings(texts)
        num_repeated = num_scored - len({normalise(written[row]) for row in np.flatnonzero(scored).tolist()})
    num_distinct = int(np.unique(values[scored]).size)
    num_missing = values.size - num_scored
    size = num_scored - num_repeated
    parts = []
    if size == 0:
        parts.append("no calibration item has a score")
    elif num_missing:
        parts.append(f"{num_missing} of {values.size} calibration items have no score and do not count")
    if num_repeated:
        parts.append(f"{num_repeated} calibration items are copies of others and add no information")
    if 2 * num_distinct < size:
        parts.append(
            f"the {num_scored} calibration scores take only {num_distinct} different values: conservative p-values "
            "stay valid and lose power"
        )
    return EffectiveCalibration(values.size, num_missing, num_repeated, size, num_distinct, "; ".join(parts))


def _exact_fraction(name: str, value: float | Fraction, *, below_one: bool) -> Fraction:
    """The decimal that a number is written as, exactly: 0.1 is 1/10."""
    fraction = value if isinstance(value, Fraction) else None
    if fraction is None and math.isfinite(value):
        fraction = Fraction(repr(float(value)))
    if fraction is None or fraction < 0 or (below_one and not 0 < fraction < 1):
        raise InputError(f"{name}={value!r} must be {'between 0 and 1' if below_one else 'finite and not negative'}")
    return fraction


@dataclasses.dataclass(frozen=True)
class ClusterSizes:
    """Sizes of clusters against their scores, and between the roles.

    Attributes:
      mean_calibration: mean number of scored items in a calibration cluster.
      mean_candidates: mean number of scored items in a cluster of candidates.
      correlation: Spearman's rank correlation of size and mean score over calibration clusters; 0 where all sizes or
        all scores are equal.
      p_related: two-sided permutation p-value that size and mean score are independent, over calibration clusters.
      p_differ: two-sided permutation p-value of the rank sum that sizes in both roles have one distribution.
      p_value: small where sizes differ between the roles and that matters: p_differ where items are decided on, whose
        rule takes sizes as exchangeable, else the larger of the two.
      warning: empty where p_value > 0.01.
    """

    mean_calibration: float
    mean_candidates: float
    correlation: float
    p_related: float
    p_differ: float
    p_value: float
    warning: str


def cluster_sizes(evidence: Evidence, unit: str, seed: int) -> ClusterSizes | None:
    """Compare the clusters of calibration items and of candidates in size; None unless both roles come in clusters.

    Guarantee: if the clusters of both roles are exchangeable, their sizes included, P(p_value <= t) <= t, for any
    number of draws: the observed order counts as one of them.

    Args:
      evidence: scores with the clusters of candidates and calibration items; members and non-members alike.
      unit: what is decided on, "item", "cluster" or "drawn".
      seed: seed of the permutations.
    """
    if not evidence.clusters or not evidence.calibration_clusters:
        return None
    calibration_sizes, means = _by_cluster(evidence.calibration_clusters, evidence.calibration)
    candidate_sizes, _ = _by_cluster(evidence.clusters, evidence.scores)
    if not calibration_sizes.size or not candidate_sizes.size:
        return None
    rng = np.random.default_rng((seed, 0x51E5))
    ranks, scores = _centred_ranks(calibration_sizes), _centred_ranks(means)
    spread = np.sqrt((ranks**2).sum() * (scores**2).sum())
    p_related = _permutation_p(ranks, scores, rng)
    both = _centred_ranks(np.concatenate([calibration_sizes, candidate_sizes]))
    role = np.arange(both.size) < calibration_sizes.size
    p_differ = _permutation_p(both, role - role.mean(), rng)
    p_value = p_differ if unit == "item" else max(p_related, p_differ)
    correlation = float(ranks @ scores / spread) if spread else 0.0
    warning = ""
    if p_value <= _LEVEL:
        warning = (
            f"clusters of calibration items hold {calibration_sizes.mean():.3g} items and clusters of candidates "
            f"{candidate_sizes.mean():.3g} on average (p = {p_differ:.3g}; rank correlation of size and score "
            f"{correlation:.2f}, p = {p_related:.3g}): the clusters are not exchangeable"
        )
    means_of_sizes = float(calibration_sizes.mean()), float(candidate_sizes.mean())
    return ClusterSizes(*means_of_sizes, correlation, p_related, p_differ, p_value, warning)


def _by_cluster(clusters: Sequence[Any], scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scored items and mean score of each cluster that has one."""
    number = np.unique(clusters, return_inverse=True)[1]
    known = ~np.isnan(scores)
    sizes = np.bincount(number[known], minlength=number.max() + 1)
    sums = np.bincount(number[known], weights=scores[known], minlength=sizes.size)
    return sizes[sizes > 0], sums[sizes > 0] / sizes[sizes > 0]


def _centred_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks with ties at their mean, minus their mean."""
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values) + np.searchsorted(ordered, values, "right") - values.size) / 2.0


def _permutation_p(first: np.ndarray, second: np.ndarray, rng: np.random.Generator) -> float:
    """Two-sided, of the sum of products of centred numbers; 1 where one of them is constant."""
    observed = abs(first @ second)
    slack = 1e-9 * np.sqrt((first**2).sum() * (second**2).sum())
    reached = sum(abs(rng.permutation(first) @ second) >= observed - slack for _ in range(_DRAWS))
    return (1 + reached) / (1 + _DRAWS)
