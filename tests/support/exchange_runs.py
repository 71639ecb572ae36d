"""Made-up runs of the test of canonical order, as run.json and shards.csv hold them."""

import copy
import math

import numpy as np
from scipy import stats

from tdd.exchange import summary
from tdd.exchange.result import SHARD_COLUMNS
from tdd.procedures import sequential as sequences
from tdd.procedures.exchangeability import GUARANTEES
from tdd.runs.folder import plain

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


def p_values_of(canonical, shuffled):
    """p-values about as the tests give them, without compiling anything; and the skewness."""
    known = ~np.isnan(canonical)
    canonical, shuffled = canonical[known], shuffled[known]
    r, k = shuffled.shape
    s = canonical - shuffled.mean(1)
    ranks = (canonical[:, None] > shuffled).sum()
    log = {
        "rank_sum": stats.norm.logsf((ranks - r * k / 2) / math.sqrt(r * k * (k + 2) / 12)),
        "exact": max(stats.norm.logsf(s.sum() / math.sqrt(r) / shuffled.std()), -11.5),
        "t": stats.ttest_1samp(s, 0, alternative="greater").pvalue,
        "permutation": math.log((1 + (shuffled.sum(0) >= canonical.sum()).sum()) / (k + 1)),
    }
    log["t"] = math.log(log["t"])
    floors = {"rank_sum": -r * math.log(k + 1), "exact": -11.5, "t": -math.inf, "permutation": -math.log(k + 1)}
    log = {"combined": min(0.0, math.log(2) + min(log["rank_sum"], log["exact"])), **log}
    floors["combined"] = math.log(2) + min(floors["rank_sum"], floors["exact"])
    tests = {
        name: {"p_value": math.exp(p), "log_p_value": float(p), "statistic": 1.0, "log_smallest_p": floors[name]}
        for name, p in log.items()
    }
    return tests, float(stats.skew(s))


def entry(name="quiz", shift=0.0, *, r=8, k=10, seed=0, test="combined", control=None, rule=None):
    """One data set of a run, before BH and warnings."""
    canonical, shuffled = log_probs(shift, r=r, k=k, seed=seed)
    known = ~np.isnan(canonical)
    tests, skewness = p_values_of(canonical, shuffled)
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
        "skewness": skewness,
        "skewed": skewness < -0.1 * math.sqrt(known.sum()),
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
        also, _ = p_values_of(*log_probs(control, r=r, k=k, seed=seed + 50))
        one["control"] = {
            "test": test,
            **{name: also[test][name] for name in ("p_value", "log_p_value")},
            "tests": also,
        }
    if rule is not None:
        one |= sequential(r, k, rule)
    return one


def sequential(r, k, rule):
    """What a sequential run of k shuffles says that stopped for evidence."""
    numbers = [b for b in (1, 2, 5, 10, 20) if b <= k]
    looks = [
        {"shuffles": b, "calls": r * (b + 1), "p_value": 0.4 * 0.1**i, "log_e_value": -math.log(0.4 * 0.1**i)}
        for i, b in enumerate(numbers)
    ]
    p = looks[-1]["p_value"]
    return {
        "sequential": {"rule": rule, "looks": looks, "stopped": "evidence"},
        "tests": {},
        "test": rule,
        "num_shuffles": 4 * k,
        "p_value": p,
        "log_p_value": math.log(p),
        "guarantee": plain(sequences.GUARANTEES[rule]),
    }


def finish(entries, *, alpha=0.05, control=False, **options):
    """run.json of these data sets: BH, words."""
    data = copy.deepcopy(list(entries))
    p_values = np.array([one["p_value"] for one in data], float)
    known = np.nan_to_num(p_values, nan=1.0)
    adjusted = stats.false_discovery_control(known) if len(data) > 1 else known
    for one, value in zip(data, np.where(np.isnan(p_values), np.nan, adjusted)):
        one |= {"adjusted": float(value), "rejected": bool(value <= alpha)}
    run = {
        "schema": 2,
        "kind": "exchange",
        "command": None,
        "created": "2026-01-01T00:00:00+00:00",
        "versions": {},
        "seed": 0,
        "model": MODEL,
        "control": CONTROL if control else None,
        "options": {**OPTIONS, "alpha": alpha, **options},
        "data": data,
        "selection": {"procedure": "bh", "alpha": alpha, "num_rejected": int(sum(one["rejected"] for one in data))},
        "seconds": 1.0,
    }
    for one in data:
        one["warnings"] = summary.data_warnings(one, run)
    run |= {"warnings": summary.run_warnings(run), "open_points": summary.open_points(run)}
    run["outcome"] = summary.outcome(run)
    return plain(run)


def shards(entries, shifts):
    """shards.csv of these data sets."""
    columns = {name: [] for name in SHARD_COLUMNS}
    for one, shift in zip(entries, shifts):
        r, k, seed = one["num_shards"], one["shuffles_used"], int(one["sha256"], 16)
        canonical, shuffled = log_probs(shift, r=r, k=k, seed=seed)
        for i in range(r):
            spread = shuffled[i].std(ddof=1) if k > 1 else math.nan
            row = (
                one["name"], i, 6 * i, 6, 120, canonical[i], shuffled[i].mean(), spread,
                canonical[i] - shuffled[i].mean(), -1 if np.isnan(canonical[i]) else (canonical[i] > shuffled[i]).sum(),
                k,
            )  # fmt: skip
            for name, value in zip(SHARD_COLUMNS, row):
                columns[name].append(value)
    return {name: np.array(values, dtype=object if name == "data" else None) for name, values in columns.items()}
