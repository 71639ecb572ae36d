"""Tables about the test of canonical order and the laboratory, for the page of the benchmarks."""

from __future__ import annotations

import pathlib
from typing import Any

from benchmarks.reproductions.run import number_or_words
from tdd.report.page import markdown_table

__all__ = ["reproduction", "speed", "tests"]

_SHOWN = {"exchangeability": 4}  # how many tables of a reproduction, where more than the last two
_REPRODUCTIONS = pathlib.Path(__file__).parent / "results" / "reproductions"


def tests(result: dict[str, Any]) -> str:
    """The tests against each other, and what stopping early saves."""
    alpha, tests = 0.01, ("combined", "rank_sum", "exact", "t", "permutation")
    cells = {
        (row["panel"], row["num_shards"], row["num_shuffles"], row["method"].partition("/")[2]): row
        for row in result["rows"]
        if row["alpha"] == alpha
    }
    rows = []
    for panel, r, k in dict.fromkeys(key[:3] for key in cells):
        for field in ("size", "power") if panel != "few shards" else ("power",):
            found = [f"{cells[panel, r, k, test][field]:.{4 if field == 'size' else 2}f}" for test in tests]
            rows.append([f"{panel}, r = {r}, k = {k}: {field}", *found])
    error = max(row["size_se"] for row in cells.values())
    text = (
        f"**Tests of canonical order.** Size (of {max(row['repetitions'] for row in cells.values()):,} repetitions, "
        f"standard errors at most {error:.4f}) and power at α = {alpha}; {result['design']} "
        "(`benchmarks/exchange_tests.py`)."
    )
    parts = [f"{text}\n\n{markdown_table(['shards', *tests], rows)}"]
    sequential = result["sequential"]
    levels = sorted({row["alpha"] for row in sequential["rows"]}, reverse=True)
    wanted: dict[tuple[str, str], dict[float, dict[str, Any]]] = {}
    for row in sequential["rows"]:
        if row["gives_up"] or row["rule"].startswith("all"):
            wanted.setdefault((f"{row['setting']}, {row['law']}", row["rule"]), {})[row["alpha"]] = row
    rows = [
        [*name, *(f"{found[level]['rejects']:.3f} / {found[level]['shuffles']:.1f}" for level in levels)]
        for name, found in wanted.items()
    ]
    text = (
        f"**Stopping early.** Share of data sets rejected / mean number of shuffles a shard, "
        f"{sequential['num_shards']} shards and {sequential['horizon']} shuffles at most; a rule stops if it rejects, "
        f"or once {sequential['num_exceedances']} shuffles of the whole reach the canonical order; "
        f"{sequential['rows'][0]['repetitions']:,} repetitions. Besag and Clifford's rule stops for the latter alone."
    )
    parts.append(f"{text}\n\n{markdown_table(['planted', 'rule', *(f'α = {level}' for level in levels)], rows)}")
    return "\n\n".join(parts)


def speed(result: dict[str, Any]) -> str:
    """Sequences a second beside the reference way, and model calls until a case is clear."""
    machine, rows = result["machine"], result["throughput"]["rows"]
    cells = [
        [
            row["run"], f"{row['tdd sequences/s']:.2f}", f"{row['torch sequences/s']:.2f}", f"{row['ratio']:.2f}×",
            f"{row['tdd tokens a sequence']:,.0f} / {row['torch tokens a sequence']:,.0f}",
            f"{row['largest error']:.0e}",
        ]
        for row in rows
    ]  # fmt: skip
    text = (
        f"**Orders through a model.** Shards of {rows[0]['tokens of the shard']} tokens (in the last row "
        f"{rows[-1]['tokens of the shard']:,}) under a model of GPT-2-small's size (random weights, float32, "
        f"{machine['cores']} cores of {machine['processor']}), beside the reference way: torch, one sequence at a "
        f"time, windows of the context with half of it as stride; interleaved in {result['rounds']} rounds after the "
        "sums agreed. *permuted*: share of each shard that is shuffled, the rest of it computed once "
        "(`benchmarks/exchange.py`)."
    )
    header = ["orders", "tdd sequences/s", "torch sequences/s", "ratio", "tokens a sequence", "largest difference"]
    parts = [f"{text}\n\n{markdown_table(header, cells)}"]
    calls = [
        [
            f"{row['share permuted']:g}", f"{row['way']}: k = {row['shuffles']}", f"{row['calls']:,}",
            f"{row['calls / fixed']:.3f}", f"{row['tokens / fixed']:.3f}", f"{row['p_value']:.1e}",
            "yes" if row["reached"] else "no",
        ]
        for row in result["calls"]
    ]  # fmt: skip
    training = result["training"]
    text = (
        f"**Model calls until p < .001.** A set of 1,000 examples planted 50 times in a model of "
        f"{training['parameters']:,} parameters; 50 shards; calls and tokens as shares of the fixed design's 2,550. "
        f"*fixed*: the combined test on shuffles whose number was chosen beforehand; the paper's t on all calls: p = "
        f"{result['calls'][0]['p_value of t']:.4f}."
    )
    header = ["share permuted", "way", "calls", "of the fixed design's", "tokens", "p-value", "p < .001"]
    parts.append(f"{text}\n\n{markdown_table(header, calls)}")
    power = [
        [
            str(row["shards"]), f"{row['share permuted']:g}", str(row["shuffles"]), f"{row['tokens of a shard']:g}",
            f"{row['effect, sd']:.2f}", f"{row['power, combined']:.3f}", f"{row['power, t']:.3f}",
        ]
        for row in result["power"]
    ]  # fmt: skip
    text = (
        "**What permuting a part costs in power.** Small designs drawn from the shards of sets planted 10 times; "
        "tokens in units of a shard's; α = .01. A share permuted is to be compared with fewer shuffles of whole shards "
        "for as many tokens."
    )
    header = ["shards", "share permuted", "shuffles", "tokens", "effect, sd", "power, combined", "power, t"]
    parts.append(f"{text}\n\n{markdown_table(header, power)}")
    return "\n\n".join(parts)


def reproduction(result: dict[str, Any]) -> str:
    """One experiment of the laboratory: its tables and its figure."""
    seed, scale = (result["provenance"][field] for field in ("seed", "scale"))
    command = f"python -m benchmarks reproduce {result['name']} --seed {seed} --scale {scale:g}"
    lines = [
        f"**{result['title']}.** `{command}`, {result['seconds']:,.0f} s on two shared cores; "
        f"[all tables](results/reproductions/{result['name']}/tables.md)."
    ]
    told = {title: rows for title, rows in result["tables"].items() if "models" not in title.lower()}
    for title, rows in [*told.items()][-_SHOWN.get(result["name"], 2) :]:
        header = list(dict.fromkeys(name for row in rows for name in row))
        cells = [[number_or_words(row.get(name)) for name in header] for row in rows]
        lines.append(f"{title}:\n\n{markdown_table(header, cells)}")
    for place in sorted((_REPRODUCTIONS / result["name"]).glob("figure*.png"), key=lambda place: place.stem):
        shown = place.stem.removeprefix("figure").replace("-", ", by ", 1)
        lines.append(f"![{result['title']}{shown}](results/reproductions/{result['name']}/{place.name})")
    return "\n\n".join(lines)
