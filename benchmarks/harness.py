"""Helpers of the scripts: timing, memory, results and tables."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.throughput import harness
from benchmarks.throughput.harness import TraceCounter, compile_and_first, interleaved, ratio
from benchmarks.throughput.machine import machine, matmul_flops
from benchmarks.throughput.memory import peak_bytes, resident_bytes
from tdd.runs.atomic import write_atomically
from tdd.runs.folder import to_json

__all__ = [
    "RESULTS",
    "TraceCounter",
    "compile_and_first",
    "interleaved",
    "machine",
    "matmul_flops",
    "of_seeds",
    "peak_bytes",
    "ratio",
    "resident_bytes",
    "table",
    "write",
]

RESULTS = pathlib.Path(__file__).resolve().parent / "results"


def write(name: str, result: Mapping[str, Any]) -> pathlib.Path:
    """Write results/<name>.json with the record of the machine."""
    RESULTS.mkdir(exist_ok=True)
    return harness.write(RESULTS / f"{name}.json", result)


def of_seeds(
    seeds: Iterable[int], folder: pathlib.Path, measure: Callable[[int], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What `measure` finds with each seed, its "seconds" among it; the folder keeps the seeds that are finished."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for seed in seeds:
        place = folder / f"seed-{seed}.json"
        if not place.exists():
            write_atomically(place, to_json(measure(seed)).encode())
        found.append(json.loads(place.read_text("utf-8")))
        print(f"seed {seed}: {found[-1]['seconds']:.0f} s", flush=True)
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table; the columns are the keys of the first row whose values are not nested."""
    columns = [name for name, value in rows[0].items() if not isinstance(value, (dict, list))]
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    lines = [columns, ["---"] * len(columns), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
