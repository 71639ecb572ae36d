"""Knockoffs and e-values by their definitions, in exact rational arithmetic, one threshold at a time."""

import math
from fractions import Fraction

import numpy as np
import references as ref

INFINITY = float("inf")


def kept(w, mask=None):
    """Statistics as Fractions, None where masked."""
    ok = ref.real(w, mask)
    return [Fraction(float(x)) if r else None for x, r in zip(w, ok)]


def ratio(w, t, offset=1, losses=1):
    real = [x for x in w if x is not None]
    return Fraction(offset + sum(x <= -t for x in real), losses * max(1, sum(x >= t for x in real)))


def thresholds(w):
    return sorted({abs(x) for x in w if x})


def knockoff_filter(w, alpha, offset=1, losses=1):
    """Threshold, decisions and adjusted values."""
    alpha, grid = ref.fraction(alpha), thresholds(w)
    ratios = {t: ratio(w, t, offset, losses) for t in grid}
    tau = min((t for t in grid if ratios[t] <= alpha), default=INFINITY)
    reject = [x is not None and x >= tau for x in w]
    adjusted = [math.nan if x is None else float(min([Fraction(1), *(ratios[t] for t in grid if t <= x)])) for x in w]
    return float(tau), np.array(reject, bool), np.array(adjusted)


def multi(original, knockoffs, mask=None):
    """kappa, tau and the signed statistic of each item."""
    kappa, tau, signed = [], [], []
    for i, (own, others) in enumerate(zip(original, knockoffs)):
        copies = [float(own), *map(float, others)]
        if any(x != x for x in copies) or (mask is not None and not mask[i]):
            kappa.append(-1)
            tau.append(math.nan)
            signed.append(math.nan)
            continue
        low, second = sorted(copies)[:2]
        winners = [j for j, x in enumerate(copies) if x == low]
        kappa.append(0 if winners == [0] else min(j for j in winners if j))
        tau.append(second - low)
        signed.append(second - low if winners == [0] else low - second)
    return np.array(kappa, int), np.array(tau, float), np.array(signed, float)


def derandomized(w, alpha, mask=None):
    """Mean over the columns of p 1{W >= T}/(1 + #{W <= -T})."""
    real = ~np.isnan(w).any(axis=1) & (True if mask is None else mask)
    total = [Fraction(0)] * len(w)
    for column in w.T:
        stats = kept(column, real)
        tau = knockoff_filter(stats, alpha)[0]
        for j, x in enumerate(stats):
            if x is not None and x >= tau:
                total[j] += Fraction(int(real.sum()), 1 + sum(y is not None and y <= -tau for y in stats))
    return np.array([float(e / w.shape[1]) if r else math.nan for e, r in zip(total, real)])


def fdp_bound(w, delta):
    """Every cut's bound, sharpened by all other cuts."""
    factor, grid = math.log(1 / delta) / math.log(2 - delta), thresholds(w)
    found = {t: sum(x is not None and x >= t for x in w) for t in grid}
    false = {t: min(found[t], math.floor(factor * (1 + sum(x is not None and x <= -t for x in w)))) for t in grid}
    sharp = {t: min(false[s] + found[t] - found[s] for s in grid if s >= t) for t in grid}
    positive = [x is not None and x > 0 for x in w]
    return {
        "num_selected": np.array([found[x] if p else 0 for x, p in zip(w, positive)], int),
        "false_bound": np.array([sharp[x] if p else 0 for x, p in zip(w, positive)], int),
        "fdp_bound": np.array([sharp[x] / found[x] if p else math.nan for x, p in zip(w, positive)]),
        "min_true": max((found[t] - sharp[t] for t in grid), default=0),
    }


def e_bh(e, alpha):
    """k* = max{k: e_(k) >= m/(alpha k)}; e are Fractions or None."""
    alpha, m = ref.fraction(alpha), sum(x is not None for x in e)
    ordered = sorted((x for x in e if x is not None), reverse=True)
    k = max((k for k in range(1, m + 1) if ordered[k - 1] * alpha * k >= m), default=0)
    reject = [x is not None and k > 0 and x * alpha * k >= m for x in e]

    def adjusted(x):
        first = sum(y > x for y in ordered) + 1
        levels = [Fraction(m) / (i * ordered[i - 1]) for i in range(first, m + 1) if ordered[i - 1] > 0]
        return float(min([Fraction(1), *levels]))

    return {
        "reject": np.array(reject, bool),
        "adjusted": np.array([math.nan if x is None else adjusted(x) for x in e]),
        "threshold": float(min((x for x, r in zip(e, reject) if r), default=INFINITY)),
        "num_rejected": sum(reject),
        "num_tests": m,
    }


