"""FDR and power of PTDI over random splits of a labelled score table: the paper's study on real scores.

Each repetition halves the pool at random: the non-members of one half calibrate, the other half is the test set. All
repetitions of a score run in one compiled call. "none" is the paper's vanilla method, "subtraction" its scaled one,
"storey" the exact one beside it.

With --estimates it measures the estimates of the fraction of members instead, as the paper's table 4 does: bias and
mean squared error for candidates of which a given fraction are members, with the FDR and the power that each leaves.

    python -m benchmarks.booktection_study --data scores.csv
    python -m benchmarks.booktection_study --data scores.csv --estimates
"""

from __future__ import annotations

import argparse
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tdd
from benchmarks import harness

MODELS = ("GPT3", "LLaMA2-13B")
SCORES = ("Perplexity", "Zlib", "Lowercase", "Min_k_Prob")
LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
METHODS = ("none", "subtraction", "storey")
ESTIMATES = ("subtraction", "storey", "moment", "moment_paper")
FRACTIONS = (0.1, 0.3, 0.5, 0.7, 0.9)
ESTIMATES_SCORES = ("GPT3_Perplexity", "GPT3_Min_k_Prob", "LLaMA2-13B_Perplexity", "LLaMA2-13B_Min_k_Prob")
NUM_CALIBRATION, NUM_CANDIDATES, ESTIMATES_LEVEL = 387, 387, 0.2


