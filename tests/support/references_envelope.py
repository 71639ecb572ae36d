"""Slow references of the joint methods: definitions in rational arithmetic, item by item, one grid point at a time."""

import math
from fractions import Fraction

import numpy as np
import references as ref

GRID = tuple(Fraction(i, 10) for i in range(1, 10))


def max_ranks(calibration, scores, calibration_mask=None, mask=None):
    """[K, n], [K, m] -> the largest rank of each item (-1 where masked) and n; an item that one model lacks is out."""
    calibration, scores = np.asarray(calibration, float), np.asarray(scores, float)
    kept = ~np.isnan(calibration).any(0)
    real = ~np.isnan(scores).any(0)
    kept = kept if calibration_mask is None else kept & calibration_mask
    real = real if mask is None else real & mask
    rows = [ref.conformal_ranks(c, s, "member", kept, real)[0] for c, s in zip(calibration, scores)]
    return [max(column) for column in zip(*rows)] if rows[0] else [], int(kept.sum())


def ceil_sqrt(size):
    return next(k for k in range(size + 1) if k * k >= size)


def fit(p, grid=GRID, neighbours=ceil_sqrt):
    """The envelope on exact p-values (None is masked): a dict of its numbers and the function G."""
    kept = [x for x in p if x is not None]
    slopes, num_above, best = [], [], None
    for tau in map(ref.fraction, grid):
        tail = sorted(x for x in kept if x > tau)
        size = len(tail)
        num_above.append(size)
        if size < 10:
            slopes.append(math.inf)
            continue
        edge = tail[neighbours(size) - 1]
        density = Fraction(sum(x <= edge for x in tail), size) / (edge - tau)
        anchor = tau * density / (1 + tau * density)
        slopes.append(anchor / tau)
        if best is None or anchor / tau < best[0]:
            best = (anchor / tau, tau, anchor, tail)
    if best is None:
        return {"tau": 0, "slope": 1, "slopes": slopes, "num_above": num_above, "pi0": Fraction(1)}, lambda x: x
    slope, tau, anchor, tail = best
    pi0 = Fraction(1 + len(tail), len(kept)) / (1 - anchor)

    def envelope(x):
        if x <= tau:
            return slope * x
        return anchor + (1 - anchor) * Fraction(sum(y <= x for y in tail), len(tail))

    return {"tau": tau, "slope": slope, "slopes": slopes, "num_above": num_above, "pi0": pi0}, envelope


def jecs(p, alpha, grid=GRID, neighbours=ceil_sqrt):
    """Selection and adjusted values of JECS, with the numbers of its envelope."""
    fitted, envelope = fit(p, grid, neighbours)
    values = [None if x is None else envelope(x) for x in p]
    reject, adjusted = ref.bh(values, alpha, fitted["pi0"])
    return reject, adjusted, fitted, values


def jmcs(p, alpha, n, rule="bh", eta=0.5):
    """Selection, adjusted values and null proportion of JMCS."""
    if rule == "by":
        return (*ref.by(p, alpha), Fraction(1))
    ranks = [-1 if x is None else int(x * (n + 1)) for x in p]
    pi0 = ref.storey_pi0(ranks, n, eta) if rule == "storey" else Fraction(1)
    return (*ref.bh(p, alpha, pi0), pi0)
