"""Slow references of simultaneous bounds, Hommel's procedure, local false discovery rates and online procedures."""

import itertools
import math
from fractions import Fraction

import numpy as np


def hommel(p, alpha):
    """Rejections and adjusted values by the textbook loop over subset sizes; p are Fractions or None."""
    kept = sorted((i for i, x in enumerate(p) if x is not None), key=lambda i: p[i])
    ordered, m = [p[i] for i in kept], len(kept)
    found = [min((Fraction(m) * x / (k + 1) for k, x in enumerate(ordered)), default=0)] * m
    for size in range(m - 1, 1, -1):
        large = range(m - size + 1, m)
        least = min(size * ordered[k] / (2 + j) for j, k in enumerate(large))
        q = [min(size * x, least) for x in ordered[: m - size + 1]]
        q += [q[-1]] * (size - 1)
        found = [max(a, b) for a, b in zip(found, q)]
    adjusted = [float("nan")] * len(p)
    reject = [False] * len(p)
    for i, own, x in zip(kept, found, ordered):
        value = min(max(own, x), 1)
        adjusted[i], reject[i] = float(value), value <= Fraction(str(alpha))
    return reject, adjusted


def closed_simes(p):
    """Hommel's adjusted p-values by testing every subset."""
    m = len(p)
    subsets = [s for size in range(1, m + 1) for s in itertools.combinations(range(m), size)]
    simes = {s: min(Fraction(len(s)) * x / (k + 1) for k, x in enumerate(sorted(p[i] for i in s))) for s in subsets}
    return [max(simes[s] for s in subsets if i in s) for i in range(m)]


def local_fdr(p, pi0):
    """Local and tail rates and the density: the majorant at u is the highest chord over u. p are Fractions or None."""
    kept = [x for x in p if x is not None]
    m = max(len(kept), 1)
    points = [(Fraction(0), Fraction(0)), *((x, Fraction(sum(y <= x for y in kept), m)) for x in kept)]
    points.append((Fraction(1), Fraction(1) if kept else Fraction(0)))
    highest = {}
    for x, y in points:
        highest[x] = max(y, highest.get(x, y))
    vertices = sorted(highest.items())

    def height(u):
        chords = [
            a[1] + (b[1] - a[1]) * (u - a[0]) / (b[0] - a[0])
            for a in vertices
            for b in vertices
            if a[0] <= u <= b[0] and a[0] < b[0]
        ]
        return max(chords)

    def slope(u):
        """The left derivative of the concave majorant at u: it is linear between neighbouring points."""
        if u == 0:
            return math.inf if highest[Fraction(0)] > 0 else 0
        before = max(x for x, _ in [(Fraction(0), 0), *vertices] if x < u)
        return (height(u) - height(before)) / (u - before)

    out = {"local_fdr": [], "tail_fdr": [], "density": []}
    for x in p:
        if x is None:
            values = (math.nan,) * 3
        else:
            f = slope(x)
            values = (min(pi0 / float(f), 1), min(pi0 * float(x) / float(height(x)), 1), float(f))
        for name, value in zip(("local_fdr", "tail_fdr", "density"), values):
            out[name].append(value)
    return {name: np.array(values) for name, values in out.items()} | {"num_tests": len(kept)}


def fdp_bounds(num_nulls, ranks, bound, rank, max_rank, mask=None):
    """The bounds as defined, with the envelope of k the one of the next tabulated number >= k."""
    real = [bool(r <= max_rank and (mask is None or mask[j])) for j, r in enumerate(rank)]
    kept = [int(r) for r, ok in zip(rank, real) if ok]
    m = len(kept)
    selected = [sum(r <= i for r in kept) for i in range(max_rank + 1)]

    def envelope(k, i):
        if k == 0:
            return 0
        row = next(a for a, top in enumerate(num_nulls) if top >= k)
        return int(bound[row][list(ranks).index(i)])

    nulls = max(k for k in range(m + 1) if all(k <= envelope(k, i) + m - selected[i] for i in ranks))
    v = [min(selected[i], nulls) for i in range(max_rank + 1)]
    for i in ranks:
        v[i] = min(v[i], envelope(nulls, i))
    v = [min(v[i:]) for i in range(max_rank + 1)]
    v = [min(v[s] + selected[i] - selected[s] for s in range(i + 1)) for i in range(max_rank + 1)]
    return {
        "num_selected": np.array(selected[1:]),
        "false_bound": np.array(v[1:]),
        "max_nulls": nulls,
        "num_tests": m,
        "slot": np.array([int(r) - 1 if ok else -1 for r, ok in zip(rank, real)], int),
    }


