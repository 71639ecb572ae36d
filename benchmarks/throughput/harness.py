"""Timing in interleaved rounds, compilation apart, and results as JSON.

A peer is always measured in the same process and the same rounds as this project, one after the other, so that a slow
minute of the machine meets both; ratios are medians over rounds.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from benchmarks.throughput.machine import machine
from tdd.runs.atomic import write_atomically

__all__ = ["TraceCounter", "compile_and_first", "interleaved", "ratio", "seconds_of", "write"]


def seconds_of(call: Callable[[], Any]) -> float:
    """Seconds of one call, its results ready."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def interleaved(
    calls: Mapping[str, Callable[[], Any]], rounds: int, repeats: Mapping[str, int] | None = None
) -> dict[str, list[float]]:
    """Seconds of each call in each round.

    Args:
      calls: name -> call; within a round every one of them runs, in order.
      rounds: how many.
      repeats: how often a call runs in a row within a round, of which the mean counts; once by default. For calls
        that are too short for the clock.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            count = (repeats or {}).get(name, 1)
            start = time.perf_counter()
            for _ in range(count):
                jax.block_until_ready(call())
            seconds[name].append((time.perf_counter() - start) / count)
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


def write(path: pathlib.Path, result: Mapping[str, Any]) -> pathlib.Path:
    """Write a result with the record of the machine as JSON: complete or not at all."""
    content = json.dumps({"machine": machine(), **result}, indent=2) + "\n"
    write_atomically(path, content.encode())
    return path
