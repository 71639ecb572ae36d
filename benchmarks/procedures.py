"""Time of one call and of a thousand batched calls of every procedure.

Compilation, first call and the steady median of the calls are separate. The thousand calls run in one compiled
program, `batch` of them side by side; SciPy's loop of the same Benjamini-Hochberg tests runs beside them for scale.

    python -m benchmarks.procedures --sizes 1000
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
from scipy import stats

import tdd
from benchmarks import harness

DETECTORS, KNOCKOFFS, SHUFFLES = 5, 4, 10
ALPHA = 0.1


def draw(key: jax.Array, size: int, rows: int | None = None) -> tuple[jax.Array, jax.Array]:
    """Calibration and test scores, a fifth of the tests shifted down."""
    shape = (size,) if rows is None else (rows, size)
    first, second = jax.random.split(key)
    shift = 3.0 * (jnp.arange(size) < size // 5)
    return jax.random.normal(first, shape), jax.random.normal(second, shape) - shift


def procedures(size: int) -> dict[str, Callable[[jax.Array], Any]]:
    """Name -> PRNG key -> decision; each call draws its own data."""
    found: dict[str, Callable[[jax.Array], Any]] = {}

    def one_score(select: Callable[..., Any]) -> Callable[[jax.Array], Any]:
        return lambda key: select(*draw(key, size), key)

    def panel(select: Callable[..., Any]) -> Callable[[jax.Array], Any]:
        def call(key: jax.Array) -> Any:
            calibration, scores = draw(key, size, DETECTORS)
            return select(-calibration, -scores, key)

        return call

    name: Any
    found["data only"] = one_score(lambda c, s, key: c.sum() + s.sum())
    for name in ("none", "storey", "subtraction"):
        found[f"ptdi/{name}"] = one_score(
            lambda c, s, key, p=name: tdd.ptdi(c, s, alpha=ALPHA, proportion=p).num_selected
        )
    for name in ("cauchy", "pooled_rank", "split_weights", "hommel", "harmonic", "e_values"):
        found[f"td4eval/{name}"] = panel(
            lambda c, s, key, how=name: (
                tdd.td4eval(c, s, alpha=ALPHA, combine=how, key=key if how == "split_weights" else None).num_selected
            )
        )
    found["jmcs"] = panel(lambda c, s, key: tdd.jmcs(c, s, alpha=ALPHA).num_selected)
    found["jecs"] = panel(lambda c, s, key: tdd.jecs(c, s, alpha=ALPHA).num_selected)

    def knockoffs(rule: str) -> Callable[[jax.Array], Any]:
        def call(key: jax.Array) -> Any:
            first, second = jax.random.split(key)
            original = jax.random.normal(first, (size,)) - 3.0 * (jnp.arange(size) < size // 5)
            copies = jax.random.normal(second, (size, KNOCKOFFS))
            return tdd.ktd(original, copies, alpha=ALPHA, rule=rule).num_selected  # type: ignore[arg-type]

        return call

    for name in ("ktd", "multi", "derandomized"):
        found[f"ktd/{name}"] = knockoffs(name)
    return found


def exchangeability(num_shards: int) -> dict[str, Callable[[jax.Array], Any]]:
    """Tests of one data set of `num_shards` shards."""

    def test(name: str) -> Callable[[jax.Array], Any]:
        def call(key: jax.Array) -> Any:
            first, second, own = jax.random.split(key, 3)
            canonical = jax.random.normal(first, (num_shards,)) + 0.3
            shuffled = jax.random.normal(second, (num_shards, SHUFFLES))
            return tdd.exchangeability(canonical, shuffled, test=name, key=own).log_p_value  # type: ignore[arg-type]

        return call

    return {f"exchangeability/{name}": test(name) for name in ("t", "rank_sum", "permutation")}


def timed(call: Callable[[jax.Array], Any], calls: int, batch: int) -> dict[str, float]:
    """Seconds to compile, of the first and of a steady single call, and of `calls` calls in one program."""
    key = jax.random.key(0)
    row = harness.compile_and_first(jax.jit(call), key)
    many = jax.jit(functools.partial(jax.lax.map, call, batch_size=batch))
    keys = jax.random.split(key, calls)
    compiled = many.lower(keys).compile()
    start = time.perf_counter()
    jax.block_until_ready(compiled(keys))
    return row | {"many_s": time.perf_counter() - start, "calls": calls, "batch": batch}


def scipy_loop(size: int, calls: int) -> float:
    """Seconds of a NumPy and SciPy loop: ranks by a sort, BH by scipy.stats.false_discovery_control."""
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    for _ in range(calls):
        calibration, scores = np.sort(rng.standard_normal(size)), rng.standard_normal(size)
        scores[: size // 5] -= 3
        p_values = (1 + np.searchsorted(calibration, scores, side="right")) / (size + 1)
        (stats.false_discovery_control(p_values) <= ALPHA).sum()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--calls", type=int, nargs="+", default=[1_000, 1_000], help="batched calls at each size")
    parser.add_argument("--only", default="", help="procedures whose names begin so")
    parser.add_argument("--out", default="procedures", help="name of the result")
    arguments = parser.parse_args()
    rows = []
    for size, calls in zip(arguments.sizes, arguments.calls, strict=True):
        batch = max(1, min(calls, 200_000 // size))
        for name, call in {**procedures(size), **exchangeability(50)}.items():
            if not name.startswith(arguments.only):
                continue
            row = {"procedure": name, "size": size} | timed(call, calls, batch)
            rows.append(row)
            one, many = 1e3 * row["steady_s"], row["many_s"]
            print(f"{name:28s} n = m = {size:7d}  one {one:9.2f} ms  {calls} calls {many:8.2f} s", flush=True)
        loops = max(2, min(calls, 20_000_000 // size // 10))
        rows.append(
            {"procedure": "NumPy and SciPy loop of ptdi/none", "size": size, "calls": calls, "extrapolated_from": loops}
            | {"steady_s": scipy_loop(size, 2) / 2, "many_s": scipy_loop(size, loops) * calls / loops}
        )
        print(rows[-1], flush=True)
    harness.write(arguments.out, {"detectors": DETECTORS, "knockoffs": KNOCKOFFS, "shuffles": SHUFFLES, "rows": rows})


if __name__ == "__main__":
    main()
