"""Tables about accelerators: what is estimated by compiling, and what narrower products do to scores."""

from __future__ import annotations

from typing import Any

from tdd.report.page import markdown_table

__all__ = ["aot", "precision"]


def aot(result: dict[str, Any]) -> str:
    """Programs by targets, and the programs before they were made for wide machines."""
    records = {(row["program"], row["target"]): row for row in result["records"]}
    before = {row["program"]: row for row in result["before"]["records"]}
    targets = list(dict.fromkeys(row["target"] for row in result["records"]))
    rows = [
        [name, _cell(before.get(name)), *(_cell(records.get((name, target))) for target in targets)]
        for name in dict.fromkeys(row["program"] for row in result["records"])
    ]
    text = (
        f"**Accelerators: estimates, nothing was run on one.** Compiled by XLA for devices that this machine lacks "
        f"(jax {result['jax']}, `python -m benchmarks.aot`): time of one call, share of the bfloat16 peak, temporary "
        "memory; for studies, repetitions a second and the share of time that is kernel launches. GPU: the largest of "
        "traffic, products and launch of every kernel. TPU: the cycles that the compiler states. "
        f"Before: h200 at {result['before']['commit']}. All programs have no double precision, no callback, and "
        "no call of a library but the compiler's."
    )
    return f"{text}\n\n{markdown_table(['program', 'h200 before', *targets], rows)}"


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if "refused" in row:
        return "does not fit"
    if row["program"].startswith(("resample", "joint")):
        share = row["launch_seconds"] / row["seconds"]
        launches = f", {share:.0%} launches" if row["target"].startswith("h") else ""
        return f"{row['rate'] / 1e6:.3g} M/s{launches}"
    seconds = row["seconds"]
    time = f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
    if not row["flops"]:
        return time
    over = "" if row["fits"] else ", does not fit"
    return f"{time}, {row['share_of_peak']:.0%}, {row['temporary'] / 2**30:.1f} GiB{over}"


def precision(result: dict[str, Any]) -> str:
    """Errors of scores."""
    rows = [
        [
            row["precision"],
            f"`{row['score']}`",
            f"{row['median error']:.1e}",
            f"{row['largest error']:.1e}",
            f"{row['largest error / s.d. over texts']:.1e}",
        ]
        for row in result["rows"]
    ]
    text = (
        f"**Precision.** What narrower products do to the scores of {result['texts']} texts under the demonstration's "
        f"model, against float32 arithmetic on the same weights (`{result['command']}`; emulated on a CPU)."
    )
    header = ["weights and products", "score", "median error", "largest error", "largest error / s.d. over texts"]
    return f"{text}\n\n{markdown_table(header, rows)}"
