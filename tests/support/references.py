"""Slow references: the definitions, in exact rational arithmetic, one item at a time."""

from fractions import Fraction

import numpy as np


def fraction(alpha):
    return Fraction(str(alpha))


def real(values, mask=None):
    ok = ~np.isnan(np.asarray(values, float))
    return ok if mask is None else ok & np.asarray(mask)


def counts(calibration, scores, calibration_mask=None, mask=None, weights=None):
    ok, valid = real(calibration, calibration_mask), real(scores, mask)
    weights = np.ones(len(ok), int) if weights is None else np.asarray(weights)
    less = [
        sum(w for t, w, r in zip(calibration, weights, ok) if r and t < s) if v else 0 for s, v in zip(scores, valid)
    ]
    equal = [
        sum(w for t, w, r in zip(calibration, weights, ok) if r and t == s) if v else 0 for s, v in zip(scores, valid)
    ]
    return np.array(less), np.array(equal), sum(weights[ok]), valid


def conformal_ranks(calibration, scores, null, calibration_mask=None, mask=None):
    """Ranks as integers, -1 for what is masked; and n."""
    ok, valid = real(calibration, calibration_mask), real(scores, mask)
    kept = np.asarray(calibration)[ok]
    out = []
    for score, is_real in zip(scores, valid):
        extreme = kept <= score if null == "nonmember" else kept >= score
        out.append(1 + int(extreme.sum()) if is_real else -1)
    return out, int(ok.sum())


def step_up(p, critical):
    """max{k: p_(k) <= critical(k)} on exact p-values (None is masked)."""
    ordered = sorted(x for x in p if x is not None)
    return max((k for k in range(1, len(ordered) + 1) if ordered[k - 1] <= critical(k)), default=0)


def adjust(p, weight, down=False):
    """Adjusted values min over k' >= k of weight(k')·p_(k') (or max over k' <= k), back in input order."""
    order = sorted((i for i, x in enumerate(p) if x is not None), key=lambda i: p[i])
    values = [weight(k + 1) * p[i] for k, i in enumerate(order)]
    out = [float("nan")] * len(p)
    for k, i in enumerate(order):
        chosen = max(values[: k + 1]) if down else min(values[k:])
        out[i] = float(min(chosen, 1))
    return out


def bh(p, alpha, pi0=1):
    """Rejections and adjusted values of BH at alpha/pi0; p are Fractions or None."""
    m, alpha = sum(x is not None for x in p), fraction(alpha)
    k = step_up(p, lambda k: alpha * k / m / pi0)
    reject = [x is not None and k > 0 and x * pi0 * m <= alpha * k for x in p]
    return reject, adjust(p, lambda k: Fraction(m) * pi0 / k)


def holm(p, alpha):
    m, alpha = sum(x is not None for x in p), fraction(alpha)
    ordered = sorted(x for x in p if x is not None)
    k = 0
    while k < m and ordered[k] <= alpha / (m - k):
        k += 1
    cut = ordered[k - 1] if k else -1
    return [x is not None and x <= cut for x in p], adjust(p, lambda k: m - k + 1, down=True)


def hochberg(p, alpha):
    m, alpha = sum(x is not None for x in p), fraction(alpha)
    k = step_up(p, lambda k: alpha / (m - k + 1))
    ordered = sorted(x for x in p if x is not None)
    cut = ordered[k - 1] if k else -1
    return [x is not None and x <= cut for x in p], adjust(p, lambda k: m - k + 1)


def bonferroni(p, alpha):
    m, alpha = sum(x is not None for x in p), fraction(alpha)
    return [x is not None and x * m <= alpha for x in p], [
        float("nan") if x is None else float(min(x * m, 1)) for x in p
    ]


def by(p, alpha):
    m = sum(x is not None for x in p)
    harmonic = sum(Fraction(1, i) for i in range(1, m + 1)) or 1
    return bh(p, alpha, harmonic)


def tail(n, eta):
    return max(1, int(fraction(eta) * n))


def storey_pi0(ranks, n, eta):
    m = sum(r > 0 for r in ranks)
    region = n - tail(n, eta) + 1
    above = sum(r >= region for r in ranks if r > 0)
    return Fraction((1 + above) * (n + 1), max(m, 1) * tail(n, eta))


def subtraction_pi0(calibration, scores, eta):
    kept = sorted(x for x in calibration if not np.isnan(x))
    test = [x for x in scores if not np.isnan(x)]
    n, m = len(kept), len(test)
    k = n - tail(n, eta)
    if k < 1:
        return Fraction(1)
    tau = kept[k - 1]
    inside = sum(x > tau for x in kept)
    return Fraction(1 + sum(x > tau for x in test), m + 1) / Fraction(inside, n) if inside else Fraction(1)


def moment_pi0(members, calibration, scores, printed=False):
    """`printed`: with the paper's clip of pi to [0, 1 - 1e-6]."""
    members, calibration, scores = (np.asarray(x, float)[real(x)] for x in (members, calibration, scores))
    if min(len(members), len(calibration), len(scores)) < 2:
        return 1.0
    mu1, mu0, mu = members.mean(), calibration.mean(), scores.mean()
    raw = (mu1 - mu) / (mu1 - mu0)
    variance = (
        raw**2 * calibration.var(ddof=1) / len(calibration)
        + (1 - raw) ** 2 * members.var(ddof=1) / len(members)
        + scores.var(ddof=1) / len(scores)
    ) / (mu1 - mu0) ** 2
    theta = 1 / raw - variance / raw**3
    if printed:
        return 1 - np.clip(1 - 1 / theta, 0, 1 - 1e-6)
    return 1 / np.clip(theta, 1, len(scores)) if mu1 < mu0 and raw > np.sqrt(variance) else 1.0


def ptdi(calibration, scores, alpha, proportion, eta=0.05):
    ranks, n = conformal_ranks(calibration, scores, "nonmember")
    pi0 = {
        "none": lambda: Fraction(1),
        "storey": lambda: storey_pi0(ranks, n, eta),
        "subtraction": lambda: subtraction_pi0(calibration, scores, eta),
    }[proportion]()
    return (*bh([Fraction(r, n + 1) if r > 0 else None for r in ranks], alpha, pi0), pi0)
