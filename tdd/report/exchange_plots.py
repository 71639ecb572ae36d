"""Figures of the test of canonical order: shard by shard, look by look, and many data sets at a glance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from tdd.exchange.summary import in_doubt
from tdd.report.plots import sheet
from tdd.runs.display import format_p_value, is_known

_PANELS = 12
_ALL, _SOME = sheet.stroke(1), sheet.stroke(0)
_MODEL, _CONTROL, _DOUBTED = sheet.stroke(0), sheet.stroke(1), "#777777"

_NAMED = 40
"""More data sets than this are drawn by rank, without their names."""

_LONGEST_NAME = 34

_RAISED = str.maketrans("-−0123456789", "⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def draw(run: Mapping[str, Any], shards: Mapping[str, np.ndarray]) -> sheet.Sheet:
    """The figure of a run (run.json, shards.csv): of one data set its shards (and looks), of several their p-values."""
    data = run["data"]
    if len(data) > 1:
        return _overview(run)
    entry = data[0]
    looks = entry["sequential"]["looks"] if entry["sequential"] else []
    looks = looks if len(looks) > 1 else []
    each = "1 shuffle" if entry["shuffles_used"] == 1 else f"{entry['shuffles_used']} shuffles"
    title = f"{sheet.short(entry['name'], 40)} under {sheet.short(run['model']['name'], 40)}"
    with sheet.style():
        drawn = sheet.sheet(
            f"Test of published order: {title}, p = {_p(entry)} ({entry['test']})",
            f"{_rows_of(shards, entry).size} shards in the order of the file, {each} each. "
            "Difference: log-probability of the published order minus the mean of the shuffles, in standard "
            "deviations of the shuffles of that shard (in nats where these do not vary). "
            + ("The p-values hold at every look." if looks and entry["test"] != "besag_clifford" else ""),
            rows=3 if looks else 2,
            columns=1,
            legend=_shard_legend(),
            height=1.75,
            share_x=False,
        )
        above, below = drawn.panels[0][0], drawn.panels[1][0]
        _differences(above, shards, entry)
        _ranks(below, shards, entry)
        above.set_title("How much more likely the published order is", loc="left", color=sheet.INK)
        below.set_title("How many of its shuffles it beats", loc="left", color=sheet.INK)
        below.set_xlabel("shard")
        if looks:
            _looks(drawn.panels[2][0], entry, run)
    return drawn


def draw_shards(run: Mapping[str, Any], shards: Mapping[str, np.ndarray]) -> sheet.Sheet:
    """The shards of several data sets, a panel each; of more than twelve, those of the smallest p-values."""
    data = sorted(run["data"], key=_rank_key)[:_PANELS]
    columns = min(2, len(data))
    more = len(run["data"]) - len(data)
    with sheet.style():
        drawn = sheet.sheet(
            f"Shards of {len(data)} data sets under {sheet.short(run['model']['name'], 40)}",
            "Log-probability of the published order minus the mean of the shuffles, in standard deviations of the "
            "shuffles of that shard; shards in the order of the file."
            + (f" {more} data sets with larger p-values are left out." if more else ""),
            rows=-(-len(data) // columns),
            columns=columns,
            legend=_shard_legend(),
            height=1.3,
            foot=0.3,
            share_x=False,
        )
        panels = [axes for line in drawn.panels for axes in line]
        for axes, entry in zip(panels, data, strict=False):
            _differences(axes, shards, entry, label=axes in [line[0] for line in drawn.panels])
            axes.set_title(
                f"{sheet.short(entry['name'], 30 if columns == 2 else 60)}, p = {_p(entry)}",
                loc="left",
                color=sheet.INK,
            )
        for axes in panels[len(data) :]:
            axes.set_visible(False)
    return drawn


def _overview(run: Mapping[str, Any]) -> sheet.Sheet:
    """p-values of many data sets, those of the control beside them."""
    data, alpha = sorted(run["data"], key=_rank_key), run["selection"]["alpha"]
    control = any(entry["control"] is not None for entry in data)
    legend: dict[str, Any] = {
        "rejected": dot(_MODEL.colour, "o"),
        "not rejected": dot(_MODEL.colour, "o", hollow=True),
    }
    doubted = np.array([in_doubt(entry) for entry in data])
    if doubted.any():
        legend["verdict withheld"] = dot(_DOUBTED, "D", hollow=True)
    if control:
        legend["control"] = dot(_CONTROL.colour, "x")
    named = len(data) <= _NAMED
    legend["Benjamini and Hochberg's line"] = sheet.level_line()
    with sheet.style():
        drawn = sheet.sheet(
            f"Test of published order: {len(data)} data sets under {sheet.short(run['model']['name'], 40)}",
            f"{run['selection']['num_rejected']} rejected by Benjamini and Hochberg's procedure at level {alpha:g}. "
            + (f"Control: {sheet.short(run['control']['name'], 60)}." if control else "No control."),
            rows=1,
            columns=1,
            legend=legend,
            height=max(1.2, 0.17 * len(data) + 0.1) if named else 3.2,
        )
        axes = drawn.panels[0][0]
        places = np.arange(len(data))
        values = np.array([_log10_p(entry) for entry in data])
        rejected = np.array([entry["rejected"] for entry in data])
        across = (lambda p, at: (p, at)) if named else (lambda p, at: (at + 1, p))
        if control:
            also = np.array([math.nan if entry["control"] is None else _log10_p(entry["control"]) for entry in data])
            axes.plot(*across(also, places), linestyle="none", marker="x", color=_CONTROL.colour, zorder=2)
        for chosen, colour, marker, face in (
            (rejected, _MODEL.colour, "o", _MODEL.colour),
            (~rejected & ~doubted, _MODEL.colour, "o", "white"),
            (doubted, _DOUBTED, "D", "white"),
        ):
            axes.plot(
                *across(values[chosen], places[chosen]), linestyle="none", marker=marker, color=colour,
                markerfacecolor=face, zorder=3,
            )  # fmt: skip
        decided = places[~doubted & ~np.isnan(values)]  # the others do not take part
        line = np.log10(alpha * np.arange(1, decided.size + 1) / max(1, decided.size))
        if named:
            axes.vlines(line, decided - 0.4, decided + 0.4, **sheet.LEVEL)
            _names(axes, [entry["name"] for entry in data])
            axes.set_xlabel("p-value")
            powers(axes.xaxis)
        else:
            axes.plot(decided + 1, line, **sheet.LEVEL)
            axes.set_xlabel("data sets, smallest p-value first")
            axes.set_ylabel("p-value")
            powers(axes.yaxis)
    return drawn


def powers(axis: Any) -> None:
    """Ticks of an axis of base-10 logarithms: powers of ten, and the numbers between them where the range is short."""
    axis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axis.set_major_formatter(FuncFormatter(lambda x, _: _power(float(x))))


def _power(log: float) -> str:
    if log != round(log):
        return f"{10**log:.2g}"
    return "1" if log == 0 else "10" + f"{log:.0f}".translate(_RAISED)


def dot(colour: str, marker: str, *, hollow: bool = False) -> Line2D:
    """Points in the legend."""
    face = "white" if hollow else colour
    return Line2D([], [], color=colour, marker=marker, markerfacecolor=face, linestyle="none")


def _log10_p(entry: Mapping[str, Any]) -> float:
    """Base-10 logarithm of a p-value; NaN if it is unknown."""
    log = entry["log_p_value"]
    return log / math.log(10) if is_known(log) else math.nan


def _rank_key(entry: Mapping[str, Any]) -> float:
    """Smallest p-value first, unknown ones last."""
    value = _log10_p(entry)
    return math.inf if math.isnan(value) else value


def _names(axes: Any, names: Sequence[str]) -> None:
    """Names down the side, the first on top."""
    axes.set_yticks(range(len(names)), [sheet.short(name, _LONGEST_NAME) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)


def _shard_legend() -> dict[str, Any]:
    return {
        "beats all of its shuffles": dot(_ALL.colour, "s"),
        "does not": dot(_SOME.colour, "o", hollow=True),
        "expected of a model that does not know the order": Line2D([], [], **sheet.LEVEL),
        "mean over shards": Line2D([], [], color=sheet.INK, linewidth=1),
    }


def _differences(axes: Any, shards: Mapping[str, np.ndarray], entry: Mapping[str, Any], *, label: bool = True) -> None:
    """Canonical minus mean shuffled of each shard, in standard deviations of its shuffles."""
    rows = _rows_of(shards, entry)
    spread, values = shards["sd_shuffled"][rows], shards["statistic"][rows]
    in_sd = bool((spread > 0).any())
    if in_sd:
        values = np.divide(values, spread, out=np.full(rows.size, np.nan), where=spread > 0)
    _points(axes, shards, rows, values, expected=0)
    if label:
        axes.set_ylabel("difference, sd" if in_sd else "difference, nats")


def _ranks(axes: Any, shards: Mapping[str, np.ndarray], entry: Mapping[str, Any]) -> None:
    """The fraction of its shuffles that the canonical order of each shard beats."""
    rows = _rows_of(shards, entry)
    beaten = np.where(
        shards["rank"][rows] < 0, np.nan, shards["rank"][rows] / np.maximum(1, shards["num_shuffles"][rows])
    )
    _points(axes, shards, rows, beaten, expected=0.5)
    axes.set_ylim(-0.04, 1.06)
    axes.set_ylabel("fraction of shuffles beaten")


def _points(
    axes: Any, shards: Mapping[str, np.ndarray], rows: np.ndarray, values: np.ndarray, *, expected: float
) -> None:
    """A value for each shard, their mean, and what is expected of a model that does not know the order."""
    axes.axhline(expected, **sheet.LEVEL)
    number = shards["shard"][rows] + 1
    best = shards["rank"][rows] == shards["num_shuffles"][rows]
    axes.vlines(number, 0, values, color="#BBBBBB", linewidth=0.8, zorder=2)
    axes.plot(number[best], values[best], linestyle="none", marker="s", color=_ALL.colour, zorder=3)
    axes.plot(
        number[~best], values[~best], linestyle="none", marker="o", color=_SOME.colour, markerfacecolor="white",
        zorder=3,
    )  # fmt: skip
    if np.isfinite(values).any():
        axes.axhline(np.nanmean(values), color=sheet.INK, linewidth=1, zorder=1)
    axes.set_xlim(0.2, number.max() + 0.8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))


def _looks(axes: Any, entry: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    """The p-value look by look, and the e-value if there is one."""
    looks = entry["sequential"]["looks"]
    number = [look["shuffles"] for look in looks]
    p = [math.log10(max(look["p_value"], 1e-300)) if is_known(look["p_value"]) else math.nan for look in looks]
    look = sheet.stroke(0)
    axes.plot(number, p, color=look.colour, marker=look.marker, linestyle=look.dashes, zorder=3)
    stops = entry["sequential"]["rule"] != "besag_clifford"
    level = run["selection"]["alpha"] / len(run["data"])
    target = (stops and run["options"].get("target_p")) or level
    axes.axhline(math.log10(target), **sheet.LEVEL)
    axes.text(
        0.995, math.log10(target), f"{'stops at p =' if stops else 'level'} {target:g} ", ha="right", va="bottom",
        transform=axes.get_yaxis_transform(), fontsize=7.5, color=sheet.INK,
    )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.set_xticks(number, minor=False)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("shuffles of each shard")
    axes.set_title("The p-value of the sequential test, look by look", loc="left", color=sheet.INK)
    axes.set_ylabel("p-value")
    axes.set_ylim(min(*p, math.log10(target)) - 0.4, 0.15)
    powers(axes.yaxis)


def _rows_of(shards: Mapping[str, np.ndarray], entry: Mapping[str, Any]) -> np.ndarray:
    return np.flatnonzero(shards["data"] == entry["name"])


def _p(entry: Mapping[str, Any]) -> str:
    return format_p_value(entry["p_value"], entry["log_p_value"])
