"""Power against the share of targets, by level; power of tests of canonical order against their cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tdd.report.plots import sheet

__all__ = ["exchange_sheet", "power_sheet"]

_MOST = 5  # rows of panels
_WANTED: dict[str, Any] = {"color": "#777777", "linewidth": 1.1, "linestyle": (0, (1, 2)), "zorder": 1}


def power_sheet(plan: Any) -> sheet.Sheet:
    """One row for every n and m: the power with its spread on the left, the chance of a right selection on the right.

    Args:
      plan: `PowerPlan`; every audit that was computed is drawn, those of the search among them.
    """
    about = plan.about
    sizes = list(dict.fromkeys((row["num_calibration"], row["num_tests"]) for row in plan.rows))
    alphas = about["alphas"]
    legend: dict[str, Any] = {f"α = {alpha:g}": sheet.line(sheet.stroke(i)) for i, alpha in enumerate(alphas)}
    legend["10 to 90 % of the audits"] = Patch(facecolor=sheet.stroke(0).colour, alpha=0.16)
    legend["wanted"] = Line2D([], [], **_WANTED)
    hollow = any(row["extrapolated"] for row in plan.curve)
    if hollow:
        legend["extrapolated"] = Line2D([], [], color=sheet.INK, marker="o", markerfacecolor="white", linestyle="")
    more = "" if len(sizes) <= _MOST else f" The tables have {len(sizes) - _MOST} more pairs of sizes."
    with sheet.style():
        drawn = sheet.sheet(
            f"What an audit with {about['method']} may expect",
            f"Scores: {about['source']}. Error bars: ± 2 s.e. of the simulation.{more}",
            rows=min(len(sizes), _MOST),
            columns=2,
            legend=legend,
            height=2.35 if len(sizes) == 1 else 1.8,
            foot=0.34,
        )
        for (n, m), (left, right) in zip(sizes, drawn.panels, strict=False):
            of_sizes = [row for row in plan.curve if (row["num_calibration"], row["num_tests"]) == (n, m)]
            for i, alpha in enumerate(alphas):
                rows = [row for row in of_sizes if row["alpha"] == alpha]
                _curve(left, rows, "power", sheet.stroke(i), band=True)
                _curve(right, rows, "any_true", sheet.stroke(i), band=False)
            own = f"m = {m:,}" if about["method"].startswith("ktd/") else f"n = {n:,}, m = {m:,}"
            left.set_title(f"expected power, {own}", loc="left", color=sheet.INK)
            right.set_title(f"P(any right selection), {own}", loc="left", color=sheet.INK)
            for axes, name in ((left, "power"), (right, "any_true")):
                axes.axhline(about["wanted"][name], **_WANTED)
                _drop_lines(axes, plan, (n, m), name)
                axes.set_ylim(-0.02, 1.04)
                _share_axis(axes, of_sizes)
        for axes in drawn.panels[-1]:
            axes.set_xlabel(f"share of {about['targets']} among the candidates")
    return drawn


def _curve(axes: Any, rows: Sequence[Mapping[str, Any]], name: str, look: sheet.Stroke, *, band: bool) -> None:
    """One level over the shares."""
    shares, values, errors = (
        np.array([row[key] for row in rows], float) for key in ("num_targets", name, f"{name}_se")
    )
    shares = shares / np.array([row["num_tests"] for row in rows])
    if band:
        low, high = (np.array([row[f"power_{q}"] for row in rows]) for q in ("q10", "q90"))
        axes.fill_between(shares, low, high, color=look.colour, alpha=0.12, linewidth=0)
    axes.plot(shares, values, color=look.colour, linestyle=look.dashes, zorder=3)
    guessed = np.array([row["extrapolated"] for row in rows])
    spread = _apart(shares)
    axes.errorbar(
        shares[spread], values[spread], 2 * errors[spread], color=look.colour, linestyle="", elinewidth=0.8, capsize=2
    )
    for chosen, face in ((spread & ~guessed, look.colour), (spread & guessed, "white")):
        axes.plot(
            shares[chosen], values[chosen], color=look.colour, marker=look.marker, markerfacecolor=face, linestyle="",
            zorder=4,
        )  # fmt: skip


def _drop_lines(axes: Any, plan: Any, sizes: tuple[int, int], criterion: str) -> None:
    """From the curve down to the smallest detectable share of each level."""
    for row in plan.smallest:
        if (row["num_calibration"], row["num_tests"], row["criterion"]) == (*sizes, criterion) and row["num_targets"]:
            look = sheet.stroke(plan.about["alphas"].index(row["alpha"]))
            place = [row["target_share"]] * 2
            axes.plot(place, (-0.02, row["wanted"]), color=look.colour, linestyle=look.dashes, linewidth=0.8, zorder=2)


def _apart(shares: np.ndarray) -> np.ndarray:
    """Which places get a marker: the steps of a search lie too close together for all of them."""
    kept, last = np.zeros(shares.size, bool), 0.0
    for i, share in enumerate(shares):
        if i in (0, shares.size - 1) or share > 1.25 * last:
            kept[i], last = True, float(share)
    return kept


def _share_axis(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Logarithmic where the shares span more than a factor of ten, in per cent."""
    shares = [row["num_targets"] / row["num_tests"] for row in rows]
    low, high = min(shares), max(shares)
    if high / low < 10:
        axes.set_xlim(0, min(1.02, high * 1.05))
        ticks = [tick for tick in (0, 0.2, 0.4, 0.6, 0.8, 1.0) if tick <= high * 1.05]
    else:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.2, high * 1.2)
        ticks = [tick for tick in (1e-4, 1e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if low / 1.2 <= tick <= high * 1.2]
        axes.minorticks_off()
    axes.set_xticks(ticks, [f"{100 * tick:g} %" for tick in ticks])


def exchange_sheet(plan: Any) -> sheet.Sheet:
    """One row for every test and level: power, and the smallest detectable effect, against the number of model calls.

    Args:
      plan: `ExchangePlan`.
    """
    about = plan.about
    kinds = [(name, alpha) for name in about["tests"] for alpha in about["alphas"]]
    shards = sorted({row["num_shards"] for row in plan.rows})
    searched = any(row["smallest_effect"] is not None for row in plan.rows)
    legend: dict[str, Any] = {f"{r} shards": sheet.line(sheet.stroke(i)) for i, r in enumerate(shards)}
    legend["wanted power"] = Line2D([], [], **_WANTED)
    more = "" if len(kinds) <= _MOST else f" The tables have {len(kinds) - _MOST} more pairs of test and level."
    with sheet.style():
        drawn = sheet.sheet(
            "What a test of canonical order may expect, by its cost",
            f"Shards: {about['source']}. Along a line k, the number of shuffles, grows. Bars: ± 2 s.e.{more}",
            rows=min(len(kinds), _MOST),
            columns=2 if searched else 1,
            legend=legend,
            height=2.35 if len(kinds) == 1 else 1.8,
            foot=0.34,
            share_y=False,
        )
        for (name, alpha), panels in zip(kinds, drawn.panels, strict=False):
            for i, r in enumerate(shards):
                rows = [row for row in plan.rows if (row["test"], row["alpha"], row["num_shards"]) == (name, alpha, r)]
                rows = sorted(rows, key=lambda row: row["num_shuffles"])
                _against_calls(panels, rows, sheet.stroke(i))
            panels[0].axhline(about["wanted"], **_WANTED)
            panels[0].set_ylim(-0.02, 1.04)
            panels[0].set_title(f"power of {name}, α = {alpha:g}", loc="left", color=sheet.INK)
            if searched:
                panels[1].set_title(f"smallest effect with power {about['wanted']:g}, sd", loc="left", color=sheet.INK)
                panels[1].set_ylim(bottom=0)
            for axes in panels:
                _calls_axis(axes, [float(row["calls"]) for row in plan.rows])
        for axes in drawn.panels[-1]:
            axes.set_xlabel("model calls")
    return drawn


def _calls_axis(axes: Any, calls: Sequence[float]) -> None:
    """Logarithmic, with whole numbers."""
    axes.set_xscale("log")
    low, high = min(calls) / 1.25, max(calls) * 1.9
    axes.set_xlim(low, high)
    steps = (1, 2, 5) if high / low < 200 else (1,)
    ticks = [step * 10**power for power in range(9) for step in steps if low <= step * 10**power <= high]
    axes.minorticks_off()
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])


def _against_calls(panels: Sequence[Any], rows: Sequence[Mapping[str, Any]], look: sheet.Stroke) -> None:
    """The settings of one number of shards."""
    calls, power, errors = (np.array([row[key] for row in rows], float) for key in ("calls", "power", "power_se"))
    style = {"color": look.colour, "marker": look.marker, "linestyle": look.dashes, "elinewidth": 0.8, "capsize": 2}
    panels[0].errorbar(calls, power, 2 * errors, **style)
    for row in rows:
        panels[0].annotate(
            f"k = {row['num_shuffles']}",
            (row["calls"], row["power"]),
            (4, -7),
            textcoords="offset points",
            fontsize=6.5,
            color=sheet.INK,
            va="top",
        )
    if len(panels) < 2:
        return
    found = [row for row in rows if row["smallest_effect"] is not None]
    middle = np.array([row["smallest_effect"] for row in found], float)
    ends = [
        np.array([middle[i] if row[key] is None else row[key] for i, row in enumerate(found)], float)
        for key in ("smallest_effect_low", "smallest_effect_high")
    ]
    spread = np.maximum([middle - ends[0], ends[1] - middle], 0) if found else None
    panels[1].errorbar([row["calls"] for row in found], middle, spread, **style)
