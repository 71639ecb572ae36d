"""Slow references of the boundary tables, weighted selection, clusters and groups, from their definitions."""

import math
from fractions import Fraction

import numpy as np
import references as ref


def table(n, max_rank, bound):
    """b_0 = 0, b_r = bound(r) cut at 1 for r <= n, 1 above."""
    inside = [min(1.0, bound(r)) if r <= n else 1.0 for r in range(1, max_rank + 1)]
    return np.array([0.0, *inside])


def simes(n, delta, max_rank, k=None):
    k = max(1, n // 2) if k is None else k

    def bound(rank):
        i = n + 1 - rank
        product = Fraction(1)
        for step in range(k):
            product *= Fraction(max(i - step, 0), n - step) if n > step else 0
        return 1 - (delta * float(product)) ** (1 / k)

    return table(n, max_rank, bound)


def dkwm(n, delta, max_rank):
    return table(n, max_rank, lambda rank: rank / (n + 1) + math.sqrt(math.log(1 / min(delta, 0.5)) / (2 * n)))


def process_constant(n, delta):
    twice = math.log(math.log(n))
    top = -math.log(-math.log(1 - delta)) + 2 * twice + 0.5 * math.log(twice) - 0.5 * math.log(math.pi)
    return top / math.sqrt(2 * twice)


def asymptotic(n, delta, max_rank):
    if n < 17:
        return table(n, max_rank, lambda rank: 1.0)
    c = process_constant(n, delta)
    return table(n, max_rank, lambda rank: rank / n + c * math.sqrt(rank * (n - rank)) / n**1.5)


def hybrid(n, delta, gamma, max_rank):
    if n < 17:
        return simes(n, delta, max_rank)
    c, half = process_constant(n, delta - gamma), n // 2
    shape = [rank / n + c * math.sqrt(rank * (n - rank)) / n**1.5 for rank in range(half + 1)]
    linear = table(
        n,
        max_rank,
        lambda rank: shape[rank] if rank <= half else shape[half] + (shape[half] - shape[half - 1]) * (rank - half),
    )
    return np.minimum(simes(n, delta, max_rank), linear)


def signed(null):
    return 1 if null == "nonmember" else -1


def weighted_p(calibration, scores, calibration_weights, weights, null, calibration_mask=None, mask=None):
    """Fractions, None where masked."""
    sign = signed(null)
    ok, valid = ref.real(calibration, calibration_mask), ref.real(scores, mask)
    kept = [(sign * float(s), Fraction(float(w))) for s, w, r in zip(calibration, calibration_weights, ok) if r]
    total = sum((w for _, w in kept), Fraction(0))
    out = []
    for score, weight, is_real in zip(scores, weights, valid):
        if not is_real:
            out.append(None)
            continue
        own = Fraction(float(weight))
        extreme = sum((w for s, w in kept if s <= sign * float(score)), Fraction(0))
        out.append((extreme + own) / (total + own) if total + own else Fraction(1))
    return out


def weighted_selection(
    calibration, scores, calibration_weights, weights, alpha, null, calibration_mask=None, mask=None, factor=None
):
    """Selected, p, R_j and the fewest selections possible, by the m^2 auxiliary p-values."""
    sign, alpha = signed(null), ref.fraction(alpha)
    ok, valid = ref.real(calibration, calibration_mask), ref.real(scores, mask)
    kept = [(sign * float(s), Fraction(float(w))) for s, w, r in zip(calibration, calibration_weights, ok) if r]
    total = sum((w for _, w in kept), Fraction(0))
    p = weighted_p(calibration, scores, calibration_weights, weights, null, calibration_mask, mask)
    real = [j for j, v in enumerate(valid) if v]
    m, value = len(real), {j: sign * float(scores[j]) for j in real}
    below = {j: sum((w for s, w in kept if s < value[j]), Fraction(0)) for j in real}
    sizes = [0] * len(scores)
    for j in real:
        own = Fraction(float(weights[j]))
        top = [below[i] + (own if value[j] < value[i] else 0) for i in real if i != j]
        ordered = sorted([Fraction(0), *[x / (total + own) if total + own else Fraction(1) for x in top]])
        sizes[j] = max(k for k in range(1, m + 1) if ordered[k - 1] <= alpha * k / m)
    passing = {j for j in real if p[j] <= alpha * sizes[j] / m}
    factor = [Fraction(1)] * len(scores) if factor is None else factor
    pruned = {j: factor[j] * sizes[j] for j in passing}
    count = max(r for r in range(m + 1) if sum(x <= r for x in pruned.values()) >= r)
    floors = [Fraction(float(weights[j])) for j in real]
    least = min((w / (total + w) if total + w else Fraction(1) for w in floors), default=None)
    fewest = m + 1 if least is None else max(1, math.ceil(m * least / alpha))
    return (
        np.array([j in passing and pruned[j] <= count for j in range(len(scores))], bool),
        p,
        np.array(sizes, int),
        min(fewest, m + 1),
    )


def effective_sample_size(weights, mask=None):
    kept = np.asarray(weights, np.float64)[np.ones(len(weights), bool) if mask is None else mask]
    return kept.sum() ** 2 / (kept**2).sum() if (kept > 0).any() else 0.0


def cluster_scores(scores, clusters, num_clusters, aggregate, mask=None):
    real = ref.real(scores, mask)
    found, sizes = [], []
    for c in range(num_clusters):
        own = np.asarray(scores, np.float64)[real & (np.asarray(clusters) == c)]
        sizes.append(len(own))
        found.append(getattr(np, aggregate)(own) if len(own) else np.nan)
    return {"scores": np.array(found), "size": np.array(sizes, int), "valid": np.array(sizes, int) > 0}


def cluster_shares(clusters, mask=None):
    clusters = np.asarray(clusters)
    real = np.ones(len(clusters), bool) if mask is None else mask
    return np.array([1 / (clusters[real] == c).sum() if r else 0.0 for c, r in zip(clusters, real)])


def hierarchical_p(calibration, scores, calibration_clusters, null, calibration_mask=None, mask=None):
    sign = signed(null)
    ok, valid = ref.real(calibration, calibration_mask), ref.real(scores, mask)
    labels = sorted(set(np.asarray(calibration_clusters)[ok].tolist()))
    out = []
    for score, is_real in zip(scores, valid):
        total = Fraction(1)
        for label in labels:
            own = np.asarray(calibration)[ok & (np.asarray(calibration_clusters) == label)]
            total += Fraction(int((sign * own <= sign * score).sum()), len(own))
        out.append(float(total / (len(labels) + 1)) if is_real else np.nan)
    return np.array(out)


def group_p(calibration, scores, calibration_groups, groups, null, calibration_mask=None, mask=None):
    ok, valid = ref.real(calibration, calibration_mask), ref.real(scores, mask)
    ranks, sizes = [], []
    for score, group, is_real in zip(scores, groups, valid):
        own = np.asarray(calibration)[ok & (np.asarray(calibration_groups) == group)]
        rank, size = ref.conformal_ranks(own, [score], null)
        ranks.append(rank[0] if is_real else len(calibration) + 2)
        sizes.append(size if is_real else 0)
    p = [r / (n + 1) if v else np.nan for r, n, v in zip(ranks, sizes, valid)]
    return {
        "p_values": np.array(p),
        "rank": np.array(ranks, int),
        "num_calibration": np.array(sizes, int),
        "valid": valid,
    }
