"""Combinations of p-values and pooled ranks. Groups of K stand in rows: p-values are [m, K], panels [n, K]."""

import jax.numpy as jnp
import numpy as np
import references_combine as ref
from contract_entry import ELEMENTARY, NUM_TEST, Entry, at_least_one, by_logarithm, own
from scipy import stats

from tdd.kernels import combine, conformal, discriminant, gamma_tails, merge, pooled_ranks

TAU, DETECTORS = 0.4, 3
SIZE = 5
COTANGENTS = SIZE + 3 * ELEMENTARY
"""The cotangents of a group, their sum, and the arc tangent of it."""


def groups(rng, n, m, size=SIZE):
    """Rows of p-values from 1e-30 to nearly 1, with ties and a NaN."""
    p = (rng.random((m, size)) ** rng.choice([0.3, 1, 8, 60], size=(m, 1))).astype(np.float32)
    p = np.maximum(p, np.float32(1e-30))
    if m > 4:
        p[1] = p[1, 0]
        p[2, 3] = np.nan
        p[3, 1] = 1.5
    return {"p_values": p}


def wide_groups(rng, n, m):
    return groups(rng, n, m, 21)


def inner_groups(rng, n, m):
    """Rows without values beside [0, 1], for references that do not check."""
    p = groups(rng, n, m)["p_values"]
    return {"p_values": np.where(p > 1, np.float32(0.5), p)}


def weighted_groups(rng, n, m):
    return groups(rng, n, m) | {"weights": np.array([0.5, 2, 0, 1, 1e-3], np.float32)}


def weights_each(rng, n, m):
    w = rng.random((m, 5)).astype(np.float32)
    if m > 7:
        w[5] = 0
        w[6, 2] = -1
        w[7] = [0, 3, 0, 0, 0]
    return groups(rng, n, m) | {"weights": w}


def log_groups(rng, n, m):
    log_p = (-rng.random((m, 4)) * rng.choice([1e-12, 0.1, 3, 900], size=(m, 4))).astype(np.float32)
    if m > 3:
        log_p[0] = [-np.inf, -1, -2, -3]
        log_p[1] = [0, -1, -2, -3]
        log_p[2, 2] = np.nan
        log_p[3] = [0, -np.inf, -1, -1]
    return {"log_p_values": log_p}


def log_reference(log_p_values):
    """log p in extended precision: 64-bit mantissa, exponents to 1e-4932."""
    out = []
    for row in np.asarray(log_p_values, np.longdouble):
        if np.isnan(row).any() or (np.isinf(row).any() and (row == 0).any()):
            out.append(np.nan)
            continue
        if np.isinf(row).any() or (row == 0).any():
            out.append(-np.inf if np.isinf(row).any() else 0.0)
            continue
        low, high = np.exp(row), -np.expm1(row)
        pi = np.longdouble("3.14159265358979323846264338327950288")
        t = np.where(low < 0.5, 1 / np.tan(pi * low), -1 / np.tan(pi * high)).mean()
        q = np.arctan2(np.longdouble(1), abs(t)) / pi
        out.append(np.log(q) if t >= 0 else np.log1p(-q))
    return np.array(out, float)


def cotangents(exact, arrays):
    """The sum of the magnitudes of what the statistic sums."""
    weights, p = arrays["weights"].astype(float), arrays["p_values"].astype(float)
    with np.errstate(divide="ignore"):
        return np.abs(np.nan_to_num(1 / np.tan(np.pi * p))) @ weights / weights.sum()


def cauchy_entry(name, make, reference, label="", scale=own):
    kernel = getattr(combine, name)
    return Entry(f"combine.{name}", lambda **a: kernel(**a), make, reference, label, roundings=COTANGENTS, scale=scale)


def pair(function):
    def reference(p_values, weights=None):
        rows = [function(np.asarray(row, float), *([] if weights is None else [weights])) for row in p_values]
        p, statistic = np.array(rows, float).reshape(len(rows), 2).T
        return {"p_value": p, "statistic": statistic}

    return reference


def with_weights(function):
    def reference(p_values, weights):
        each = weights if np.ndim(weights) == 2 else [weights] * len(p_values)
        return np.array([function(np.asarray(row, float), w) for row, w in zip(p_values, each)], float)

    return reference


