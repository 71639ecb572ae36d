"""Runs that tests start in one process, in several and in shards, and what tells their results apart."""

import hashlib

from scored_models import random_texts, scored_model

import tdd


def exchange(folder, **options):
    """Hash of all log-probabilities, and the numbers, of a run with shared beginnings and a control model; None of a
    shard."""
    found = tdd.run_exchange(
        scored_model(seed=2),
        random_texts(48, seed=3, shortest=3, longest=9),
        control=scored_model(seed=5),
        num_shards=4,
        num_shuffles=6,
        suffix=0.5,
        out=folder,
        token_budget=256,
        progress=False,
        **options,
    )
    if found is None:
        return None
    arrays = [array for pair in found.log_probs.values() for array in pair]
    (data,) = found.run["data"]
    return {
        "bits": hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest(),
        "calls": data["calls"],
        "p_value": data["p_value"],
        "control": data["control"]["p_value"],
    }


def audit(folder, **options):
    """Hash of the decisions of a small audit; None of a shard."""
    run = tdd.run_audit(
        scored_model(),
        random_texts(30, seed=1, shortest=5),
        random_texts(40, seed=2, shortest=5),
        alpha=0.2,
        score="min_k",
        out=folder,
        token_budget=256,
        progress=False,
        **options,
    )
    if run is None:
        return None
    return hashlib.sha256(b"".join(run.items[name].tobytes() for name in ("min_k", "p_value"))).hexdigest()
