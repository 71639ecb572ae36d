"""Sequential tests of canonical order: counts of exceedances, bets, the rule of a number of exceedances."""

import numpy as np
import references_sequential as ref
from contract_entry import ELEMENTARY, NUM_TEST, Entry, at_least_one

from tdd.kernels import betting, sequential

DRAWS = 12
H = 3
MOST_DRAWS = 60


def shards(rng, n, m):
    canonical = rng.integers(-4, 4, m).astype(np.float32)
    shuffled = rng.integers(-5, 4, (m, DRAWS)).astype(np.float32)
    if m > 3:
        canonical[1], shuffled[3, 1] = np.nan, np.nan
    return {"canonical": canonical, "shuffled": shuffled, "mask": rng.random(m) < 0.8 if m > 1 else np.ones(m, bool)}


def urns(rng, n, m):
    draws = rng.integers(0, MOST_DRAWS, m).astype(np.int32)
    return {"x": np.minimum(rng.integers(0, MOST_DRAWS, m), draws).astype(np.int32), "b": draws}


def bets(canonical, shuffled, mask=None):
    found = betting.e_process(sequential.exceedances(canonical, shuffled, mask=mask), shuffled.dtype)
    return found._asdict()


def bets_reference(canonical, shuffled, mask=None):
    log_e = ref.log_e(ref.exceedances(canonical, shuffled, 5e-7, mask))
    log_p = np.minimum(-np.maximum.accumulate(log_e), 0)
    return {"log_e": log_e, "p_value": np.exp(log_p), "log_p_value": log_p}


def stopped(canonical, shuffled, mask=None):
    p, log_p = sequential.besag_clifford(sequential.exceedances(canonical, shuffled, mask=mask), H, shuffled.dtype)
    return {"p": p, "log_p": log_p}


def stopped_reference(canonical, shuffled, mask=None):
    p = ref.besag_clifford(ref.exceedances(canonical, shuffled, 5e-7, mask), H)
    return {"p": p, "log_p": np.log(p)}


BETS = 4 * ELEMENTARY
"""Logarithms of a bet and of a mixture of bets, beside the sums of logarithms over draws and shards."""

ENTRIES = [
    Entry(
        "sequential.exceedances",
        lambda canonical, shuffled, mask=None: sequential.exceedances(canonical, shuffled, mask=mask)._asdict(),
        shards,
        lambda canonical, shuffled, mask=None: ref.exceedances(canonical, shuffled, 5e-7, mask),
    ),
    Entry("betting.e_process", bets, shards, bets_reference, roundings=DRAWS + NUM_TEST + BETS, scale=at_least_one),
    Entry("sequential.besag_clifford", stopped, shards, stopped_reference),
    Entry(
        "betting.log_urn_bet",
        lambda x, b: betting.log_urn_bet(x, b, 0.3, 4.0, horizon=MOST_DRAWS),
        urns,
        lambda x, b: ref.log_bet(x, b, 0.3, 4.0),
        roundings=MOST_DRAWS + BETS,
        scale=at_least_one,
    ),
]

ELSEWHERE = {
    "betting.largest_log_e": "one number on the host; tests/kernels/test_sequential.py",
    **dict.fromkeys(
        (f"shingle.{name}" for name in ("find", "forget_all", "remember", "row_fingerprints", "shingle_table")),
        "tokens of texts, not items; tests/probe/test_stream.py",
    ),
    "shingle.window_hashes": "hashes of integers, not items; tests/probe/test_stream.py",
    "sequential.default_looks": "whole numbers on the host; tests/kernels/test_sequential.py",
    "sequential.look_weights": "constants on the host; tests/kernels/test_sequential.py",
    "sequential.spend": "its result depends on the order of its items; tests/kernels/test_sequential.py",
}
