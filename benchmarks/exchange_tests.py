"""Size and power of the tests of canonical order, and what the sequential rules save.

    python benchmarks/exchange_tests.py --folder build/exchange-tests

The first table is that of `tdd study exchange-tests --repetitions 100000`, kept in the folder and continued there. The
second reads the three sequential rules at their looks up to 50 shuffles and stops where a rule says so.
"""

from __future__ import annotations

import argparse
import pathlib
import shlex
import time
from collections.abc import Callable
from typing import Any

import harness
import jax
import jax.numpy as jnp
import numpy as np

import tdd
from tdd.audit.run_folder import versions
from tdd.study import SkewedShards, named
from tdd.study.monte_carlo import simulate
from tdd.study.named.driver import carry_out, verdict_rows
from tdd.study.named.record import Options

HORIZON, LEVELS, H = 50, (0.05, 0.001), 10
NUM_DRAWS = 4_999
SETTINGS = {
    "null": {"signal": 0.0},
    "every shard + 0.4 sd": {"signal": 0.4},
    "every shard + 2 sd": {"signal": 2.0},
    "3 of 50 shards + 6 sd": {"signal": 6.0, "shifted_share": 0.06},
}
FIXED = f"all {HORIZON} shuffles, combined"


def sizes(folder: pathlib.Path, repetitions: int) -> dict[str, Any]:
    """The rows of the named study."""
    study = named.load("exchange-tests")
    options = Options(repetitions=repetitions, alphas=study.alphas, folder=folder, progress=True)
    command = f"tdd study exchange-tests --repetitions {repetitions} --out {shlex.quote(str(folder))}"
    outcome = carry_out(study, options, command=command)
    kept = (
        "panel",
        "num_shards",
        "num_shuffles",
        "method",
        "alpha",
        "repetitions",
        "fdr",
        "fdr_se",
        "power",
        "power_se",
    )
    rows = [
        {"size" + name[3:] if name.startswith("fdr") else name: row[name] for name in kept}
        | {"verdict": row["verdict"]}
        for row in verdict_rows(study, options, outcome.result)
    ]
    return {
        "design": study.design(options),
        "rows": rows,
        "power_repetitions": outcome.result.provenance["power_repetitions"],
        "seconds": outcome.result.seconds,
    }


def rules() -> dict[str, Callable[..., Any]]:
    """Name -> (canonical, shuffled, key) -> (log p-values [L], whether h exceedances stop it [L])."""

    def sequence(rule: Any) -> Callable[..., Any]:
        def read(canonical: jax.Array, shuffled: jax.Array, key: jax.Array) -> Any:
            found = tdd.exchangeability_sequence(
                canonical, shuffled, rule=rule, key=key, num_draws=NUM_DRAWS, num_exceedances=H
            )
            futile = (found.num_exceedances >= H) & (rule == "besag_clifford")
            return found.log_p_value, futile

        return read

    def fixed(canonical: jax.Array, shuffled: jax.Array, key: jax.Array) -> Any:
        p = tdd.exchangeability(canonical, shuffled, key=key, num_draws=NUM_DRAWS).log_p_value
        return p[None], jnp.zeros(1, bool)

    return {FIXED: fixed} | {rule: sequence(rule) for rule in ("e_process", "spending", "besag_clifford")}


def sequential(repetitions: int) -> list[dict[str, Any]]:
    """Power and mean number of shuffles of each rule."""
    looks = np.array([1, 2, 5, 10, 20, 50])
    rows = []
    for name, options in SETTINGS.items():
        for law in ("normal", "exponential") if name == "every shard + 0.4 sd" else ("normal",):
            design = SkewedShards(num_shards=50, num_shuffles=HORIZON, law=law, **options)
            for rule, read in rules().items():
                start = time.perf_counter()

                def one(key: jax.Array, design: Any = design, read: Any = read) -> Any:
                    drawing, own = jax.random.split(key)
                    extra = design.draw(drawing).extra
                    return read(extra["canonical"], extra["shuffled"], own)

                # ten counts settle it; several repetitions side by side
                log_p, futile = simulate(one, seed=0, repetitions=repetitions, batch=100)
                for alpha in LEVELS:
                    rows.append(
                        {"setting": name, "law": law, "rule": rule, "alpha": alpha}
                        | _stopped(rule, log_p, futile > 0, looks, alpha)
                    )
                print(name, law, rule, f"{time.perf_counter() - start:.0f} s", rows[-2:], flush=True)
    return rows


def _stopped(rule: str, log_p: np.ndarray, futile: np.ndarray, looks: np.ndarray, alpha: float) -> dict[str, float]:
    """Rejections, and shuffles used: by a rule that stops on evidence, on futility, or not at all."""
    small = log_p <= np.log(alpha) + 1e-6
    if rule == FIXED:
        rejects, used = small[:, 0], np.full(len(small), HORIZON)
    elif rule == "besag_clifford":
        rejects = small[:, -1]
        used = np.where(futile.any(axis=1), looks[futile.argmax(axis=1)], HORIZON)
    else:
        rejects = small.any(axis=1)
        used = np.where(rejects, looks[small.argmax(axis=1)], HORIZON)
    count = len(small)
    return {
        "rejects": float(rejects.mean()),
        "rejects_se": float(np.sqrt(rejects.mean() * (1 - rejects.mean()) / count)),
        "shuffles": float(used.mean()),
        "shuffles_se": float(used.std(ddof=1) / np.sqrt(count)),
        "repetitions": count,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="of the study; an interrupted one continues")
    parser.add_argument("--repetitions", type=int, default=100_000, help="of each size")
    parser.add_argument("--sequential", type=int, default=4_000, help="repetitions of the sequential table")
    arguments = parser.parse_args()
    found = sizes(arguments.folder, arguments.repetitions)
    table = {
        "num_shards": 50, "horizon": HORIZON, "num_exceedances": H, "num_draws": NUM_DRAWS,
        "rows": sequential(arguments.sequential),
    }  # fmt: skip
    command = f"tdd study exchange-tests --repetitions {arguments.repetitions}"
    harness.write("exchange_tests", {"command": command, "versions": versions(), **found, "sequential": table})


if __name__ == "__main__":
    main()
