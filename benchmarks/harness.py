"""Helpers of the scripts: timing, memory, results and tables."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.throughput import harness
from benchmarks.throughput.harness import TraceCounter, compile_and_first, interleaved, ratio
from benchmarks.throughput.machine import machine, matmul_flops
from benchmarks.throughput.memory import peak_bytes, resident_bytes

__all__ = [
    "RESULTS",
    "TraceCounter",
    "compile_and_first",
    "interleaved",
    "machine",
    "matmul_flops",
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


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table; the columns are the keys of the first row whose values are not nested."""
    columns = [name for name, value in rows[0].items() if not isinstance(value, (dict, list))]
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    lines = [columns, ["---"] * len(columns), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
