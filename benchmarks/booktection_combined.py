"""Certifying clean passages with several detectors or for several models, over random splits of a labelled table.

The null of a passage is that it was in the training data. Each repetition halves the pool at random: the members of
one half calibrate, the other half is the test set. TD4Eval combines the four scores of one model; JECS and JMCS ask for
passages that are clean for both models. Beside them stand the paper's rules without a guarantee: the mean and the
smallest of an item's p-values, and the threshold of one score that has the highest accuracy on the first half. All
repetitions of a procedure run in one compiled call.

    python -m benchmarks.booktection_combined --data scores.csv
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tdd
from benchmarks import harness
from tdd.study import baselines

MODELS = ("GPT3", "LLaMA2-13B")
SCORES = ("Perplexity", "Zlib", "Lowercase", "Min_k_Prob")
LEVELS = (0.05, 0.1, 0.2)
COMBINATIONS = ("cauchy", "pooled_rank", "split_weights", "hommel", "e_values", "bh_average", "bh_max")

Select = Callable[..., jax.Array]


def td4eval(combine: str) -> Select:
    """Items that a combination certifies."""

    def select(calibration: jax.Array, scores: jax.Array, real: jax.Array, alpha: float, key: jax.Array) -> jax.Array:
        own = key if combine == "split_weights" else None
        how: Any = combine
        return tdd.td4eval(calibration, scores, alpha=alpha, combine=how, key=own, calibration_mask=real).selected

    return select


def joint(method: Callable[..., Any]) -> Select:
    """Items that a joint procedure certifies; with one row it is BH on one detector."""

    def select(calibration: jax.Array, scores: jax.Array, real: jax.Array, alpha: float, key: jax.Array) -> jax.Array:
        return method(calibration, scores, alpha=alpha, calibration_mask=real).selected

    return select


def by_accuracy(calibration: jax.Array, scores: jax.Array, real: jax.Array, alpha: float, key: jax.Array) -> jax.Array:
    """Items beyond the threshold with the highest accuracy on the labelled half; no level enters."""
    return baselines.threshold(calibration[0], ~real, scores[0], null="member").selected


@functools.partial(jax.jit, static_argnames=("select", "repetitions", "batch"))
def study(
    panel: jax.Array, member: jax.Array, key: jax.Array, *, select: Select, repetitions: int, batch: int = 20
) -> jax.Array:
    """False discovery proportion and power: [repetitions, levels, 2]."""
    size = panel.shape[1]

    def one(key: jax.Array) -> jax.Array:
        split, own = jax.random.split(key)
        order = jax.random.permutation(split, size)
        first, second = order[: size // 2], order[size // 2 :]
        clean = ~member[second]
        cells = []
        for alpha in LEVELS:
            found = select(panel[:, first], panel[:, second], member[first], alpha, own)
            false, true = jnp.sum(found & ~clean), jnp.sum(found & clean)
            cells.append(jnp.stack([false / jnp.maximum(false + true, 1), true / jnp.maximum(jnp.sum(clean), 1)]))
        return jnp.stack(cells)

    return jax.lax.map(one, jax.random.split(key, repetitions), batch_size=batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", required=True, help="table with a label column and score columns MODEL_SCORE")
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="WORDS", help="procedures with these in their names; others stay"
    )
    arguments = parser.parse_args()
    columns = [f"{model}_{score}" for model in MODELS for score in SCORES]
    table = tdd.load_score_table(
        arguments.data,
        scores=columns,
        role_field="label",
        calibration_role="1",
        candidate_role=None,
        label_field="label",
    )
    member = jnp.asarray(table.labels == 1)
    places = {name: np.unique(table.scores[name], return_inverse=True)[1] for name in columns}

    def panel(names: list[str]) -> jax.Array:
        return jnp.asarray(np.stack([places[name] for name in names]), jnp.int32)

    cases: list[tuple[str, str, list[str], Select]] = []
    for model in MODELS:
        detectors = [f"{model}_{score}" for score in SCORES]
        cases += [
            (f"{model}, {len(detectors)} detectors", f"td4eval/{name}", detectors, td4eval(name))
            for name in COMBINATIONS
        ]
        cases += [
            (f"{model}, {len(detectors)} detectors", f"{name} {words}", [name], select)
            for words, select in (("alone", joint(tdd.jmcs)), ("threshold, accuracy", by_accuracy))
            for name in detectors
        ]
    for score in SCORES:
        both = [f"{model}_{score}" for model in MODELS]
        cases += [(f"{score}, 2 models", name, both, joint(getattr(tdd, name))) for name in ("jmcs", "jecs")]

    measured: dict[tuple[str, str], list[dict[str, Any]]] = {}
    if arguments.only != [""]:
        kept = json.loads((harness.RESULTS / "booktection_combined.json").read_text("utf-8"))
        if (kept["repetitions"], kept["sha256"]) != (arguments.repetitions, table.sha256):
            parser.error("--only adds to results of the same table and the same number of repetitions")
        for row in kept["rows"]:
            measured.setdefault((row["setting"], row["method"]), []).append(row)
    for setting, method, names, select in cases:
        if not any(words in method for words in arguments.only):
            continue
        start = time.perf_counter()
        outcome = study(panel(names), member, jax.random.key(0), select=select, repetitions=arguments.repetitions)
        outcome = np.asarray(outcome, np.float64)
        seconds = time.perf_counter() - start
        error = outcome.std(0, ddof=1) / np.sqrt(arguments.repetitions)
        rows = measured[setting, method] = []
        for j, alpha in enumerate(LEVELS):
            (fdr, power), (fdr_se, power_se) = outcome.mean(0)[j], error[j]
            rows.append(
                {"setting": setting, "method": method, "alpha": alpha, "fdr": float(fdr), "fdr_se": float(fdr_se)}
                | {"power": float(power), "power_se": float(power_se), "seconds": seconds}
            )
        shown = "  ".join(f"{row['fdr']:.3f}/{row['power']:.3f}" for row in rows)
        print(f"{setting:28s} {method:28s} {shown}  ({seconds:.0f} s)", flush=True)
    harness.write(
        "booktection_combined",
        {
            "repetitions": arguments.repetitions,
            "items": len(table),
            "members": int(member.sum()),
            "sha256": table.sha256,
            "rows": [row for case in cases for row in measured.get(case[:2], [])],
        },
    )


if __name__ == "__main__":
    main()
