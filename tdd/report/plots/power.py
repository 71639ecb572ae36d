"""Power against the fraction of targets, by level; power of tests of canonical order against their cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tdd.report.plots import sheet

_MOST = 5  # rows of panels
_TICKS = (1e-4, 1e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def power_sheet(plan: Any) -> sheet.Sheet:
    """One row for every n and m: the power with its spread on the left, the chance of a right selection on the right.

    Every audit of the `PowerPlan` that was simulated is drawn, those of the search included.
    """
    about = plan.about
    alphas = about["alphas"]
    sizes = list(dict.fromkeys((row["num_calibration"], row["num_tests"]) for row in plan.rows))
    legend: dict[str, Any] = {f"α = {alpha:g}": sheet.line(sheet.stroke(i)) for i, alpha in enumerate(alphas)}
    legend["10 to 90% of the audits"] = Patch(facecolor=sheet.stroke(0).colour, alpha=0.16)
    legend["wanted"] = sheet.level_line()
    if any(row["extrapolated"] for row in plan.curve):
        legend["extrapolated"] = Line2D([], [], color=sheet.INK, marker="o", markerfacecolor="white", linestyle="")
    title, caption = f"What an audit with {about['method']} may expect", f"Scores: {about['source']}."
    with sheet.style():
        drawn = _page(title, f"{caption} Error bars: ± 2 s.e. of the simulation.", legend, len(sizes), "sizes")
        for (n, m), panels in zip(sizes, drawn.panels, strict=False):
            rows = [row for row in plan.curve if (row["num_calibration"], row["num_tests"]) == (n, m)]
            named = f"m = {m:,}" if about["method"].startswith("ktd/") else f"n = {n:,}, m = {m:,}"
            titles = {"power": f"expected power, {named}", "any_true": f"P(any right selection), {named}"}
            for axes, (criterion, title) in zip(panels, titles.items(), strict=True):
                for i, alpha in enumerate(alphas):
                    _curve(axes, [row for row in rows if row["alpha"] == alpha], criterion, sheet.stroke(i))
                axes.set_title(title, loc="left", color=sheet.INK)
                axes.axhline(about["wanted"][criterion], **sheet.LEVEL)
                _drop_lines(axes, plan, (n, m), criterion)
                axes.set_ylim(-0.02, 1.04)
                _fraction_axis(axes, rows)
        for axes in drawn.panels[-1]:
            axes.set_xlabel(f"fraction of {about['targets']} among the candidates")
    return drawn


def _page(title: str, caption: str, legend: Any, rows: int, pairs: str, columns: int = 2, **layout: Any) -> sheet.Sheet:
    """Empty panels, a row for each of the first pairs."""
    more = "" if rows <= _MOST else f" The tables have {rows - _MOST} more pairs of {pairs}."
    height = 2.35 if rows == 1 else 1.8
    shape = {"rows": min(rows, _MOST), "columns": columns, "height": height, "foot": 0.34}
    return sheet.sheet(title, f"{caption}{more}", legend=legend, **shape, **layout)


def _curve(axes: Any, rows: Sequence[Mapping[str, Any]], criterion: str, look: sheet.Stroke) -> None:
    """One level over the fractions of targets, the power with its spread."""

    def column(name: str) -> np.ndarray:
        return np.array([row[name] for row in rows], float)

    fractions, values = column("num_targets") / column("num_tests"), column(criterion)
    if criterion == "power":
        low, high = column("power_q10"), column("power_q90")
        axes.fill_between(fractions, low, high, color=look.colour, alpha=0.12, linewidth=0)
    axes.plot(fractions, values, color=look.colour, linestyle=look.dashes, zorder=3)
    marked = _marked(fractions)
    errors = 2 * column(f"{criterion}_se")[marked]
    bars: dict[str, Any] = {"color": look.colour, "linestyle": "", "elinewidth": 0.8, "capsize": 2}
    axes.errorbar(fractions[marked], values[marked], errors, **bars)
    extrapolated = column("extrapolated") > 0
    for chosen, face in ((marked & ~extrapolated, look.colour), (marked & extrapolated, "white")):
        markers: dict[str, Any] = {"color": look.colour, "marker": look.marker, "markerfacecolor": face}
        axes.plot(fractions[chosen], values[chosen], linestyle="", zorder=4, **markers)


def _drop_lines(axes: Any, plan: Any, sizes: tuple[int, int], criterion: str) -> None:
    """Lines from the curve down to the smallest detectable fraction of each level."""
    for row in plan.smallest:
        if (row["num_calibration"], row["num_tests"], row["criterion"]) == (*sizes, criterion) and row["num_targets"]:
            look = sheet.stroke(plan.about["alphas"].index(row["alpha"]))
            place = [row["target_share"]] * 2
            axes.plot(place, (-0.02, row["wanted"]), color=look.colour, linestyle=look.dashes, linewidth=0.8, zorder=2)


def _marked(fractions: np.ndarray) -> np.ndarray:
    """The places with a marker: the steps of a search lie too close together for all of them."""
    marked, last = np.zeros(fractions.size, bool), 0.0
    for i, fraction in enumerate(fractions):
        if i in (0, fractions.size - 1) or fraction > 1.25 * last:
            marked[i], last = True, float(fraction)
    return marked


def _fraction_axis(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """In per cent; logarithmic where the fractions span more than a factor of ten."""
    fractions = [row["num_targets"] / row["num_tests"] for row in rows]
    low, high = min(fractions), max(fractions)
    if high / low < 10:
        axes.set_xlim(0, min(1.02, high * 1.05))
        ticks = [tick for tick in (0, 0.2, 0.4, 0.6, 0.8, 1.0) if tick <= high * 1.05]
    else:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.2, high * 1.2)
        ticks = [tick for tick in _TICKS if low / 1.2 <= tick <= high * 1.2]
        axes.minorticks_off()
    axes.set_xticks(ticks, [f"{100 * tick:g}%" for tick in ticks])


def exchange_sheet(plan: Any) -> sheet.Sheet:
    """One row for every test and level of an `ExchangePlan`: power and smallest effect against the model calls."""
    about = plan.about
    tests = [(name, alpha) for name in about["tests"] for alpha in about["alphas"]]
    shards = sorted({row["num_shards"] for row in plan.rows})
    searched = any(row["smallest_effect"] is not None for row in plan.rows)
    legend: dict[str, Any] = {f"{r} shards": sheet.line(sheet.stroke(i)) for i, r in enumerate(shards)}
    legend["wanted power"] = sheet.level_line()
    title = "What a test of canonical order may expect, by its cost"
    caption = f"Shards: {about['source']}. Along a line k, the number of shuffles, grows. Bars: ± 2 s.e."
    layout = {"columns": 2 if searched else 1, "share_y": False}
    with sheet.style():
        drawn = _page(title, caption, legend, len(tests), "test and level", **layout)
        for (name, alpha), panels in zip(tests, drawn.panels, strict=False):
            for i, r in enumerate(shards):
                rows = [row for row in plan.rows if (row["test"], row["alpha"], row["num_shards"]) == (name, alpha, r)]
                _against_calls(panels, sorted(rows, key=lambda row: row["num_shuffles"]), sheet.stroke(i))
            panels[0].axhline(about["wanted"], **sheet.LEVEL)
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


def _against_calls(panels: Sequence[Any], rows: Sequence[Mapping[str, Any]], look: sheet.Stroke) -> None:
    """The settings of one number of shards."""
    calls, power, errors = (np.array([row[key] for row in rows], float) for key in ("calls", "power", "power_se"))
    style = {"color": look.colour, "marker": look.marker, "linestyle": look.dashes, "elinewidth": 0.8, "capsize": 2}
    panels[0].errorbar(calls, power, 2 * errors, **style)
    text: dict[str, Any] = {"textcoords": "offset points", "fontsize": 6.5, "color": sheet.INK, "va": "top"}
    for row in rows:
        panels[0].annotate(f"k = {row['num_shuffles']}", (row["calls"], row["power"]), (4, -7), **text)
    if len(panels) < 2:
        return
    detected = [row for row in rows if row["smallest_effect"] is not None]
    effects = [row["smallest_effect"] for row in detected]
    low, high = (
        [row["smallest_effect"] if row[end] is None else row[end] for row in detected]
        for end in ("smallest_effect_low", "smallest_effect_high")
    )
    bars = [np.maximum(np.subtract(effects, low), 0), np.maximum(np.subtract(high, effects), 0)]
    panels[1].errorbar([row["calls"] for row in detected], effects, bars, **style)


def _calls_axis(axes: Any, calls: Sequence[float]) -> None:
    """Logarithmic, with whole numbers."""
    axes.set_xscale("log")
    low, high = min(calls) / 1.25, max(calls) * 1.9
    axes.set_xlim(low, high)
    steps = (1, 2, 5) if high / low < 200 else (1,)
    ticks = [step * 10**power for power in range(9) for step in steps if low <= step * 10**power <= high]
    axes.minorticks_off()
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
