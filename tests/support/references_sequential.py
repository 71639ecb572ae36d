"""Sequential tests of canonical order by their definitions: loops over draws, Beta functions of SciPy."""

import math

import numpy as np
from scipy.special import betaln

SHARD_BETS = [
    (0.8, 1.2, 1.0),
    (0.5, 1.5, 1.0),
    (0.3, 4.0, 1.0),
    (0.05, 8.0, 1.0),
    (0.3, 4.0, 0.4),
    (0.2, 4.0, 0.2),
    (0.05, 8.0, 0.05),
]
SUM_BETS = [(0.05, 8.0), (0.3, 4.0), (0.6, 1.4)]


def exceedances(canonical, shuffled, tolerance, mask=None):
    """{"shards", "shard_draws", "total", "total_draws", "num_shards"}, one draw after the other."""
    r, horizon = shuffled.shape
    used = [i for i in range(r) if not math.isnan(canonical[i]) and (mask is None or mask[i])]
    out = {name: np.zeros((r, horizon), int) for name in ("shards", "shard_draws")}
    out |= {name: np.zeros(horizon, int) for name in ("total", "total_draws")}
    for b in range(horizon):
        if b:
            for name in out:
                out[name][..., b] = out[name][..., b - 1]
        own, other = canonical[used].astype(float), shuffled[used, b].astype(float)
        slack = tolerance * np.maximum(abs(own), abs(other))
        for i, x, y, near in zip(used, own, other, slack):
            if not math.isnan(y):
                out["shard_draws"][i, b] += 1
                out["shards"][i, b] += y >= x - near
        if used and not np.isnan(other).any():
            out["total_draws"][b] += 1
            out["total"][b] += other.sum() >= own.sum() - slack.sum()
    return out | {"num_shards": len(used)}


def log_bet(x, b, a, c):
    return betaln(a + x, c + b - x) - betaln(a, c) - betaln(1 + x, 1 + b - x)


def log_e(counts):
    """[B] logarithm of the e-value."""
    x, b = counts["shards"], counts["shard_draws"]
    shards = [np.log1p(share * np.expm1(log_bet(x, b, a, c))).sum(axis=0) for a, c, share in SHARD_BETS]
    by_shards = np.logaddexp.reduce(shards) - np.log(len(shards))
    if counts["num_shards"] <= 1:
        return by_shards
    whole = [log_bet(counts["total"], counts["total_draws"], a, c) for a, c in SUM_BETS]
    by_sum = np.logaddexp.reduce(whole) - np.log(len(whole))
    return np.maximum(by_shards + np.log(0.9), by_sum + np.log(0.1))


def besag_clifford(counts, h):
    p, stopped = [], None
    for x, b in zip(counts["total"], counts["total_draws"]):
        if stopped is None and x >= h:
            stopped = h / b
        p.append((1 + x) / (1 + b) if stopped is None else stopped)
    return np.array(p)
