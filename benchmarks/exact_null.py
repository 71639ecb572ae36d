"""Rejection rates on real scores under an exact null, ties included.

The losses of held-out rows under models of one family, in half precision: some 2,300 distinct values among 8,000 rows.
Held-out rows against held-out rows, halved at random: every hypothesis is null, so the false discovery rate is the
probability of selecting anything. For the null "member" the same rows play known members: exchangeable is exchangeable.

    python -m benchmarks.exact_null --data losses.npz
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tdd
from benchmarks import harness

LEVELS = (0.05, 0.1, 0.2)
MODELS = ("70m", "160m", "410m", "1.4b", "2.8b", "6.9b")


def methods() -> dict[str, tuple[bool, Callable[..., jax.Array]]]:
    """Name -> (whether it takes the panel of all models, (calibration, scores, alpha, key) -> selected)."""
    found: dict[str, tuple[bool, Callable[..., jax.Array]]] = {}
    proportion: Any
    combine: Any
    for proportion in ("none", "storey", "subtraction"):
        found[f"ptdi/{proportion}"] = (
            False,
            lambda c, s, alpha, key, p=proportion: tdd.ptdi(c, s, alpha=alpha, proportion=p).selected,
        )
    for combine in ("pooled_rank", "split_weights", "hommel", "e_values", "cauchy"):
        found[f"td4eval/{combine}"] = (
            True,
            lambda c, s, alpha, key, how=combine: (
                tdd.td4eval(c, s, alpha=alpha, combine=how, key=key if how == "split_weights" else None).selected
            ),
        )
    found["jmcs"] = (True, lambda c, s, alpha, key: tdd.jmcs(c, s, alpha=alpha).selected)
    found["jecs"] = (True, lambda c, s, alpha, key: tdd.jecs(c, s, alpha=alpha).selected)
    return found


@functools.partial(jax.jit, static_argnames=("select", "sizes", "repetitions", "batch"))
def rates(
    panel: jax.Array,
    key: jax.Array,
    *,
    select: Callable[..., jax.Array],
    sizes: tuple[int, int],
    repetitions: int,
    batch: int = 50,
) -> jax.Array:
    """Whether anything was selected: [repetitions, levels]; the sizes are those of calibration and test sample."""
    n, m = sizes

    def one(key: jax.Array) -> jax.Array:
        split, own = jax.random.split(key)
        order = jax.random.permutation(split, panel.shape[-1])[: n + m]
        calibration, scores = panel[..., order[:n]], panel[..., order[n:]]
        return jnp.stack([select(calibration, scores, alpha, own).any() for alpha in LEVELS])

    return jax.lax.map(one, jax.random.split(key, repetitions), batch_size=batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", required=True, help="arrays loss_val_pythia-SIZE")
    parser.add_argument("--repetitions", type=int, default=2_000)
    parser.add_argument("--calibration", type=int, default=3_999, help="calibration rows")
    parser.add_argument("--tests", type=int, default=200, help="test rows; alpha (n + 1)/m is an integer by default")
    arguments = parser.parse_args()
    with np.load(arguments.data, allow_pickle=False) as data:
        losses = np.stack([data[f"loss_val_pythia-{name}"].astype(np.float32) for name in MODELS])
    rows = []
    for name, (several, select) in methods().items():
        start = time.perf_counter()
        panel = jnp.asarray(losses if several else losses[3])
        sizes = (arguments.calibration, arguments.tests)
        found = rates(panel, jax.random.key(0), select=select, sizes=sizes, repetitions=arguments.repetitions)
        mean = np.asarray(found, np.float64).mean(0)
        for alpha, rate in zip(LEVELS, mean, strict=True):
            error = float(np.sqrt(rate * (1 - rate) / arguments.repetitions))
            rows.append({"method": name, "alpha": alpha, "rate": float(rate), "se": error})
        print(f"{name:24s}", np.round(mean, 4), f"{time.perf_counter() - start:.0f} s", flush=True)
    harness.write(
        "exact_null",
        {
            "repetitions": arguments.repetitions,
            "calibration": arguments.calibration,
            "tests": arguments.tests,
            "rows_in_pool": int(losses.shape[1]),
            "distinct": {name: int(np.unique(row).size) for name, row in zip(MODELS, losses, strict=True)},
            "models": list(MODELS),
            "rows": rows,
        },
    )


if __name__ == "__main__":
    main()