def bound_of_set(found, chosen):
    """The least of v(i) plus what lies beyond i, over all i."""
    slots = [s for s, c in zip(found["slot"], chosen) if c and s >= 0]
    beyond = [int(v) + sum(s > i for s in slots) for i, v in enumerate(found["false_bound"])]
    return min([len(slots), found["max_nulls"], *beyond])


def dkw_offset(n, m, delta):
    tau, x = n * m / (n + m), 1.0
    if m == 0:
        return 1.0
    for _ in range(500):
        inside = math.log(1 / delta) + math.log(1 + math.sqrt(2 * math.pi) * 2 * x * tau / math.sqrt(n + m))
        x = min(1.0, math.sqrt(inside / (2 * tau)))
    return x


def dkw(p, thresholds, n, delta, interpolate):
    kept = [x for x in p if not np.isnan(x)]
    m, offset = len(kept), dkw_offset(n, len(kept), delta)
    counts = [sum(x <= t for x in kept) for t in thresholds]
    false = []
    for t, count in zip(thresholds, counts):
        if interpolate:
            options = [m * min(1.0, x + offset) + count - sum(y <= x for y in kept) for x in kept if x <= t]
            value = min([m + count, *options])
        else:
            value = m * min(1.0, t + offset)
        false.append(min(max(value, 0), count))
    fdp = [v / max(1, c) for v, c in zip(false, counts)]
    return {
        "fdp_bound": np.array(fdp),
        "false_bound": np.array(false),
        "num_selected": np.array(counts),
        "offset": offset,
    }


def log_series(t):
    return 0.07720838 * math.log(max(t, 2)) / (t * math.exp(math.sqrt(math.log(t))))


def power_series(t):
    return 0.43749016577 * t**-1.6


def lond(p, alpha, harmonic=False):
    levels, found, time = [], 0, 0
    for x in p:
        if np.isnan(x):
            levels.append(math.nan)
            continue
        time += 1
        level = alpha * log_series(time) / (sum(1 / i for i in range(1, time + 1)) if harmonic else 1) * (found + 1)
        levels.append(level)
        found += x <= level
    return np.array(levels)


def lord_plus_plus(p, alpha, share=0.1):
    w0, levels, times, time = alpha * share, [], [], 0
    for x in p:
        if np.isnan(x):
            levels.append(math.nan)
            continue
        time += 1
        level = w0 * log_series(time) + sum(
            (alpha - w0 if j == 0 else alpha) * log_series(time - tau) for j, tau in enumerate(times)
        )
        levels.append(level)
        if x <= level:
            times.append(time)
    return np.array(levels)


def saffron(p, alpha, share=0.5, lambda_=0.5):
    w0, levels, times, seen = alpha * share, [], [], []
    for x in p:
        if np.isnan(x):
            levels.append(math.nan)
            continue
        time = len(seen) + 1
        level = w0 * power_series(time - sum(y <= lambda_ for y in seen))
        for j, tau in enumerate(times):
            candidates = sum(y <= lambda_ for y in seen[tau:])
            level += (alpha - w0 if j == 0 else alpha) * power_series(time - tau - candidates)
        level = min(lambda_, (1 - lambda_) * level)
        levels.append(level)
        seen.append(x)
        if x <= level:
            times.append(time)
    return np.array(levels)
