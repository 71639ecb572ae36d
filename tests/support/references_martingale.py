"""Martingales and online conformal p-values by their definitions: loops, products, incomplete Gamma functions."""

import math

import numpy as np
from scipy.special import gammainc, gammaln


def control_p_value(score, controls, uniform, mask=None):
    out = []
    for i, (x, row) in enumerate(zip(np.asarray(score, float), np.asarray(controls, float))):
        real = [y for j, y in enumerate(row) if not math.isnan(y) and (mask is None or mask[i, j])]
        lower, equal = sum(y < x for y in real), sum(y == x for y in real)
        out.append(math.nan if math.isnan(x) else (lower + uniform[i] * (1 + equal)) / (len(real) + 1))
    return np.array(out)


def online_p_values(scores, uniforms, null, window=None, leaves=None):
    """One score after the other; the held ones in a list whose place `leaves[t]` the arrival takes."""
    held, out = [], []
    for t, x in enumerate(scores):
        if math.isnan(x):
            out.append(math.nan)
            continue
        strict = sum(y < x if null == "nonmember" else y > x for y in held)
        out.append((strict + uniforms[t] * (1 + held.count(x))) / (len(held) + 1))
        if window is None or len(held) < window:
            held.append(x)
        elif leaves[t] < window:
            held[leaves[t]] = x
    return np.array(out)


def log_mixture(log_p):
    """log of exp(S) Gamma(t + 1) P(t + 1, S) / S^(t + 1), S = -sum of log p."""
    t, s = np.arange(1, len(log_p) + 1), -np.cumsum(log_p)
    return s + gammaln(t + 1) + np.log(gammainc(t + 1, s)) - (t + 1) * np.log(s)


def rule(size):
    nodes, weights = np.polynomial.legendre.leggauss(size)
    return [((x + 1) / 2, w / 2) for x, w in zip(nodes, weights)]


def any_start(p):
    """Every start and every bet of its own."""
    keep = lambda t: 1 / (1 + math.log(1 + t))  # noqa: E731
    out = []
    for t in range(1, len(p) + 1):
        wealth = keep(t)
        for s in range(1, t + 1):
            for e, weight in rule(8):
                wealth += weight * (keep(s - 1) - keep(s)) * math.prod(e * x ** (e - 1) for x in p[s - 1 : t])
        out.append(math.log(wealth))
    return np.array(out)


def simple_jumper(p, rate=0.01):
    accounts, out = [1 / 3] * 3, []
    for x in p:
        whole = sum(accounts)
        accounts = [((1 - rate) * own + rate * whole / 3) * (1 + e * (x - 0.5)) for e, own in zip((-1, 0, 1), accounts)]
        out.append(math.log(sum(accounts)))
    return np.array(out)


def shiryaev_roberts(p, mean_time):
    """R_t as the sum over starts of products, since the last alarm."""
    begin, statistic, alarm = 0, [], []
    for t in range(1, len(p) + 1):
        r = sum(weight * math.prod(e * x ** (e - 1) for x in p[s:t]) for s in range(begin, t) for e, weight in rule(8))
        statistic.append(math.log(r))
        alarm.append(r >= mean_time)
        begin = t if alarm[-1] else begin
    return np.array(statistic), np.array(alarm)
