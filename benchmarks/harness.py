"""What every benchmark shares: timing in interleaved rounds, the machine, JSON out, tables from JSON.

A peer is always measured in the same process and the same rounds as this project, one after the other, so that a
slow minute of the machine meets both; ratios are medians over rounds.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

RESULTS = pathlib.Path(__file__).resolve().parent / "results"


def interleaved(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call in each round; within a round, every call runs once."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    """Median over the rounds of slow / fast."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def compile_and_first(call: Callable[..., Any], *args: Any) -> dict[str, float]:
    """Seconds to trace and compile a jitted call, of its first run, and the steady median of five."""
    start = time.perf_counter()
    compiled = call.lower(*args).compile()  # type: ignore[attr-defined]
    found = {"compile_s": time.perf_counter() - start}
    for name, repeats in (("first_s", 1), ("steady_s", 5)):
        found[name] = statistics.median(interleaved({"": lambda: compiled(*args)}, repeats)[""])
    return found


def matmul_flops(size: int = 2048, rounds: int = 7) -> float:
    """The machine's own float32 matrix-product rate through XLA, flop/s: the best of a few products."""
    a = jnp.asarray(np.random.default_rng(0).normal(size=(size, size)), jnp.float32)
    product = jax.jit(lambda x: jnp.matmul(x, x, precision="highest"))
    jax.block_until_ready(product(a))
    return 2 * size**3 / min(interleaved({"": lambda: product(a)}, rounds)[""])


class TraceCounter:
    """Counts XLA compilations in this process while it is active."""

    def __init__(self) -> None:
        self.compiles = 0
        self._active = True
        jax.monitoring.register_event_duration_secs_listener(self._on_event)

    def _on_event(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        self.compiles += self._active and event.endswith("backend_compile_duration")

    def stop(self) -> int:
        """The number of compilations since the start; counting ends."""
        self._active = False
        return self.compiles


def resident_bytes() -> int:
    """Resident memory of this process now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """Largest resident memory of this process so far."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if platform.system() == "Darwin" else 1024)


def machine() -> dict[str, Any]:
    """Device, cores and versions."""
    packages = ("jax", "jaxlib", "numpy", "torch", "transformers")
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "device": str(jax.devices()[0]),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        "versions": versions,
    }


def write(name: str, result: Mapping[str, Any]) -> pathlib.Path:
    """Write results/<name>.json: complete or not at all."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"machine": machine(), **result}, indent=2) + "\n")
    partial.replace(path)
    return path


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table; the columns are the keys of the first row."""
    columns = list(rows[0])
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    lines = [columns, ["---"] * len(columns), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
