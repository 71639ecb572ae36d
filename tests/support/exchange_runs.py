"""Made-up runs of the test of canonical order, as run.json and shards.csv hold them."""

import copy
import math

import numpy as np

from tdd.audit.run_folder import plain
from tdd.exchange import words
from tdd.exchange.result import SHARD_COLUMNS, tests_of
from tdd.methods.exchangeability import GUARANTEES, TESTS, exchangeability

MODEL = {"name": "./gpt", "revision": None, "sha256": "a" * 64}
CONTROL = {"name": "./other", "revision": None, "sha256": "b" * 64}
OPTIONS = {
    "separator": "\n\n",
    "bos": "auto",
    "max_length": None,
    "stride": None,
    "num_shards": 8,
    "num_shuffles": 10,
    "test": "combined",
    "alpha": 0.05,
    "template": None,
    "suffix": 1.0,
    "stop": "none",
    "target_p": None,
}


def log_probs(shift=0.0, *, r=8, k=10, seed=0):
    """Canonical [r] and shuffled [r, k], the canonical order `shift` standard deviations more likely."""
    values = np.random.default_rng(seed).normal(-400, 3, (r, k + 1))
    return values[:, 0] + 3 * np.broadcast_to(shift, r), values[:, 1:]


def entry(name="quiz", shift=0.0, *, r=8, k=10, seed=0, test="combined", control=None, rule=None):
    """One data set of a run, before BH and warnings."""
    import jax

    canonical, shuffled = log_probs(shift, r=r, k=k, seed=seed)
    known = ~np.isnan(canonical)
    tests, _ = tests_of(canonical, shuffled, TESTS, jax.random.key(0))
    found = exchangeability(canonical, shuffled, test="t")
    one = {
        "name": name,
        "source": f"{name}.jsonl",
        "sha256": f"{seed:064x}",
        "num_examples": 6 * r,
        "num_shards": r,
        "num_masked": int((~known).sum()),
        "examples_a_shard": [6, 6],
        "permuted_a_shard": [6, 6],
        "num_tokens": 120 * r,
        "max_windows": 1,
        "num_long_examples": 0,
        "num_shuffles": k,
        "shuffles_used": k,
        "test": test,
        **{field: tests[test][field] for field in ("p_value", "log_p_value")},
        "guarantee": plain(GUARANTEES[test]),
        "tests": tests,
        "skewness": float(found.skewness),
        "skewed": bool(found.skewed),
        "sequential": None,
        "calls": {
            "asked": r * (k + 1),
            "sequences": r * (k + 1),
            "windows": r * (k + 1),
            "tokens": 120 * r * (k + 1),
            "tokens_asked": 120 * r * (k + 1),
            "shared": 0,
        },
        "control": None,
        "structure": {
            "tests": [{"name": "neighbours", "observed": 0.1, "expected": 0.1, "p_value": 0.4}],
            "p_value": 0.4,
            "num_draws": 999,
            "num_examples": 6 * r,
            "sorted": None,
        },
        "duplicates": {
            "num_examples": 6 * r,
            "num_distinct": 6 * r,
            "num_groups": 0,
            "largest_group": 1,
            "num_within_shards": 0,
            "num_near": 0,
            "share": 0.0,
            "complete": True,
            "near": 0.8,
        },
    }
    if control is not None:
        also, _ = tests_of(*log_probs(control, r=r, k=k, seed=seed + 50), TESTS, jax.random.key(0))
        one["control"] = {
            "test": test,
            **{name: also[test][name] for name in ("p_value", "log_p_value")},
            "tests": also,
        }
    if rule is not None:
        one |= sequential(one, canonical, shuffled, rule)
    return one


def sequential(one, canonical, shuffled, rule):
    """What a sequential run that went to the end says."""
    import jax

    from tdd.methods.sequential import exchangeability_sequence

    k = shuffled.shape[1]
    found = exchangeability_sequence(canonical, shuffled, rule=rule, key=jax.random.key(0))
    looks = [
        {"shuffles": int(b), "calls": len(canonical) * (b + 1), "p_value": float(p), "log_e_value": float(e)}
        for b, p, e in zip(found.looks, found.p_value, found.log_e_value)
    ]
    return {
        "sequential": {"rule": rule, "looks": looks, "stopped": "evidence"},
        "tests": {},
        "test": rule,
        "num_shuffles": 4 * k,
        "shuffles_used": k,
        "p_value": float(found.p_value[-1]),
        "log_p_value": float(found.log_p_value[-1]),
        "guarantee": plain(found.guarantee),
    }


def finish(entries, *, alpha=0.05, control=False, **options):
    """run.json of these data sets: BH, words."""
    from tdd.methods.testing import bh

    data = copy.deepcopy(entries)
    p_values = np.array([one["p_value"] for one in data], float)
    decided = bh(np.where(np.isnan(p_values), 1, p_values), alpha)
    for one, adjusted, rejected in zip(data, decided.adjusted, decided.reject):
        one |= {"adjusted": math.nan if math.isnan(one["p_value"]) else float(adjusted), "rejected": bool(rejected)}
    run = {
        "schema": 1,
        "kind": "exchange",
        "command": None,
        "created": "2026-01-01T00:00:00+00:00",
        "versions": {},
        "seed": 0,
        "model": MODEL,
        "control": CONTROL if control else None,
        "options": {**OPTIONS, "alpha": alpha, **options},
        "data": data,
        "selection": {"procedure": "bh", "alpha": alpha, "num_rejected": int(np.asarray(decided.reject).sum())},
        "seconds": 1.0,
    }
    for one in data:
        one["warnings"] = words.data_warnings(one, run)
    run |= {"warnings": words.run_warnings(run), "open_points": words.open_points(run)}
    run["outcome"] = words.outcome(run)
    return plain(run)


def shards(entries, shifts):
    """shards.csv of these data sets."""
    columns = {name: [] for name in SHARD_COLUMNS}
    for one, shift in zip(entries, shifts):
        r, k, seed = one["num_shards"], one["shuffles_used"], int(one["sha256"], 16)
        canonical, shuffled = log_probs(shift, r=r, k=k, seed=seed)
        for i in range(r):
            row = (
                one["name"], i, 6 * i, 6, 120, canonical[i], shuffled[i].mean(), shuffled[i].std(ddof=1),
                canonical[i] - shuffled[i].mean(), -1 if np.isnan(canonical[i]) else (canonical[i] > shuffled[i]).sum(),
                k,
            )  # fmt: skip
            for name, value in zip(SHARD_COLUMNS, row):
                columns[name].append(value)
    return {name: np.array(values, dtype=object if name == "data" else None) for name, values in columns.items()}
