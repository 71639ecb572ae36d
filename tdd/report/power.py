"""The terminal report of a power plan: expected results, and the smallest fraction or effect that is detected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from tdd.report.sections import plain_text

__all__ = ["exchange_table", "power_table", "render_exchange", "render_power", "smallest_table"]

_CRITERIA = {"power": "expected power ≥ {:g}", "any_true": "P(a right selection) ≥ {:g}"}
_SMALLEST = (
    "The interval is that of the simulation: where the curve plus and minus two standard errors reaches what is wanted."
)


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
    return Group(*parts, *_closing(about))


def power_table(plan: Any) -> Table:
    """One row for every n, m, fraction of targets and level."""
    table = Table(header_style="bold")
    targets = "clean" if plan.about["null"] == "member" else "members"
    knockoffs = _has_knockoffs(plan)
    heads = [
        "n", "m", targets, "α", "power ± s.e.", "10-90 %", "FDP ± s.e.", "P(any)", "P(any right)", "selected",
        "10-90 %", "fewest", "draws",
    ]  # fmt: skip
    _add_columns(table, heads[knockoffs:], left=("draws",))
    sizes: Any = None
    for row in plan.rows:
        if sizes not in (None, (row["num_calibration"], row["num_tests"])):
            table.add_section()
        sizes = (row["num_calibration"], row["num_tests"])
        fewest = row["min_selections"]
        cells = [
            f"{row['num_calibration']:,}",
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
        table.add_row(*map(plain_text, cells[knockoffs:]), style="yellow" if row["extrapolated"] else None)
    return table


def smallest_table(plan: Any) -> Table:
    """The smallest detectable fraction, by n, m, level and criterion."""
    title = f"Smallest detectable share of {plan.about['targets']}"
    table = Table(title=title, title_justify="left", header_style="bold")
    knockoffs = _has_knockoffs(plan)
    _add_columns(table, ["n", "m", "α", "wanted", "share", "interval", "items"][knockoffs:], left=("wanted",))
    table.add_column("reached there")
    for row in plan.smallest:
        cells = [f"{row['num_calibration']:,}", f"{row['num_tests']:,}", f"{row['alpha']:g}"]
        cells.append(_CRITERIA[row["criterion"]].format(row["wanted"]))
        reached = _measured(row["value"], row["value_se"])
        if row["num_targets"] is None:
            cells += ["none", "", "", f"{reached} at most: {row['reason']}"]
        else:
            high = "-" if row["target_share_high"] is None else _percent(row["target_share_high"])
            notes = ("extrapolated" if row["extrapolated"] else "", row["reason"])
            cells += [
                _percent(row["target_share"]),
                f"{_percent(row['target_share_low'])} to {high}",
                f"{row['num_targets']:,}",
                ", ".join([reached, *filter(None, notes)]),
            ]
        table.add_row(*map(plain_text, cells[knockoffs:]))
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
    for choice in plan.cheapest:
        row, setting = choice["row"], "none of these settings"
        if row is not None:
            setting = f"{row['num_shards']} shards with {row['num_shuffles']} shuffles, {row['calls']:,.0f} model calls"
            setting += "" if row["tokens"] is None else f", {row['tokens']:,.0f} tokens"
        test = f"{choice['test']} at α = {choice['alpha']:g}"
        parts.append(plain_text(f"Cheapest for power {about['wanted']:g}: {test}: {setting}."))
    return Group(*parts, *_closing(about))


def exchange_table(plan: Any) -> Table:
    """One row for every number of shards and shuffles, test and level, the cheapest first."""
    table = Table(header_style="bold")
    tokens = plan.about["shard_tokens"] is not None
    searched = any(row["smallest_effect"] is not None for row in plan.rows)
    heads = ["model calls", *(["tokens"] if tokens else []), "shards r", "shuffles k", "test", "α", "power ± s.e."]
    heads += ["smallest effect, sd", "interval"] if searched else []
    _add_columns(table, [*heads, "smallest p", ""], left=("test", ""))
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
            effect, low, high = (row[f"smallest_effect{end}"] for end in ("", "_low", "_high"))
            interval = "" if effect is None else f"{low:.2f}-{'' if high is None else f'{high:.2f}'}"
            cells += ["none" if effect is None else f"{effect:.2f}", interval]
        cells += ["0" if floor == -math.inf else f"1e{floor:.1f}", "extrapolated" if row["extrapolated"] else ""]
        cheapest = any(choice["row"] is row for choice in plan.cheapest)
        table.add_row(*map(plain_text, cells), style="bold" if cheapest else None)
    return table


def _add_columns(table: Table, heads: list[str], *, left: tuple[str, ...]) -> None:
    for name in heads:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)


def _has_knockoffs(plan: Any) -> bool:
    """Whether the audits have knockoffs in place of calibration items."""
    return plan.about["method"].startswith("ktd/")


def _caption(plan: Any) -> str:
    counts = sorted({row["repetitions"] for row in plan.rows})
    repetitions = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return (
        f"{repetitions} simulated audits a row. Power: share of {plan.about['targets']} that is selected, mean and "
        'spread; P(any): of any selection; "fewest": selections that the sizes allow at least.'
    )


def _closing(about: Mapping[str, Any]) -> list[RenderableType]:
    """The warnings, the seed and the time."""
    warnings = [plain_text(f"! {words[:1].upper()}{words[1:]}.", "yellow") for words in about["warnings"]]
    return [*warnings, plain_text(f"Seed {about['seed']}, {about['seconds']:.1f} s.")]


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g} %"


def _measured(mean: float, error: float) -> str:
    return f"{mean:.3f} ± {error:.3f}"
