"""Slow references of Šidák's and the two-stage procedures, in exact rational arithmetic."""

from fractions import Fraction

import references as ref


def at_least_one(p, tests):
    return 1 - (1 - p) ** tests


def sidak(p, alpha):
    m = sum(x is not None for x in p)
    adjusted = [None if x is None else at_least_one(x, m) for x in p]
    return decided(adjusted, alpha)


def holm_sidak(p, alpha):
    order = sorted((i for i, x in enumerate(p) if x is not None), key=lambda i: p[i])
    adjusted, largest = [None] * len(p), Fraction(0)
    for k, i in enumerate(order):
        largest = max(largest, at_least_one(p[i], len(order) - k))
        adjusted[i] = largest
    return decided(adjusted, alpha)


def decided(adjusted, alpha):
    reject = [x is not None and x <= ref.fraction(alpha) for x in adjusted]
    return reject, [float("nan") if x is None else float(x) for x in adjusted]


def two_stage_bh(p, alpha, variant):
    """Stage by stage, as defined; the adjusted values of the last stage, rescaled."""
    m, growth = sum(x is not None for x in p), 1 + ref.fraction(alpha) if variant == "bky" else 1
    first, _ = ref.bh(p, alpha, Fraction(growth))
    r = sum(first)
    if r == m:
        return first, ref.bh(p, alpha, Fraction(growth))[1]
    return ref.bh(p, alpha, Fraction(m - r, m) * growth)
