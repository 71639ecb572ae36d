"""Tables about accelerators: measurements, estimates by compiling, and what narrower products do to scores."""

from __future__ import annotations

from typing import Any

from tdd.report.page import markdown_table

__all__ = ["aot", "measured", "precision"]


def measured(result: dict[str, Any]) -> str:
    """`python -m benchmarks device --out benchmarks/results/device.json`: programs, their estimates, and torch."""
    rows = [
        [row["program"], _absent(row), "", "", *_peer(row)] if _absent(row) else _measured_cells(row)
        for row in result["rows"]
    ]
    beside = (
        f"{result['peer']} on the same device, its fastest way, with random weights of the same shape and type; every "
        "way agreed with ours in float32 on a small model first; a float32 model's products are those of float32 in "
        "both, and TF32's in torch where the way says so"
        if result["peer"]
        else f"no peer: {result['no_peer']}"
    )
    late = f" Not measured: {'; '.join(result['left_out'])}." if result["left_out"] else ""
    calls = f", in {result['calls']} calls" if result.get("calls", 1) > 1 else ""
    estimates = f" Estimates: {result['estimates']}." if result.get("estimates") else ""
    before = "; ".join(
        f"{one['program']}: {_time(one['seconds'])} ({one['device']})" for one in result.get("before", ())
    )
    before = f" Before {result['change']}: {before}." if before else ""
    tests = f" Tests that need an accelerator: {result['tests']}." if result.get("tests") else ""
    text = (
        f"**Accelerators: measured.** {result['device']}, jax {result['jax']} (`python -m benchmarks device`{calls}): "
        f"medians of interleaved rounds after the first call; share of the bfloat16 peak. Beside: {beside}.{late}"
        f"{estimates}{before}{tests}"
    )
    header = ["program", "time", "share of peak", "estimate / measured", "torch", "times as fast as torch"]
    return f"{text}\n\n{markdown_table(header, rows)}"


def _absent(row: dict[str, Any]) -> str:
    """Why a program was not timed, or ""."""
    return "does not fit" if "refused" in row else row.get("failed", "")


def _measured_cells(row: dict[str, Any]) -> list[str]:
    share, estimate = row.get("share_of_peak"), row.get("estimated / measured")
    return [
        row["program"],
        _time(row["seconds"]),
        f"{share:.0%}" if share else "",
        f"{estimate:.2f}" if estimate else "",
        *_peer(row),
    ]


def _peer(row: dict[str, Any]) -> list[str]:
    """The fastest of torch's ways, with and without TF32, and how often ours runs meanwhile; or why there is none."""
    ways = row.get("peer") or {}
    timed = {name: way for name, way in ways.items() if "seconds" in way}
    if not timed:
        return ["; ".join(dict.fromkeys(way["refused"] for way in ways.values())), ""]
    kinds = [[name for name in timed if name.endswith("TF32") == rounded] for rounded in (False, True)]
    fastest = [min(names, key=lambda name: timed[name]["seconds"]) for names in kinds if names]
    return [
        "; ".join(f"{_time(timed[name]['seconds'])} ({name})" for name in fastest),
        "; ".join(f"{timed[name]['peer / ours']:.2f}×" for name in fastest),
    ]


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
        f"**Accelerators: estimates.** Compiled by XLA for devices that this machine lacks "
        f"(jax {result['jax']}, `python -m benchmarks.aot`): time of one call, share of the bfloat16 peak, temporary "
        "memory; for studies, repetitions a second and the share of time that is kernel launches. GPU: the largest of "
        "traffic, products and launch of every kernel. TPU: the cycles that the compiler states. "
        f"Before: h200 at {result['before']['commit']}. All programs have no double precision, no callback, and "
        "no call but of the compiler's libraries and of the kernels below. An empty cell in the column before was not "
        "compiled. Gradient norms of several texts that do not fit are computed one text at a time by `microbatch=1`. "
        "The rows of float32 models were compiled when their trunk still took TF32 or bfloat16 factors, those of "
        "studies of a pool when loops of XLA's filled their tables."
    )
    return f"{text}\n\n{markdown_table(['program', 'h200 before', *targets], rows)}\n\n{_fused(result, records)}"


def _fused(result: dict[str, Any], records: dict[tuple[str, str], dict[str, Any]]) -> str:
    """Programs with XLA's forms of attention and of the head, and with one kernel for each."""
    rows = []
    for row in result["unfused"]:
        now = records[row["program"], row["target"]]["seconds"]
        times = [row["seconds"], now]
        rows.append(
            [row["program"], row["target"], *(f"{1e3 * time:.3g} ms" for time in times), f"{times[0] / now:.2f}×"]
        )
    text = (
        "**One kernel for the head, and one for attention: estimates.** `kernels/token_stats_fused.py` runs where the "
        "platform is a GPU or a TPU and takes the model (16 bits on a GPU; float32 too on a TPU), JAX's splash "
        "attention on TPUs for 16-bit models. XLA states no cycles for either. The head's time is that of its products "
        "at the rate of other products, and then of 26 instructions (GPU, counted in its PTX, which spills nothing) or "
        "5 bundles for 1,024 (TPU, v5e's final schedule) a logit; splash attention's is 8.2 bundles for 1,024 visible "
        "logits, its products included, and 2.5 times that backward. Stalls are not in them."
    )
    return f"{text}\n\n{markdown_table(['program', 'target', 'XLA alone', 'with kernels', 'times as fast'], rows)}"


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if "refused" in row:
        return "does not fit"
    if row["program"].startswith(("resample", "joint")):
        share = row["launch_seconds"] / row["seconds"]
        launches = f", {share:.0%} launches" if row["target"].startswith("h") else ""
        return f"{row['rate'] / 1e6:.3g} M/s{launches}"
    time = _time(row["seconds"])
    if not row["flops"]:
        return time
    over = "" if row["fits"] else ", does not fit"
    return f"{time}, {row['share_of_peak']:.0%}, {row['temporary'] / 2**30:.1f} GiB{over}"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


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
