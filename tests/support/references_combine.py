"""Slow references of the combinations: their definitions in double precision, one group or item at a time."""

import math
from fractions import Fraction

import numpy as np
from references import conformal_ranks, real
from scipy import optimize, stats

RIDGE = 0.05


def each_row(function):
    """A function of one group [K] as a function of groups [m, K]."""
    return lambda p_values, *rest: np.array([function(np.asarray(row, float), *rest) for row in p_values], float)


def cot(p):
    """cot(pi·p), from the nearer end."""
    if p in (0, 1):
        return math.inf if p == 0 else -math.inf
    return 1 / math.tan(math.pi * p) if p <= 0.5 else -1 / math.tan(math.pi * (1 - p))


def cauchy_statistic(p, weights=None):
    w = np.ones(len(p)) if weights is None else np.asarray(weights, float)
    if not (np.isfinite(w).all() and (w >= 0).all() and w.sum() > 0):
        return math.nan
    used = [(x, y) for x, y in zip(p, w) if y > 0]
    if any(not 0 <= x <= 1 for x, _ in used) or {0.0, 1.0} <= {x for x, _ in used}:
        return math.nan
    return sum(y / w.sum() * cot(x) for x, y in used)


def tail(statistic):
    return math.atan2(1, statistic) / math.pi


def cauchy(p, weights=None):
    return tail(cauchy_statistic(p, weights))


def truncated_cauchy(p, tau):
    if any(not 0 <= x <= 1 for x in p):
        return math.nan, math.nan
    statistic = sum(cot(x) for x in p if x < tau) / len(p)
    return tail(statistic), statistic


def harmonic_constant(k):
    if k < 3:
        return k
    y = optimize.brentq(lambda y: y * y - k * ((y + 1) * math.log(y + 1) - y), 1e-3, 1e6, xtol=1e-14)
    return (y + k) ** 2 / ((y + 1) * k)


def merged(method):
    """One of the merging functions on a group [K]."""

    def merge(p):
        k, ordered = len(p), np.sort(p)
        if not ((p >= 0) & (p <= 1)).all():
            return math.nan
        simes = min(k * ordered[i] / (i + 1) for i in range(k))
        value = {
            "bonferroni": lambda: k * ordered[0],
            "simes": lambda: simes,
            "hommel": lambda: simes * sum(1 / i for i in range(1, k + 1)),
            "ruger": lambda: k / math.ceil(k / 2) * ordered[math.ceil(k / 2) - 1],
            "maximum": lambda: ordered[-1],
            "twice_mean": lambda: (1 if k == 1 else 2) * p.mean(),
            "geometric": lambda: (1 if k == 1 else math.e) * math.exp(np.log(p).mean()) if p.all() else 0.0,
            "harmonic": lambda: harmonic_constant(k) * k / (1 / p).sum() if p.all() else 0.0,
        }[method]()
        return min(value, 1.0)

    return merge


def discriminant(scores, label, null, sparse, mask=None):
    """Shrunken linear discriminant of normal scores, item by item."""
    kept = np.flatnonzero(real_rows(scores, mask))
    value, kind = np.asarray(scores, float)[kept], np.asarray(label)[kept]
    size, width = len(kept), scores.shape[1]
    sign = 1 if null == "member" else -1
    place = np.array(
        [
            [2 * (sign * v[k] > sign * value[:, k]).sum() + (v[k] == value[:, k]).sum() for k in range(width)]
            for v in value
        ]
    ).reshape(size, width)
    x = stats.norm.ppf(place / (2 * max(size, 1)))
    first, second = np.flatnonzero(kind == 0), np.flatnonzero(kind == 1)
    mean = x[first].mean(0) if len(first) else np.zeros(width)
    centred = x[first] - mean
    covariance = centred.T @ centred / max(len(first), 1)

    def weights(v):
        false = np.array([(1 + (v[first] >= y).sum()) / (1 + len(first)) for y in v])
        reached = np.array([max((v[second] >= y).sum(), 1) / max(len(second), 1) for y in v])
        return np.maximum(1 - false / reached, 0) if len(second) else np.zeros(size)

    def fit(w):
        w = np.array([w[i] if kind[i] == 1 else float(kind[i] == 2) for i in range(size)])
        total = w.sum()
        difference = w @ x / total - mean if total > 1e-6 else np.zeros(width)
        error = np.sqrt(np.diag(covariance) * (1 / max(len(first), 1) + 1 / max(total, 1e-38))) * sparse
        left = np.sign(difference) * np.maximum(abs(difference) - error, 0)
        b = np.linalg.solve(covariance + RIDGE * np.eye(width), left) if left.any() else np.ones(width)
        return b, x @ b

    w = np.ones(size)
    if sparse:
        w = np.max([weights(v) for v in (*place.T, place.sum(1))], axis=0)
        w = weights(fit(w)[1])
    b, g = fit(w)
    out = np.full(len(scores), np.nan)
    out[kept] = g
    return {"statistic": out, "coefficients": b}


def real_rows(scores, mask):
    known = ~np.isnan(scores).any(axis=1)
    return known if mask is None else known & mask


def classical(method):
    """SciPy's p-value and statistic of a group [K]."""

    def combine(p, weights=None):
        if np.isnan(p).any():
            return math.nan, math.nan
        found = stats.combine_pvalues(p, method=method, weights=weights)
        return found.pvalue, found.statistic

    return combine


def doubled_mid_ranks(own, pool, null):
    """2·#{more extreme} + #{equal} + 1 for each of `own` in `pool`."""
    sign, pool = 1 if null == "nonmember" else -1, np.asarray(pool)
    return [int(2 * (sign * pool < sign * x).sum() + (pool == x).sum() + 1) for x in own]


def pooled(calibration, scores, null, rule, weights=None, calibration_mask=None, mask=None):
    """Conformal ranks (-1 for masked items) of the combined evidence, n, and ranks [m, K] by each detector; [., K]."""
    weights = [1] * calibration.shape[1] if weights is None else [Fraction(float(w)) for w in weights]
    keep = real(calibration.sum(axis=1), calibration_mask)
    valid = real(scores.sum(axis=1), mask)
    pools = np.concatenate([calibration[keep], scores[valid]])
    size = len(pools)
    evidence = [0] * size
    for weight, column in zip(weights, pools.T):
        ranks = doubled_mid_ranks(column, column, null)
        value = (lambda r: -r) if rule == "sum" else (lambda r: Fraction(cot(r / (2 * (size + 1)))))
        evidence = [e + weight * value(r) for e, r in zip(evidence, ranks)]
    n = int(keep.sum())
    own, other = evidence[:n], iter(evidence[n:])
    combined = []
    for is_real in valid:
        item = next(other) if is_real else None
        combined.append(1 + sum(e >= item for e in own) if is_real else -1)
    alone = [conformal_ranks(calibration[:, k], scores[:, k], null, keep, valid)[0] for k in range(scores.shape[1])]
    return np.array(combined, int), n, np.array(alone, int).reshape(scores.shape[1], -1).T