def closed_e_bh(e, alpha):
    """Every set of a of the r largest and the b smallest others; e are Fractions or None. No r parts equal values."""
    alpha, m = ref.fraction(alpha), sum(x is not None for x in e)
    ordered = sorted((x for x in e if x is not None), reverse=True)
    total = [Fraction(0)]
    for x in ordered:
        total.append(total[-1] + x)

    def level(r):
        found = Fraction(0)
        for a in range(1, r + 1):
            inside = total[r] - total[r - a]
            mean = min((inside + total[m] - total[m - b]) / (a + b) for b in range(m - r + 1))
            found = max(found, Fraction(a) / (r * mean) if mean else Fraction(2))
        return found

    parts = [r < m and ordered[r - 1] == ordered[r] for r in range(1, m + 1)]
    levels = [Fraction(2) if parts[r - 1] else level(r) for r in range(1, m + 1)]

    def adjusted(x):
        return min([Fraction(1), *levels[sum(y >= x for y in ordered) - 1 :]])

    reject = [x is not None and adjusted(x) <= alpha for x in e]
    return {
        "reject": np.array(reject, bool),
        "adjusted": np.array([math.nan if x is None else float(adjusted(x)) for x in e]),
        "threshold": float(min((x for x, r in zip(e, reject) if r), default=INFINITY)),
        "num_rejected": sum(reject),
        "num_tests": m,
    }


def unit_e_values(calibration, scores, own, units, alpha, sizes, null):
    """[m] e-values and [M] scores, straight from the definition; NaN are left out."""
    sign = 1 if null == "nonmember" else -1
    known = [i for i in range(calibration.shape[1]) if not np.isnan(calibration[:, i]).any()]
    tested = [j for j in range(scores.shape[1]) if not np.isnan(scores[:, j]).any()]
    c, m = len({own[i] for i in known}), len({units[j] for j in tested})
    e, chosen = np.full(scores.shape[1], np.nan), np.zeros(sizes[1], int)
    for unit in range(sizes[1]):
        best = (-1, 0, -INFINITY, 1)
        for k in range(len(scores)):
            for s in sorted({sign * x for x in [*calibration[k, known], *scores[k, tested]]}, reverse=True):
                mine = sum(units[j] == unit and sign * scores[k, j] <= s for j in tested)
                counted = mine + sum(sign * calibration[k, i] <= s for i in known)
                others = sum(sign * scores[k, j] <= s for j in tested) - mine
                if Fraction(m, c + 1) * counted <= ref.fraction(alpha) * (others + 1):
                    if others > best[0]:
                        best = (others, k, s, counted)
                    break
        _, chosen[unit], cut, counted = best
        for j in tested:
            if units[j] == unit:
                inside = sign * scores[chosen[unit], j] <= cut
                e[j] = len(tested) * (c + 1) / (m * counted) if inside else 0
    return e, chosen


def conformal_e_values(calibration, scores, alpha, null, calibration_mask=None, mask=None):
    """The cut is the most permissive score of both samples that qualifies, or that no calibration score is up to."""
    sign = 1 if null == "nonmember" else -1
    own = [sign * float(x) for x, r in zip(calibration, ref.real(calibration, calibration_mask)) if r]
    valid = ref.real(scores, mask)
    test = [sign * float(x) for x, r in zip(scores, valid) if r]
    alpha, n, m, cut = ref.fraction(alpha), len(own), len(test), None
    for s in sorted(own + test):
        before, found = 1 + sum(x <= s for x in own), sum(x <= s for x in test)
        if found and (m * before <= alpha * found * (n + 1) or before == 1):
            cut = s
    value = 0.0 if cut is None else float(Fraction(n + 1, 1 + sum(x <= cut for x in own)))
    return np.array(
        [
            math.nan if not r else value if cut is not None and sign * float(x) <= cut else 0.0
            for x, r in zip(scores, valid)
        ]
    )


def count_signs(w, tail):
    """Signs among all and among the largest |W|, ties with the last of them included."""
    used = [x for x in w if x]
    size = ref.tail(len(used), tail)
    cut = sorted((abs(x) for x in used), reverse=True)[size - 1] if used else 0
    inside = [x for x in used if abs(x) >= cut]
    return sum(x > 0 for x in used), len(used), sum(x > 0 for x in inside), len(inside)


def log_fraction(x):
    return math.log(x.numerator) - math.log(x.denominator) if x else -INFINITY


def binomial_tails(x, trials, losses):
    """Logarithms of P(X >= x) and P(X <= x)."""
    mass = [Fraction(math.comb(trials, i) * losses ** (trials - i), (1 + losses) ** trials) for i in range(trials + 1)]
    return log_fraction(sum(mass[x:])), log_fraction(sum(mass[: x + 1]))


def signed_rank_z(w):
    """Sum of signed mid-ranks of |W| over the root of the sum of their squares."""
    used = [x for x in w if x]
    sizes = [abs(x) for x in used]
    mid = [Fraction(2 * sum(y < x for y in sizes) + sum(y == x for y in sizes) + 1, 2) for x in sizes]
    total = sum(r if x > 0 else -r for x, r in zip(used, mid))
    return float(total) / math.sqrt(sum(r * r for r in mid)) if used else 0.0
