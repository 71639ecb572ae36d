"""Do clusters of calibration items and of candidates differ in size, and is size related to the score?"""

from __future__ import annotations

import dataclasses

import numpy as np

from tdd.audit.evidence import Panels

__all__ = ["ClusterSizes", "cluster_sizes"]

_LEVEL = 0.01
_DRAWS = 999


@dataclasses.dataclass(frozen=True)
class ClusterSizes:
    """Sizes of clusters against their scores, and between the roles.

    Attributes:
      mean_calibration: mean number of scored items in a calibration cluster.
      mean_candidates: likewise in a cluster of candidates.
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


def cluster_sizes(panels: Panels, unit: str, seed: int) -> dict[str, ClusterSizes]:
    """{"cluster_sizes": finding} where both roles come in clusters, else {}.

    Guarantee: if the clusters of both roles are exchangeable, their sizes included, P(p_value <= t) <= t, for any
    number of draws: the observed order counts as one of them.

    Args:
      panels: scores with the clusters of candidates and calibration items; members and non-members alike.
      unit: what is decided on, "item", "cluster" or "drawn".
      seed: of the permutations.
    """
    if not panels.clusters or not panels.calibration_clusters:
        return {}
    own_sizes, means = _by_cluster(panels.calibration_clusters, panels.calibration[0])
    sizes, _ = _by_cluster(panels.clusters, panels.candidates[0])
    if not own_sizes.size or not sizes.size:
        return {}
    rng = np.random.default_rng((seed, 0x51E5))
    ranks, scores = _centred_ranks(own_sizes), _centred_ranks(means)
    spread = np.sqrt((ranks**2).sum() * (scores**2).sum())
    p_related = _permutation_p(ranks, scores, rng)
    both = _centred_ranks(np.concatenate([own_sizes, sizes]))
    role = np.arange(both.size) < own_sizes.size
    p_differ = _permutation_p(both, role - role.mean(), rng)
    p_value = p_differ if unit == "item" else max(p_related, p_differ)
    correlation = float(ranks @ scores / spread) if spread else 0.0
    warning = ""
    if p_value <= _LEVEL:
        warning = (
            f"clusters of calibration items hold {own_sizes.mean():.3g} items and clusters of candidates "
            f"{sizes.mean():.3g} on average (p = {p_differ:.3g}; rank correlation of size and score "
            f"{correlation:.2f}, p = {p_related:.3g}): the clusters are not exchangeable"
        )
    found = ClusterSizes(
        float(own_sizes.mean()), float(sizes.mean()), correlation, p_related, p_differ, p_value, warning
    )
    return {"cluster_sizes": found}


def _by_cluster(clusters: tuple[str, ...], scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
