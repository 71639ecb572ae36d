"""Size and power of the tests of canonical order, and what the sequential rules save.

    python -m benchmarks.exchange_tests --folder build/exchange-tests

The first table is that of `tdd study exchange-tests --repetitions 100000`, kept in the folder and continued there. The
second reads the three sequential rules at their looks up to 50 shuffles and stops where a rule says so; "gives_up"
besides where ten shuffles of the whole have reached the canonical order.
"""

from __future__ import annotations

import argparse
import pathlib
import shlex
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tdd
from benchmarks import harness
from tdd.kernels.sequential import default_looks
from tdd.runs.folder import versions
from tdd.study import SkewedShards, named
from tdd.study.named.driver import run_named_study, verdict_rows
from tdd.study.named.record import StudyOptions
from tdd.study.runner import simulate

HORIZON, LEVELS, H = 50, (0.05, 0.001), 10
NUM_DRAWS = 4_999
SETTINGS: tuple[tuple[str, Any, dict[str, float]], ...] = (
    ("nothing planted", "normal", {"signal": 0.0}),
    ("every shard + 0.4 sd", "normal", {"signal": 0.4}),
    ("every shard + 0.4 sd", "lognormal", {"signal": 0.4}),
    ("every shard + 2 sd", "normal", {"signal": 2.0}),
    ("3 of 50 shards + 6 sd", "normal", {"signal": 6.0, "shifted_share": 0.06}),
)
FIXED = f"all {HORIZON} shuffles"


def sizes(folder: pathlib.Path, repetitions: int) -> dict[str, Any]:
    """The rows of the named study."""
    study = named.load("exchange-tests")
    options = StudyOptions(repetitions=repetitions, alphas=study.alphas, folder=folder, progress=True)
    command = f"tdd study exchange-tests --repetitions {repetitions} --out {shlex.quote(str(folder))}"
    outcome = run_named_study(study, options, command=command)
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
        "design": study.describe(options),
        "rows": rows,
        "power_repetitions": outcome.result.provenance["power_repetitions"],
    }


def rules() -> dict[str, Callable[..., Any]]:
    """Name -> (canonical, shuffled, key) -> (log p-values [L], exceedances of the sum [L])."""

    def sequence(rule: Any) -> Callable[..., Any]:
        def read(canonical: jax.Array, shuffled: jax.Array, key: jax.Array) -> Any:
            found = tdd.exchangeability_sequence(
                canonical, shuffled, rule=rule, key=key, num_draws=NUM_DRAWS, num_exceedances=H
            )
            return found.log_p_value, found.num_exceedances

        return read

    def fixed(canonical: jax.Array, shuffled: jax.Array, key: jax.Array) -> Any:
        p = tdd.exchangeability(canonical, shuffled, key=key, num_draws=NUM_DRAWS).log_p_value
        return p[None], jnp.zeros(1, jnp.int32)

    return {FIXED: fixed} | {rule: sequence(rule) for rule in ("e_process", "spending", "besag_clifford")}


def sequential(folder: pathlib.Path, repetitions: int) -> list[dict[str, Any]]:
    """Power and mean number of shuffles of each rule; what was measured before an interruption is read."""
    rows = []
    folder.mkdir(parents=True, exist_ok=True)
    for i, (name, law, options) in enumerate(SETTINGS):
        design = SkewedShards(num_shards=50, num_shuffles=HORIZON, law=law, **options)
        for rule, read in rules().items():
            start = time.perf_counter()

            def one(key: jax.Array, design: Any = design, read: Any = read) -> Any:
                drawing, own = jax.random.split(key)
                extra = design.draw(drawing).extra
                return read(extra["canonical"], extra["shuffled"], own)

            kept = folder / f"{i}-{rule}-{repetitions}.npz"
            if not kept.exists():
                log_p, exceeded = simulate(one, seed=0, repetitions=repetitions, batch=50)
                np.savez(kept, log_p=log_p, exceeded=exceeded)
            with np.load(kept) as found:
                log_p, exceeded = found["log_p"], found["exceeded"]
            for alpha in LEVELS:
                for gives_up in (False, True) if rule in ("e_process", "spending") else (rule == "besag_clifford",):
                    told = {"setting": name, "law": law, "rule": rule, "gives_up": gives_up, "alpha": alpha}
                    rows.append(told | _stopped(rule, log_p, (exceeded >= H) & gives_up, alpha))
            print(name, law, rule, f"{time.perf_counter() - start:.0f} s", rows[-1], flush=True)
    return rows


def _stopped(rule: str, log_p: np.ndarray, futile: np.ndarray, alpha: float) -> dict[str, float]:
    """Rejections, and shuffles used: by a rule that stops on evidence, on h exceedances, or not at all."""
    small = log_p <= np.log(alpha) + 1e-6
    if rule in (FIXED, "besag_clifford"):
        small[:, :-1] = False  # decided at the end
    looks = np.array(default_looks(HORIZON))[-small.shape[1] :]
    given_up = np.where(futile.any(axis=1), looks[futile.argmax(axis=1)], HORIZON)
    found = np.where(small.any(axis=1), looks[small.argmax(axis=1)], HORIZON + 1)
    rejects, used = found <= given_up, np.minimum(found, given_up)
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
    parser.add_argument("--sequential", type=int, default=2_000, help="repetitions of the sequential table")
    arguments = parser.parse_args()
    found = sizes(arguments.folder, arguments.repetitions)
    table = {
        "num_shards": 50, "horizon": HORIZON, "num_exceedances": H, "num_draws": NUM_DRAWS,
        "rows": sequential(arguments.folder.with_name(f"{arguments.folder.name}-rules"), arguments.sequential),
    }  # fmt: skip
    command = f"tdd study exchange-tests --repetitions {arguments.repetitions}"
    harness.write("exchange_tests", {"command": command, "versions": versions(), **found, "sequential": table})


if __name__ == "__main__":
    main()