@functools.partial(jax.jit, static_argnames=("repetitions", "batch"))
def study(scores: jax.Array, member: jax.Array, key: jax.Array, *, repetitions: int, batch: int = 50) -> jax.Array:
    """FDP and power: [repetitions, methods, levels, 2]."""
    size = scores.shape[0]

    def one(key: jax.Array) -> jax.Array:
        test = jnp.zeros(size, bool).at[jax.random.permutation(key, size)[: size - size // 2]].set(True)
        cells = []
        for method in METHODS:
            for alpha in LEVELS:
                found = tdd.ptdi(
                    scores, scores, alpha=alpha, proportion=method, calibration_mask=~test & ~member, mask=test
                ).selected
                false = jnp.sum(found & ~member)
                true = jnp.sum(found & member)
                cells.append(
                    jnp.stack([false / jnp.maximum(false + true, 1), true / jnp.maximum(jnp.sum(test & member), 1)])
                )
        return jnp.stack(cells).reshape(len(METHODS), len(LEVELS), 2)

    return jax.lax.map(one, jax.random.split(key, repetitions), batch_size=batch)


@functools.partial(jax.jit, static_argnames=("fraction", "repetitions", "batch"))
def estimates(
    scores: jax.Array, order: jax.Array, key: jax.Array, *, fraction: float, repetitions: int, batch: int = 50
) -> jax.Array:
    """Error of each estimate, FDP and power: [repetitions, estimates, 3].

    `scores` [N] in single precision serve the moment estimates, which take as many known members as there are
    calibration items; `order` [N + 1] are their ranks, non-members first, and the number of non-members.
    """
    ranks, num_others = order[:-1], order[-1]
    num_members = round(fraction * NUM_CANDIDATES)
    target = jnp.arange(NUM_CANDIDATES) < num_members
    place = jnp.arange(scores.shape[0])

    def one(key: jax.Array) -> jax.Array:
        mixed = jax.random.uniform(key, place.shape)
        others = jnp.argsort(jnp.where(place < num_others, mixed, 2.0))
        members = jnp.argsort(jnp.where(place >= num_others, mixed, 2.0))
        own = others[:NUM_CALIBRATION]
        known = scores[members[num_members : num_members + NUM_CALIBRATION]]
        beside = others[NUM_CALIBRATION : NUM_CALIBRATION + NUM_CANDIDATES - num_members]
        tested = jnp.concatenate([members[:num_members], beside])
        cells = []
        for name in ESTIMATES:
            values, how = (scores, {"members": known}) if name.startswith("moment") else (ranks, {})
            found = tdd.ptdi(values[own], values[tested], alpha=ESTIMATES_LEVEL, proportion=name, **how)  # type: ignore[arg-type]
            false, true = jnp.sum(found.selected & ~target), jnp.sum(found.selected & target)
            errors = found.proportion - num_members / NUM_CANDIDATES
            cells.append(jnp.stack([errors, false / jnp.maximum(false + true, 1), true / num_members]))
        return jnp.stack(cells)

    return jax.lax.map(one, jax.random.split(key, repetitions), batch_size=batch)


def estimate_rows(table: Any, repetitions: int) -> list[dict[str, Any]]:
    """Bias, mean squared error, FDR and power with standard errors: a row for each score, fraction and estimate."""
    member = table.labels == 1
    nonmembers_first = np.argsort(member, kind="stable")
    rows = []
    for name in ESTIMATES_SCORES:
        values = table.scores[name][nonmembers_first]
        order = np.append(np.unique(values, return_inverse=True)[1], np.sum(~member)).astype(np.int32)
        for fraction in FRACTIONS:
            key = jax.random.key(0)
            found = estimates(
                jnp.asarray(values, jnp.float32), jnp.asarray(order), key, fraction=fraction, repetitions=repetitions
            )
            outcome = np.asarray(found, np.float64)
            measures = {
                "bias": outcome[..., 0],
                "mse": outcome[..., 0] ** 2,
                "fdr": outcome[..., 1],
                "power": outcome[..., 2],
            }
            for i, estimate in enumerate(ESTIMATES):
                row: dict[str, Any] = {"score": name, "fraction": fraction, "estimate": estimate}
                for measure, draws in measures.items():
                    row[measure] = float(draws[:, i].mean())
                    row[f"{measure}_se"] = float(draws[:, i].std(ddof=1) / np.sqrt(repetitions))
                rows.append(row)
            print(
                name,
                fraction,
                "  ".join(f"{row['bias']:.3f}/{row['mse']:.3f}" for row in rows[-len(ESTIMATES) :]),
                flush=True,
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", required=True, help="table with a label column and score columns MODEL_SCORE")
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--estimates", action="store_true", help="bias and squared error of the fraction of members")
    arguments = parser.parse_args()
    columns = [f"{model}_{score}" for model in MODELS for score in SCORES]
    table = tdd.load_score_table(
        arguments.data,
        scores=columns,
        role_field="label",
        calibration_role="0",
        candidate_role=None,
        label_field="label",
    )
    if arguments.estimates:
        sizes = {"repetitions": arguments.repetitions, "calibration": NUM_CALIBRATION, "candidates": NUM_CANDIDATES}
        rows = estimate_rows(table, arguments.repetitions)
        harness.write(
            "booktection_estimates", {**sizes, "alpha": ESTIMATES_LEVEL, "sha256": table.sha256, "rows": rows}
        )
        return
    member = jnp.asarray(table.labels == 1)
    rows, seconds = [], {}
    for name in columns:
        order = np.unique(table.scores[name], return_inverse=True)[1]  # ranks: no tie is made by rounding
        start = time.perf_counter()
        outcome = np.asarray(
            study(jnp.asarray(order, jnp.int32), member, jax.random.key(0), repetitions=arguments.repetitions)
        )
        seconds[name] = time.perf_counter() - start
        error = outcome.std(0, ddof=1) / np.sqrt(arguments.repetitions)
        for i, method in enumerate(METHODS):
            for j, alpha in enumerate(LEVELS):
                (fdr, power), (fdr_se, power_se) = outcome.mean(0)[i, j], error[i, j]
                rows.append(
                    {
                        "score": name,
                        "method": method,
                        "alpha": alpha,
                        "fdr": float(fdr),
                        "fdr_se": float(fdr_se),
                        "power": float(power),
                        "power_se": float(power_se),
                    }
                )
        print(name, f"{seconds[name]:.1f} s", flush=True)
    harness.write(
        "booktection_study",
        {
            "repetitions": arguments.repetitions,
            "items": len(table),
            "members": int(member.sum()),
            "sha256": table.sha256,
            "seconds": seconds,
            "rows": rows,
        },
    )
    shown = [row for row in rows if row["alpha"] in (0.05, 0.1, 0.2)]
    print(harness.table(shown))


if __name__ == "__main__":
    main()
