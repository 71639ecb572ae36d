"""The terminal report of a power plan: what an audit may expect, and the smallest share that it detects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from tdd.report.terminal import plain_text

__all__ = ["exchange_table", "power_table", "render_exchange", "render_power", "smallest_table"]

_CRITERIA = {"power": "expected power ≥ {:g}", "any_true": "P(a right selection) ≥ {:g}"}


def render_power(plan: Any) -> RenderableType:
    """The report of a `PowerPlan`."""
    about = plan.about
    parts: list[RenderableType] = [
        plain_text(f"What an audit with {about['method']} may expect", "bold"),
        plain_text(f"Scores: {about['source']}."),
        Padding(power_table(plan), (1, 0, 0, 0)),
        plain_text(_caption(plan)),
    ]
    if plan.smallest:
        parts += [Padding(smallest_table(plan), (1, 0, 0, 0)), plain_text(_SMALLEST)]
    return Group(*parts, *_warnings(about), plain_text(_time(about)))


def power_table(plan: Any) -> Table:
    """One row for every n, m, share and level."""
    table = Table(header_style="bold")
    clean = plan.about["null"] == "member"
    knockoffs = plan.about["method"].startswith("ktd/")
    heads = [
        *(() if knockoffs else ("n",)), "m", "clean" if clean else "members", "α", "power ± s.e.", "10-90 %",
        "FDP ± s.e.", "P(any)", "P(any right)", "selected", "10-90 %", "fewest", "draws",
    ]  # fmt: skip
    for i, name in enumerate(heads):
        table.add_column(name, justify="left" if i == len(heads) - 1 else "right", no_wrap=True)
    before: Any = None
    for row in plan.rows:
        place = (row["num_calibration"], row["num_tests"])
        if before is not None and place != before:
            table.add_section()
        before = place
        fewest = row["min_selections"]
        cells = [
            *(() if knockoffs else (f"{row['num_calibration']:,}",)),
            f"{row['num_tests']:,}",
            f"{row['num_targets']:,} ({_percent(row['num_targets'] / row['num_tests'])})",
            f"{row['alpha']:g}",
            _measured(row["power"], row["power_se"]),
            f"{row['power_q10']:.2f}-{row['power_q90']:.2f}",
            _measured(row["fdp"], row["fdp_se"]),
            f"{row['any_selected']:.3f}",
            f"{row['any_true']:.3f}",
            f"{row['num_selected']:,.1f}",
            f"{row['num_selected_q10']:,.0f}-{row['num_selected_q90']:,.0f}",
            "none" if fewest > row["num_tests"] else f"{fewest:,}",
            "extrapolated" if row["extrapolated"] else row["drawn"],
        ]
        table.add_row(*map(plain_text, cells), style="yellow" if row["extrapolated"] else None)
    return table


_SMALLEST = (
    "The interval is that of the simulation: where the curve plus and minus two standard errors reaches what is wanted."
)


def smallest_table(plan: Any) -> Table:
    """The smallest detectable share, by n, m, level and criterion."""
    targets = plan.about["targets"]
    table = Table(title=f"Smallest detectable share of {targets}", title_justify="left", header_style="bold")
    knockoffs = plan.about["method"].startswith("ktd/")
    for name in (*(() if knockoffs else ("n",)), "m", "α", "wanted", "share", "interval", "items", "reached there"):
        table.add_column(
            name, justify="left" if name in ("wanted", "reached there") else "right", no_wrap=name != "reached there"
        )
    for row in plan.smallest:
        sizes = [f"{row['num_calibration']:,}", f"{row['num_tests']:,}", f"{row['alpha']:g}"][knockoffs:]
        wanted = _CRITERIA[row["criterion"]].format(row["wanted"])
        reached = _measured(row["value"], row["value_se"])
        if row["num_targets"] is None:
            table.add_row(*sizes, wanted, "none", "", "", plain_text(f"{reached} at most: {row['reason']}"))
            continue
        high = row["target_share_high"]
        interval = f"{_percent(row['target_share_low'])} to {'-' if high is None else _percent(high)}"
        note = (", extrapolated" if row["extrapolated"] else "") + (f", {row['reason']}" if row["reason"] else "")
        table.add_row(
            *sizes, wanted, _percent(row["target_share"]), interval, f"{row['num_targets']:,}", f"{reached}{note}"
        )
    return table


def render_exchange(plan: Any) -> RenderableType:
    """The report of an `ExchangePlan`."""
    about = plan.about
    parts: list[RenderableType] = [
        plain_text("What a test of canonical order may expect", "bold"),
        plain_text(f"Shards: {about['source']}."),
    ]
    if about["measured_effect"]:
        effect = about["measured_effect"]
        parts.append(
            plain_text(
                f"Measured effect, in standard deviations of a shuffle: mean {effect['mean']:.2f}, median "
                f"{effect['median']:.2f} over the shards."
            )
        )
    parts.append(Padding(exchange_table(plan), (1, 0, 0, 0)))
    parts += [plain_text(f"Cheapest for power {about['wanted']:g}: {line}.") for line in _cheapest(plan)]
    return Group(*parts, *_warnings(about), plain_text(_time(about)))


def exchange_table(plan: Any) -> Table:
    """One row for every number of shards and shuffles, test and level, the cheapest first."""
    table = Table(header_style="bold")
    tokens = plan.about["shard_tokens"] is not None
    searched = any(row["smallest_effect"] is not None for row in plan.rows)
    heads = ["model calls", *(["tokens"] if tokens else []), "shards r", "shuffles k", "test", "α", "power ± s.e."]
    heads += ["smallest effect, sd", "interval"] if searched else []
    heads += ["smallest p", ""]
    for name in heads:
        table.add_column(name, justify="left" if name in ("test", "") else "right", no_wrap=True)
    for row in plan.rows:
        floor = row["log10_floor"]
        cells = [
            f"{row['calls']:,.0f}",
            *([f"{row['tokens']:,.0f}"] if tokens else []),
            str(row["num_shards"]),
            str(row["num_shuffles"]),
            row["test"],
            f"{row['alpha']:g}",
            _measured(row["power"], row["power_se"]),
        ]
        if searched:
            found, low, high = (row[f"smallest_effect{end}"] for end in ("", "_low", "_high"))
            cells += [
                "none" if found is None else f"{found:.2f}",
                "" if found is None else f"{low:.2f}-{_number(high)}",
            ]
        cells += ["0" if floor == -math.inf else f"1e{floor:.1f}", "extrapolated" if row["extrapolated"] else ""]
        table.add_row(*map(plain_text, cells), style="bold" if _is_cheapest(plan, row) else None)
    return table


def _is_cheapest(plan: Any, row: Mapping[str, Any]) -> bool:
    return any(one["row"] is row for one in plan.cheapest)


def _cheapest(plan: Any) -> list[str]:
    lines = []
    for one in plan.cheapest:
        row = one["row"]
        told = "none of these settings"
        if row is not None:
            told = f"{row['num_shards']} shards with {row['num_shuffles']} shuffles, {row['calls']:,.0f} model calls"
            told += "" if row["tokens"] is None else f", {row['tokens']:,.0f} tokens"
        lines.append(f"{one['test']} at α = {one['alpha']:g}: {told}")
    return lines


def _caption(plan: Any) -> str:
    counts = sorted({row["repetitions"] for row in plan.rows})
    told = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return (
        f"{told} simulated audits a row. Power: share of {plan.about['targets']} that is selected, mean and spread; "
        'P(any): of any selection; "fewest": selections that the sizes allow at least.'
    )


def _time(about: Mapping[str, Any]) -> str:
    return f"Seed {about['seed']}, {about['seconds']:.1f} s."


def _warnings(about: Mapping[str, Any]) -> list[RenderableType]:
    return [plain_text(f"! {words[:1].upper()}{words[1:]}.", "yellow") for words in about["warnings"]]


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _measured(mean: float, error: float) -> str:
    return f"{mean:.3f} ± {error:.3f}"