def merged(name, make=groups, label=""):
    return Entry(
        f"merge.{name}",
        lambda p_values: getattr(merge, name)(p_values),
        make,
        ref.each_row(ref.merged(name)),
        label,
        roundings=SIZE + 2 * ELEMENTARY,
        scale=by_logarithm if name == "geometric" else own,
    )


def classical(name, make=inner_groups, label=""):
    return Entry(
        f"combine.{name}",
        lambda **arrays: getattr(combine, name)(**arrays)._asdict(),
        make,
        pair(ref.classical(name)),
        label,
        roundings=SIZE + 4 * GAMMA_TERMS,
        scale=tail_of_a_sum,
    )


def gamma(shape):
    """Up to four standard deviations from the mean: exponents of about 8, each a difference of numbers up to 20 times
    as large, and sums in groups of 64."""

    def near(rng, n, m):
        return {"value": np.maximum(shape + np.sqrt(shape) * rng.uniform(-4, 4, m), 0.01).astype(np.float32)}

    return Entry(
        "gamma_tails.gamma_tails",
        lambda value: gamma_tails.gamma_tails(shape, value),
        near,
        lambda value: (stats.gamma.cdf(value.astype(float), shape), stats.gamma.sf(value.astype(float), shape)),
        f"{shape}",
        roundings=2 * 64 + 8 * (20 + ELEMENTARY),
    )


GAMMA_TERMS = 16
"""exp(x - a log x + log Gamma(a)) at x = a = 5, where the terms of the exponent have this sum of magnitudes."""


def tail_of_a_sum(exact, arrays):
    """Tails by their logarithms; statistics, sums of normal numbers that can cancel, by at least 1."""
    return np.maximum(by_logarithm(exact, arrays), 1)


def panels(draw, weights=None):
    def make(rng, n, m):
        out = {"calibration": draw(rng, (n, DETECTORS)), "scores": draw(rng, (m, DETECTORS))}
        if m > 3:
            out["scores"][2, 1] = np.nan
        if n > 3:
            out["calibration"][1, 2] = np.nan
        out |= {"calibration_mask": rng.random(n) < 0.8, "mask": rng.random(m) < 0.8}
        return out if weights is None else out | {"weights": np.array(weights, np.float32)}

    return make


def tied(rng, shape):
    return rng.integers(0, 6, shape).astype(np.float32)


def continuous(rng, shape):
    return rng.normal(size=shape).astype(np.float32)


def column(make):
    """One detector of a panel."""

    def one(rng, n, m):
        arrays = make(rng, n, m)
        return arrays | {name: arrays[name][:, 1] for name in ("calibration", "scores")}

    return one


def pool_call(null):
    def call(calibration, scores, calibration_mask=None, mask=None):
        found = pooled_ranks.pool(calibration, scores, null=null, calibration_mask=calibration_mask, mask=mask)
        alone = jnp.where(found.alone > calibration.shape[0] + 1, -1, found.alone)
        return {"scores": found.scores, "alone": alone, "num_pool": found.num_pool}

    return call


def pool_reference(null):
    def reference(calibration, scores, calibration_mask=None, mask=None):
        keep, valid = ref.real(calibration, calibration_mask), ref.real(scores, mask)
        pool = np.concatenate([calibration[keep], scores[valid]])
        doubled = ref.doubled_mid_ranks(scores, pool, null)
        return {
            "scores": np.where(valid, np.array(doubled, int), 0),
            "alone": np.array(ref.conformal_ranks(calibration, scores, null, calibration_mask, mask)[0], int),
            "num_pool": len(pool),
        }

    return reference


def rank_call(null, rule):
    def call(calibration, scores, weights=None, calibration_mask=None, mask=None):
        found = pooled_ranks.rank(
            calibration.T, scores.T, null=null, rule=rule, weights=weights, calibration_mask=calibration_mask, mask=mask
        )
        return {
            "p_values": conformal.p_values(found.combined),
            "num_calibration": found.combined.num_calibration,
            "num_tests": found.combined.num_tests,
            "alone": jnp.where(found.alone > calibration.shape[0] + 1, -1, found.alone).T,
        }

    return call


