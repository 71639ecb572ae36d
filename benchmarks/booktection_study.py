"""FDR and power of PTDI over random splits of a labelled score table: the paper's study on real scores.

Each repetition halves the pool at random: the non-members of one half calibrate, the other half is the test set. All
repetitions of a score run in one compiled call. "none" is the paper's vanilla method, "subtraction" its scaled one,
"storey" the exact one beside it.

    python -m benchmarks.booktection_study --data scores.csv
"""

from __future__ import annotations

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

import tdd
from benchmarks import harness

MODELS = ("GPT3", "LLaMA2-13B")
SCORES = ("Perplexity", "Zlib", "Lowercase", "Min_k_Prob")
LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
METHODS = ("none", "subtraction", "storey")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", required=True, help="table with a label column and score columns MODEL_SCORE")
    parser.add_argument("--repetitions", type=int, default=1000)
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
