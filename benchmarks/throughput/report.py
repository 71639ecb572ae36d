"""Results of `python -m benchmarks throughput`: gathered into one JSON document, and shown as tables."""

from __future__ import annotations

import datetime
import json
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

import tdd
from benchmarks.throughput import suites
from benchmarks.throughput.cases import Size
from benchmarks.throughput.harness import write
from benchmarks.throughput.machine import copy_bandwidth, machine, matmul_flops
from benchmarks.throughput.measure import Options
from tdd.report.page import markdown_table

__all__ = ["CASE_HEADER", "STUDY_HEADER", "case_rows", "collect", "note", "print_json", "print_tables", "study_rows"]

CASE_HEADER = (
    "case", "size", "compile", "first", "steady", "rate", "memory", "bandwidth", "times as fast as", "to reach",
)  # fmt: skip
STUDY_HEADER = ("study", "first call", "rate", "devices", "times as fast as", "with compilation", "to reach")


def collect(
    wanted: Mapping[str, Sequence[Any]],
    options: Options,
    sizes: Sequence[Size],
    say: Callable[[str], None],
    out: str | None,
) -> dict[str, Any]:
    """Measure the machine, then every case; with `out` the document is written after each of them."""
    import dataclasses

    say("copy bandwidth and matrix product of the device")
    options = dataclasses.replace(
        options,
        bandwidth=copy_bandwidth(),
        flops=matmul_flops(512 if options.quick else 2048) if "scoring" in wanted else 0.0,
    )
    result: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks", *sys.argv[1:]]),
        "version": tdd.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "rounds": options.rounds,
        "quick": options.quick,
        "copy_bytes_per_s": options.bandwidth,
        "matmul_flops": options.flops,
        "failed": [],
        **{suite: [] for suite in wanted},
    }
    for suite, row in suites.run(wanted, options, sizes, say):
        result[suite].append(row)
        if "failed" in row:
            result["failed"].append(row["case"])
        if out is not None:
            write(pathlib.Path(out), result)
    return result


def print_json(result: Mapping[str, Any]) -> None:
    """The document with the record of the machine, on standard output."""
    print(json.dumps({"machine": machine(), **result}, indent=2))


def print_tables(result: Mapping[str, Any], *, markdown: bool = False) -> None:
    """One table a suite, on standard output."""
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    for suite in suites.SUITES:
        rows = result.get(suite)
        if not rows:
            continue
        header, cells = (STUDY_HEADER, study_rows(rows)) if suite == "studies" else (CASE_HEADER, case_rows(rows))
        if markdown:
            print(f"**{suite.capitalize()}.** {note(result)}\n\n{_as_markdown(header, cells)}\n")
            continue
        table = Table(title=suite, title_justify="left", header_style="bold", caption=note(result), show_lines=False)
        for name in header:
            table.add_column(name, overflow="fold")
        for line in cells:
            table.add_row(*(cell.replace("[", "\\[") for cell in line))
        console.print(table)
    for row in (row for suite in suites.SUITES for row in result.get(suite, ()) if "failed" in row):
        print(row["failed"], file=sys.stderr)


def note(result: Mapping[str, Any]) -> str:
    """What the numbers were measured on, in a sentence."""
    on = result.get("machine") or machine()
    kind = on["device_kind"] if on["device_kind"] != "cpu" else f"{on['cores']} cores of {on['processor']}"
    return (
        f"{kind}, load average {on['load_average']:.1f}, jax {on['versions']['jax']}; plain copy "
        f"{result['copy_bytes_per_s'] / 1e9:.1f} GB/s; medians of {result['rounds']} interleaved rounds."
    )


def case_rows(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The cells of `CASE_HEADER`."""
    return [_case_cells(row) for row in rows]


def study_rows(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The cells of `STUDY_HEADER`."""
    return [_study_cells(row) for row in rows]


def _case_cells(row: Mapping[str, Any]) -> list[str]:
    size = str(Size(row["items"], row["batch"]))
    if "failed" in row:
        return [row["case"], size, "disagrees with a peer: not timed", *[""] * (len(CASE_HEADER) - 3)]
    ratios = {name: peer["ratio"] for name, peer in row["peers"].items()}
    memory = row.get("temporary_bytes", 0) + row.get("output_bytes", 0)
    share, product = row["bandwidth_share"], row["matmul_share"]
    shares = [f"{share:.2f}"] if share is not None else []
    shares += [f"{product:.2f} of matmul"] if product is not None else []
    return [
        row["case"],
        size,
        f"{row['compile_s']:.2f} s",
        _seconds(row["first_s"]),
        _seconds(row["steady_s"]),
        f"{_short(row['per_s'])} {row['unit']}/s",
        f"{_short(memory)}B" + (f", peak {_short(row['resident_peak_bytes'])}B" if row["resident_peak_bytes"] else ""),
        ", ".join(shares),
        ", ".join(f"{name} {_times(ratio)}" for name, ratio in ratios.items()),
        ", ".join(_bar(f"{name} ", ratios[name], bar) for name, bar in row["bars"].items() if name in ratios),
    ]


def _study_cells(row: Mapping[str, Any]) -> list[str]:
    if "failed" in row:
        return [row["case"], "failed: not timed", *[""] * (len(STUDY_HEADER) - 2)]
    bars = row["bars"]
    reached = {"steady": row["ratios"]["peer"], "first": row["first_ratio"], "gpu": row["per_s"]}
    words = {"steady": "", "first": "with compilation ", "gpu": ""}
    peers = {"the loop": row["ratios"]["peer"]} | {k: v for k, v in row["ratios"].items() if k != "peer"}
    return [
        row["case"],
        f"{_short(row['first_repetitions'])} in {row['first_s']:.2f} s",
        f"{_short(row['per_s'])}/s (loop {_short(row['peers_per_s']['peer'])}/s)",
        str(row["num_devices"]),
        ", ".join(f"{name} {_times(ratio)}" for name, ratio in peers.items()),
        _times(row["first_ratio"]),
        ", ".join(_bar(words[name], reached[name], bar) for name, bar in bars.items()),
    ]


def _bar(what: str, reached: float, bar: float) -> str:
    stated = f"{_short(bar)}/s" if bar >= 1e5 else _times(bar)
    return f"{what}{stated} {'reached' if reached >= bar else 'MISSED'}"


def _as_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return markdown_table(header, rows)


def _times(ratio: float) -> str:
    return f"{ratio:.0f}×" if ratio >= 20 else f"{ratio:.1f}×" if ratio >= 2 else f"{ratio:.2f}×"


def _seconds(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def _short(number: float) -> str:
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number:.3g} "