def rank_reference(null, rule):
    def reference(calibration, scores, weights=None, calibration_mask=None, mask=None):
        rank, n, alone = ref.pooled(calibration, scores, null, rule, weights, calibration_mask, mask)
        return {
            "p_values": np.where(rank > 0, rank / (n + 1), np.nan),
            "num_calibration": n,
            "num_tests": int((rank > 0).sum()),
            "alone": alone,
        }

    return reference


def rank_entry(null, rule, make, label):
    return Entry("pooled_ranks.rank", rank_call(null, rule), make, rank_reference(null, rule), label=label)


def classes(draw, labels):
    """Scores of items of the given classes; some extreme in the first row, one NaN."""

    def make(rng, n, m):
        scores, label = draw(rng, (m, DETECTORS)), rng.choice(labels, m).astype(np.int32)
        scores[: m // 3, 0] -= 2
        label[: m // 3] = max(labels)
        if m > 3:
            scores[m - 1, 1] = np.nan
        return {"scores": scores, "label": label, "mask": rng.random(m) < 0.9}

    return make


CONDITION = DETECTORS / ref.RIDGE
"""Of the covariance of the detectors: at most its trace, of normal scores, over the ridge."""


def discriminant_entry(null, sparse, make, label):
    def call(scores, label, mask=None):
        return discriminant.discriminant(scores.T, label, null=null, sparse=sparse, mask=mask)._asdict()

    return Entry(
        "discriminant.discriminant",
        call,
        make,
        lambda scores, label, mask=None: ref.discriminant(scores, label, null, sparse, mask),
        label=label,
        roundings=round((NUM_TEST + 3 * ELEMENTARY) * CONDITION),
        scale=at_least_one,
    )


ENTRIES = [
    discriminant_entry("nonmember", True, classes(continuous, [0, 1]), "sparse"),
    discriminant_entry("member", False, classes(tied, [0, 1, 2, -1]), "ties"),
    cauchy_entry("cauchy", groups, ref.each_row(ref.cauchy)),
    cauchy_entry("cauchy", weighted_groups, with_weights(ref.cauchy), "weights"),
    cauchy_entry("cauchy", weights_each, with_weights(ref.cauchy), "weights-each"),
    cauchy_entry("cauchy_statistic", weighted_groups, with_weights(ref.cauchy_statistic), scale=cotangents),
    Entry(
        "combine.truncated_cauchy",
        lambda p_values: combine.truncated_cauchy(p_values, tau=TAU)._asdict(),
        groups,
        pair(lambda p: ref.truncated_cauchy(p, TAU)),
        roundings=COTANGENTS,
    ),
    Entry(
        "combine.log_cauchy",
        lambda log_p_values: combine.log_cauchy(log_p_values),
        log_groups,
        log_reference,
        roundings=COTANGENTS,
        scale=at_least_one,
    ),
    *[
        merged(name)
        for name in ("bonferroni", "simes", "hommel", "ruger", "maximum", "twice_mean", "geometric", "harmonic")
    ],
    merged("simes", wide_groups, "sorted"),
    *[classical(name) for name in ("fisher", "pearson", "stouffer", "tippett")],
    *[gamma(shape) for shape in (40_000, 300, 5, 1)],
    classical(
        "stouffer",
        lambda rng, n, m: inner_groups(rng, n, m) | {"weights": np.array([1, 4, 9, 0.5, 2], np.float32)},
        "weights",
    ),
    *[
        Entry("pooled_ranks.pool", pool_call(null), column(panels(draw)), pool_reference(null), label=f"{null},{name}")
        for null in conformal.NULLS
        for name, draw in (("ties", tied), ("continuous", continuous))
    ],
    rank_entry("member", "sum", panels(tied), "sum,ties"),
    rank_entry("nonmember", "sum", panels(continuous, [1, 0.5, 2]), "sum,weights"),
    rank_entry("member", "cauchy", panels(continuous, [1, 0.3, 0.7]), "cauchy"),
    rank_entry("nonmember", "cauchy", panels(tied, [1, 0.3, 0.7]), "cauchy,ties"),
]

ELSEWHERE = {}
