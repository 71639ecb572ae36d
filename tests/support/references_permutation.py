"""Slow references of the exchangeability tests: float64, Fractions, full lists."""

import itertools
import math
from fractions import Fraction

import numpy as np
from scipy import stats


def kept(mask, *arrays):
    """Rows that are neither masked out nor NaN, in float64."""
    arrays = [np.asarray(a, float) for a in arrays]
    real = np.ones(len(arrays[0]), bool) if mask is None else np.asarray(mask)
    for a in arrays:
        real = real & ~np.isnan(a).any(axis=tuple(range(1, a.ndim)))
    return real, [a[real] for a in arrays]


def permutation_p(observed, permuted, tolerance=0.0, mask=None):
    _, (draws,) = kept(mask, permuted)
    reached = sum(x >= observed - tolerance for x in draws)
    return Fraction(1 + reached, 1 + len(draws)), reached, len(draws)


def complete_p(observed, statistics, tolerance=0.0, mask=None):
    _, (every,) = kept(mask, statistics)
    reached = max(sum(x >= observed - tolerance for x in every), min(len(every), 1))
    return Fraction(reached, len(every)) if len(every) else Fraction(1), reached, len(every)


def shard_ranks(canonical, shuffled, tolerance, mask=None):
    real, _ = kept(mask, canonical, shuffled)
    out = np.full(len(canonical), -1)
    for i in np.flatnonzero(real):
        slack = tolerance * max(abs(canonical[i]), *np.abs(shuffled[i]))
        out[i] = sum(float(canonical[i]) - float(x) > slack for x in shuffled[i])
    return out


def rank_sum_law(r, k):
    """P(S >= s) for s = 0..rk as Fractions, by convolving one shard at a time."""
    ways = [1]
    for _ in range(r):
        ways = [sum(ways[max(0, s - k) : s + 1]) for s in range(len(ways) + k)]
    tails = list(itertools.accumulate(reversed(ways)))[::-1]
    return [Fraction(tail, (k + 1) ** r) for tail in tails]


def log_fraction(x):
    return math.log(x.numerator) - math.log(x.denominator)


def rank_sum(canonical, shuffled, tolerance, mask=None):
    ranks = shard_ranks(canonical, shuffled, tolerance, mask)
    used = ranks[ranks >= 0]
    p = rank_sum_law(len(used), shuffled.shape[1])[int(used.sum())]
    return {"statistic": used.sum(), "p": float(p), "log_p": log_fraction(p), "ranks": ranks, "num_shards": len(used)}


def shard_randomization(canonical, shuffled, mask=None):
    """All (k + 1)^r relabellings, one by one: (reaching, all)."""
    _, (canonical, shuffled) = kept(mask, canonical, shuffled)
    rows = np.column_stack([canonical, shuffled])
    sums = [sum(choice) for choice in itertools.product(*rows.tolist())]
    return sum(x >= canonical.sum() - 1e-9 * np.abs(rows).sum() for x in sums), len(sums)


def one_sample(values, mask=None):
    _, (values,) = kept(mask, values)
    r = len(values)
    if r < 2 or np.ptp(values) == 0:
        nothing = {"statistic": np.nan, "p_value": 1.0, "log_p_value": 0.0, "skewness": 0.0}
        return nothing | {"mean": values.mean() if r else 0.0, "num_values": r}
    t = values.mean() / (values.std(ddof=1) / np.sqrt(r))
    return {
        "statistic": t,
        "p_value": stats.t.sf(t, r - 1),
        "log_p_value": stats.t.logsf(t, r - 1),
        "mean": values.mean(),
        "skewness": stats.skew(values),
        "num_values": r,
    }
