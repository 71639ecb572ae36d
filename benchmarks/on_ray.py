"""`tdd.score` of the demonstration's texts in one process and by workers of a local Ray, at equal cores.

    python -m benchmarks.on_ray

Compiled programs come from JAX's cache in both, as from the second run on. Each run has a Ray of its own: `start of
Ray` is `ray.init`; `start of the workers` is an empty run in which each imports `tdd` and loads the model; `scoring` is
the whole run after that, which loads the model again. One process: the same call in a fresh process, after its imports
and the loading of the model. The tables are compared to the last bit, those of a run with a killed worker too.
"""

from __future__ import annotations

import argparse
import functools
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
from collections.abc import Callable
from typing import Any

from benchmarks.harness import machine, write
from tdd import on_ray
from tdd.cli.machine import keep_compiled
from tdd.demo.data import demo_files, load_calibration, load_candidates
from tdd.records import Scores

SCORES = ("loss", "min_k_plus_plus")

ONE = """
import json, sys, time
import tdd
from tdd.cli.machine import keep_compiled
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
    rows: list[dict[str, Any]] = []
    seconds: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        found = call()
        seconds.setdefault(name, []).append(time.perf_counter() - began)
        return found

    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        _, bits = one(place / "first")  # fills the cache of compiled programs
        for round in range(arguments.rounds):
            seconds.setdefault("one process", []).append(one(place / f"one-{round}")[0])
            for workers in (2, 4):
                timed("start of Ray", lambda workers=workers: start(workers))
                timed(f"start of {workers} workers", functools.partial(on_ray.run_shards, loading, num_workers=workers))
                run = functools.partial(score, place / f"{workers}-{round}", workers)
                found = timed(f"{workers} workers, scoring", run)
                rows.append({"workers": workers, "same bits": hexes(found) == bits})
                if (round, workers) == (arguments.rounds - 1, 2):
                    killed = score(place / "killed", 2, on_batch=KillOnce(place / "mark"))
                    rows.append({"workers": 2, "killed": (place / "mark").exists(), "same bits": hexes(killed) == bits})
                ray.shutdown()
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    overhead = {str(workers): medians[f"{workers} workers, scoring"] / medians["one process"] - 1 for workers in (2, 4)}
    result = {
        "machine": machine(),
        "texts": len(texts()),
        "seconds": seconds,
        "medians": medians,
        "overhead": overhead,
        "tables": rows,
    }
    write("on_ray", result)
    print(json.dumps({name: result[name] for name in ("medians", "overhead", "tables")}, indent=1))


def start(cpus: int) -> None:
    """A local Ray."""
    import ray

    ray.init(address="local", num_cpus=cpus, include_dashboard=False, logging_level=logging.ERROR)


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
