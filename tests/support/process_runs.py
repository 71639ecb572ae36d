"""Runs that tests start in one process and in several, and what tells their results apart."""

import hashlib
import pathlib

from scored_models import random_texts, scored_model

import tdd


def exchanges(folder, only=("control", "sequential"), **options):
    """A run with shared beginnings and a control model, and a sequential one: name -> hash of all log-probabilities."""
    found = {}
    texts = random_texts(48, seed=3, shortest=3, longest=9)
    shared = {"num_shards": 4, "token_budget": 256, "progress": False, **options}
    runs = {
        "control": {"num_shuffles": 6, "suffix": 0.5, "control": scored_model(seed=5)},
        "sequential": {"num_shuffles": 40, "stop": "besag_clifford"},
    }
    for name, more in ((name, runs[name]) for name in only):
        out = pathlib.Path(folder) / name
        exchange = tdd.run_exchange(scored_model(seed=2), texts, out=out, **shared, **more)
        arrays = [array for pair in exchange.log_probs.values() for array in pair]
        (data,) = exchange.run["data"]
        found[name] = {
            "bits": hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest(),
            "shuffles": data["shuffles_used"],
            "calls": data["calls"],
            "p_value": data["p_value"],
            "control": data["control"] and data["control"]["p_value"],
        }
    return found


def audit(folder):
    """Hash of the decisions of a small audit."""
    run = tdd.run_audit(
        scored_model(),
        random_texts(30, seed=1, shortest=5),
        random_texts(40, seed=2, shortest=5),
        alpha=0.2,
        score="min_k",
        out=folder,
        token_budget=256,
        progress=False,
    )
    return hashlib.sha256(b"".join(run.items[name].tobytes() for name in ("min_k", "p_value"))).hexdigest()
