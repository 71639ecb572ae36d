"""Exchangeability: Student's t, permutation p-values, the rank sum, one order of all shards."""

import numpy as np
import references_permutation as ref
from contract_entry import ELEMENTARY, NUM_TEST, Entry, at_least_one, by_logarithm

from tdd.kernels import permutation, randomization, rank_sum, student

SHUFFLES = 3


def tails(rng, n, m):
    df = np.where(rng.random(m) < 0.5, rng.integers(1, 60, m), 10 ** rng.uniform(0, 7, m))
    return {"t": (rng.normal(size=m) * 3).astype(np.float32), "df": df.astype(np.float32)}


def totals(rng, n, m):
    return {"total": rng.integers(-2, 12 * SHUFFLES + 3, m).astype(np.int32)}


def survival_reference(total):
    law = ref.rank_sum_law(12, SHUFFLES)
    return np.array([0 if s <= 0 else -np.inf if s >= len(law) else ref.log_fraction(law[s]) for s in total], float)


def values(rng, n, m):
    out = rng.normal(size=m).astype(np.float32) + 0.4
    if m > 3:
        out[2] = np.nan
    return {"values": out, "mask": rng.random(m) < 0.8 if m > 1 else np.ones(m, bool)}


def draws(rng, n, m):
    out = rng.integers(0, 4, m).astype(np.float32)
    if m > 3:
        out[1] = np.nan
    return {"permuted": out, "mask": rng.random(m) < 0.8 if m > 1 else np.ones(m, bool)}


def shards(rng, n, m):
    canonical = rng.integers(-4, 3, m).astype(np.float32)
    shuffled = rng.integers(-5, 3, (m, SHUFFLES)).astype(np.float32)
    if m > 3:
        canonical[1], shuffled[3, 1] = np.nan, np.nan
    return {"canonical": canonical, "shuffled": shuffled, "mask": rng.random(m) < 0.8 if m > 1 else np.ones(m, bool)}


def every(mask, like):
    return np.ones(len(like), bool) if mask is None else mask


def p_fields(result):
    return {"p": result.p_value, "reached": result.num_at_least, "draws": result.num_draws}


def p_reference(procedure):
    def reference(permuted, mask=None):
        p, reached, number = procedure(2.0, permuted, mask=mask)
        return {"p": float(p), "reached": reached, "draws": number}

    return reference


def column_reference(canonical, shuffled, mask=None):
    _, (first, others) = ref.kept(mask, canonical, shuffled)
    p, reached, number = ref.permutation_p(first.sum(), others.sum(axis=0))
    return {"p": float(p), "reached": reached, "draws": number}


def ranks_call(canonical, shuffled, mask=None):
    found = rank_sum.rank_sum(canonical, shuffled, mask=every(mask, canonical))
    return {
        "statistic": found.statistic,
        "p": found.p_value,
        "log_p": found.log_p_value,
        "ranks": found.ranks,
        "num_shards": found.num_shards,
    }


ENTRIES = [
    Entry(
        "student.log_sf",
        lambda t, df: student.log_sf(t, df),
        tails,
        lambda t, df: ref.stats.t.logsf(t.astype(float), df.astype(float)),
        roundings=4 * ELEMENTARY,
        scale=at_least_one,
    ),
    Entry(
        "student.sf",
        lambda t, df: student.sf(t, df),
        tails,
        lambda t, df: ref.stats.t.sf(t.astype(float), df.astype(float)),
        roundings=4 * ELEMENTARY,
        scale=by_logarithm,
    ),
    Entry(
        "student.one_sample",
        lambda values, mask=None: student.one_sample(values, mask=mask)._asdict(),
        values,
        ref.one_sample,
        roundings=2 * NUM_TEST + 4 * ELEMENTARY,  # a mean, squares beside it, and a tail
        scale=at_least_one,
    ),
    Entry(
        "rank_sum.log_survival",
        lambda total: rank_sum.log_survival(total, num_shards=12, num_shuffles=SHUFFLES),
        totals,
        survival_reference,
    ),
    Entry(
        "rank_sum.rank_sum",
        ranks_call,
        shards,
        lambda canonical, shuffled, mask=None: ref.rank_sum(canonical, shuffled, 5e-7, mask),
    ),
    Entry(
        "rank_sum.shard_ranks",
        lambda canonical, shuffled, mask=None: rank_sum.shard_ranks(canonical, shuffled, mask=mask),
        shards,
        lambda canonical, shuffled, mask=None: ref.shard_ranks(canonical, shuffled, 5e-7, mask),
    ),
    Entry(
        "permutation.p_value",
        lambda permuted, mask=None: p_fields(permutation.p_value(2.0, permuted, mask=mask)),
        draws,
        p_reference(ref.permutation_p),
    ),
    Entry(
        "permutation.complete_p_value",
        lambda permuted, mask=None: p_fields(permutation.complete_p_value(2.0, permuted, mask=mask)),
        draws,
        p_reference(ref.complete_p),
    ),
    Entry(
        "permutation.counted",
        lambda reached, number: permutation.counted(reached, number).p_value,
        lambda rng, n, m: {
            "reached": rng.integers(0, 50, m).astype(np.int32),
            "number": rng.integers(50, 90, m).astype(np.int32),
        },
        lambda reached, number: (1 + reached) / (1 + number),
    ),
    Entry(
        "randomization.shard_permutation",
        lambda canonical, shuffled, mask=None: p_fields(
            randomization.shard_permutation(canonical, shuffled, mask=every(mask, canonical))
        ),
        shards,
        column_reference,
    ),
]

ELSEWHERE = {
    "randomization.shard_randomization": "random, and lists (k+1)^r sums; tests/kernels/test_permutation.py",
    "randomization.is_enumerable": "static predicate; tests/kernels/test_permutation.py",
    "permutation.tie_tolerance": "one number a type; tests/kernels/test_permutation.py",
}
