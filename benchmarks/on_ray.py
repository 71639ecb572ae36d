"""`tdd.score` of the demonstration's texts in one process and by workers of a local Ray, at equal cores.

    python -m benchmarks.on_ray

Compiled programs come from JAX's cache in both, as from the second run on. `start of Ray` is `ray.init`; `start of the
workers` ends when each has imported `tdd`, loaded the model and joined an empty run; `scoring` is what a run takes
beyond that. One process: the same call in a fresh process, after its imports and the loading of the model. The tables
are compared to the last bit, those of a run with a worker that is killed too.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks.harness import machine, write
from tdd import on_ray
from tdd.cli.compilation_cache import keep_compiled
from tdd.demo.data import demo_files, load_calibration, load_candidates
from tdd.records import Scores

SCORES = ("loss", "min_k_plus_plus")

ONE = """
import json, sys, time
import tdd
from tdd.cli.compilation_cache import keep_compiled
from tdd.demo.data import demo_files, load_calibration, load_candidates
keep_compiled(True)
model = tdd.load(demo_files().checkpoint)
texts = [*load_calibration().texts, *load_candidates().texts]
start = time.perf_counter()
found = tdd.score(model, texts, json.loads(sys.argv[1]), store=sys.argv[2], progress=False)
seconds = time.perf_counter() - start
print(json.dumps([seconds, {name: column.tobytes().hex() for name, column in found.values.items()}]))
"""


class KillOnce:
    """Ends the process of a worker with SIGKILL after three batches, once."""

    def __init__(self, mark: pathlib.Path) -> None:
        self.mark = mark

    def __call__(self, done: int, total: int) -> None:
        if done == 3 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    import ray

    keep_compiled(True)
    start = time.perf_counter()
    ray.init(address="local", num_cpus=4, include_dashboard=False, logging_level=logging.ERROR)
    ray_start = time.perf_counter() - start
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        one(place / "first")  # fills the cache of compiled programs
        seconds: dict[str, list[float]] = {}
        for round in range(arguments.rounds):
            alone, bits = one(place / f"one-{round}")
            seconds.setdefault("one process", []).append(alone)
            for workers in (2, 4):
                began = time.perf_counter()
                on_ray.run_shards(loading, num_workers=workers)
                started = time.perf_counter() - began
                began = time.perf_counter()
                found = score(place / f"{workers}-{round}", workers)
                whole = time.perf_counter() - began
                seconds.setdefault(f"start of {workers} workers", []).append(started)
                seconds.setdefault(f"{workers} workers, scoring", []).append(whole - started)
                rows.append({"workers": workers, "same bits": hexes(found) == bits})
        killed = score(place / "killed", 2, on_batch=KillOnce(place / "mark"))
        rows.append({"workers": 2, "killed": (place / "mark").exists(), "same bits": hexes(killed) == bits})
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    overhead = {str(workers): medians[f"{workers} workers, scoring"] / medians["one process"] - 1 for workers in (2, 4)}
    result = {
        "machine": machine(),
        "texts": len(texts()),
        "start of Ray": ray_start,
        "seconds": seconds,
        "medians": medians,
        "overhead": overhead,
        "tables": rows,
    }
    write("on_ray", result)
    print(json.dumps({name: result[name] for name in ("start of Ray", "medians", "overhead", "tables")}, indent=1))


def texts() -> list[str]:
    """850 texts."""
    return [*load_calibration().texts, *load_candidates().texts]


def one(store: pathlib.Path) -> tuple[float, dict[str, str]]:
    """Seconds and bits of one process."""
    command = [sys.executable, "-c", ONE, json.dumps(SCORES), str(store)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, bits = json.loads(found.stdout.splitlines()[-1])
    return seconds, bits


def score(store: pathlib.Path, workers: int, **options: Any) -> Scores:
    """The table of so many workers."""
    return on_ray.score(
        demo_files().checkpoint, texts(), SCORES, store=store, num_workers=workers, progress=False, **options
    )


def hexes(found: Scores) -> dict[str, str]:
    """The bits of a table."""
    return {name: column.tobytes().hex() for name, column in found.values.items()}


def loading() -> Any:
    """A worker that does nothing but load the model."""
    import tdd

    tdd.load(demo_files().checkpoint)
    return lambda shard: None


if __name__ == "__main__":
    main()
