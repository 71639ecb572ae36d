"""Power of the rules by e-values beside the rules that they replace or complete; K scores an item, or k knockoffs.

"best of K, chosen after looking" runs BH on each score and keeps the one that selects most: what users do without
`tdd.best_score`, and no level is kept.

    python -m benchmarks.rules
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp

import tdd
from benchmarks import harness
from tdd.study import run
from tdd.study.designs import CorrelatedDetectors, PairedScores

ALPHA = 0.1
SCORES = {"num_calibration": 200, "num_tests": 100, "target_share": 0.3}
SETTINGS: dict[str, Any] = {
    "5 scores, one good": CorrelatedDetectors(signal=(3.0, 0.0, 0.0, 0.0, 0.0), correlation=0.0, **SCORES),
    "5 scores, two good": CorrelatedDetectors(signal=(2.5, 2.5, 0.0, 0.0, 0.0), correlation=0.0, **SCORES),
    "5 scores, all weak": CorrelatedDetectors(signal=1.5, correlation=0.0, **SCORES),
    "3 scores that depend": CorrelatedDetectors(num_detectors=3, signal=2.5, correlation=0.5, **SCORES),
    "2 scores, both good": CorrelatedDetectors(num_detectors=2, signal=3.0, correlation=0.0, **SCORES),
    "3 knockoffs": PairedScores(num_tests=100, num_knockoffs=3, target_share=0.3, signal=3.0, item_spread=0.0),
    "5 knockoffs": PairedScores(num_tests=100, num_knockoffs=5, target_share=0.3, signal=3.0, item_spread=0.0),
}


def first_alone(key: jax.Array, scores: jax.Array, calibration: jax.Array) -> jax.Array:
    return tdd.ptdi(-calibration[0], -scores[0], alpha=ALPHA, proportion="none").selected


def best_after_looking(key: jax.Array, scores: jax.Array, calibration: jax.Array) -> jax.Array:
    each = jax.vmap(lambda c, s: tdd.ptdi(-c, -s, alpha=ALPHA, proportion="none").selected)(calibration, scores)
    return each[jnp.argmax(jnp.sum(each, axis=1))]


def randomised(key: jax.Array, scores: jax.Array, calibration: jax.Array) -> jax.Array:
    return tdd.best_score(calibration, scores, alpha=ALPHA, null="member", key=key).selected


OF_SCORES = {
    "the first score alone": first_alone,
    "best of K, chosen after looking": best_after_looking,
    "best_score": "td4eval/best_score",
    "best_score, randomised": randomised,
    "pooled ranks": "td4eval/pooled_rank",
    "averaged e-values, e-BH": "td4eval/e_values",
    "averaged e-values, closed e-BH": "td4eval/closed_e_values",
}
OF_KNOCKOFFS = {
    "derandomized, e-BH": "ktd/derandomized",
    "multi": "ktd/multi",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=2_000)
    repetitions = parser.parse_args().repetitions
    start, rows = time.perf_counter(), []
    for name, design in SETTINGS.items():
        methods = OF_KNOCKOFFS if isinstance(design, PairedScores) else OF_SCORES
        found = run(design, methods, alphas=[ALPHA], repetitions=repetitions)
        keep = ("method", "fdr", "fdr_se", "power", "power_se")
        rows += [{"setting": name, **{key: row[key] for key in keep}} for row in found.rows()]
        print(harness.table(rows[-len(methods) :]), flush=True)
    path = harness.write(
        "rules",
        {
            "command": f"python -m benchmarks.rules --repetitions {repetitions}",
            "version": tdd.__version__,
            "seed": 0,
            "alpha": ALPHA,
            "seconds": time.perf_counter() - start,
            "repetitions": repetitions,
            "rows": rows,
        },
    )
    print(path.name)


if __name__ == "__main__":
    main()
