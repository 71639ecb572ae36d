"""Figures of the test of canonical order: shard by shard, look by look, and many data sets at a glance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tdd.exchange.words import is_known, p_words
from tdd.report.plots import sheet

__all__ = ["draw", "draw_shards"]

_NAMED = 40
"""More data sets than this are drawn by rank, without their names."""

_PANELS = 12
_LONGEST_NAME = 34
_ALL, _SOME = sheet.stroke(1), sheet.stroke(0)
_MODEL, _CONTROL = sheet.stroke(0), sheet.stroke(1)


def draw(run: Mapping[str, Any], shards: Mapping[str, np.ndarray]) -> sheet.Sheet:
    """The figure of a run: of one data set its shards (and looks), of several their p-values.

    Args:
      run: content of run.json.
      shards: columns of shards.csv.
    """
    data = run["data"]
    if len(data) > 1:
        return _overview(run)
    one = data[0]
    looks = one["sequential"]["looks"] if one["sequential"] else []
    with sheet.style():
        drawn = sheet.sheet(
            f"Test of canonical order: {one['name']} under {run['model']['name']}, p = {_p(one)} ({one['test']})",
            f"{_rows_of(shards, one).size} shards in the order of the file, {one['shuffles_used']} shuffles each. "
            "Difference: log-probability of the published order minus the mean of the shuffles, in standard "
            "deviations of the shuffles of that shard (in nats where these do not vary). "
            + ("p-values are valid at every look." if looks and one["test"] != "besag_clifford" else ""),
            rows=3 if looks else 2,
            columns=1,
            legend=_shard_legend(),
            height=1.75,
            share_x=False,
        )
        above, below = drawn.panels[0][0], drawn.panels[1][0]
        _differences(above, shards, one)
        _ranks(below, shards, one)
        above.set_title("How much more likely the published order is", loc="left", color=sheet.INK)
        below.set_title("How many of its shuffles it beats", loc="left", color=sheet.INK)
        below.set_xlabel("shard")
        if looks:
            _looks(drawn.panels[2][0], one, run)
    return drawn


def draw_shards(run: Mapping[str, Any], shards: Mapping[str, np.ndarray]) -> sheet.Sheet:
    """The shards of several data sets, a panel each; of more than twelve, those of the smallest p-values."""
    data = sorted(run["data"], key=_rank_key)[:_PANELS]
    columns = min(2, len(data))
    more = len(run["data"]) - len(data)
    with sheet.style():
        drawn = sheet.sheet(
            f"Shards of {len(data)} data sets under {run['model']['name']}",
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
        for axes, one in zip(panels, data, strict=False):
            _differences(axes, shards, one, label=axes in [line[0] for line in drawn.panels])
            axes.set_title(
                f"{_short(one['name'], 30 if columns == 2 else 60)}, p = {_p(one)}", loc="left", color=sheet.INK
            )
        for axes in panels[len(data) :]:
            axes.set_visible(False)
    return drawn


def _shard_legend() -> dict[str, Any]:
    return {
        "beats all of its shuffles": _dot(_ALL.colour, "s"),
        "does not": _dot(_SOME.colour, "o", hollow=True),
        "expected of a model that does not know the order": Line2D([], [], **sheet.LEVEL),
        "mean over shards": Line2D([], [], color=sheet.INK, linewidth=1),
    }


def _differences(axes: Any, shards: Mapping[str, np.ndarray], one: Mapping[str, Any], *, label: bool = True) -> None:
    """Canonical minus mean shuffled of each shard, in standard deviations of its shuffles."""
    rows = _rows_of(shards, one)
    spread, values = shards["sd_shuffled"][rows], shards["statistic"][rows]
    in_sd = bool((spread > 0).any())
    if in_sd:
        values = np.divide(values, spread, out=np.full(rows.size, np.nan), where=spread > 0)
    axes.axhline(0, **sheet.LEVEL)
    _points(axes, shards, rows, values)
    if np.isfinite(values).any():
        axes.axhline(np.nanmean(values), color=sheet.INK, linewidth=1, zorder=1)
    if label:
        axes.set_ylabel("difference, sd" if in_sd else "difference, nats")


def _ranks(axes: Any, shards: Mapping[str, np.ndarray], one: Mapping[str, Any]) -> None:
    """The share of its shuffles that the canonical order of each shard beats."""
    rows = _rows_of(shards, one)
    share = np.where(
        shards["rank"][rows] < 0, np.nan, shards["rank"][rows] / np.maximum(1, shards["num_shuffles"][rows])
    )
    axes.axhline(0.5, **sheet.LEVEL)
    _points(axes, shards, rows, share)
    if np.isfinite(share).any():
        axes.axhline(np.nanmean(share), color=sheet.INK, linewidth=1, zorder=1)
    axes.set_ylim(-0.04, 1.06)
    axes.set_ylabel("share of shuffles beaten")


def _points(axes: Any, shards: Mapping[str, np.ndarray], rows: np.ndarray, values: np.ndarray) -> None:
    number = shards["shard"][rows] + 1
    best = shards["rank"][rows] == shards["num_shuffles"][rows]
    axes.vlines(number, 0, values, color="#BBBBBB", linewidth=0.8, zorder=2)
    axes.plot(number[best], values[best], linestyle="none", marker="s", color=_ALL.colour, zorder=3)
    axes.plot(
        number[~best],
        values[~best],
        linestyle="none",
        marker="o",
        color=_SOME.colour,
        markerfacecolor="white",
        zorder=3,
    )
    axes.set_xlim(0.2, number.max() + 0.8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))


def _looks(axes: Any, one: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    """The p-value look by look, and the e-value where there is one."""
    looks = one["sequential"]["looks"]
    number = [look["shuffles"] for look in looks]
    p = [math.log10(max(look["p_value"], 1e-300)) if is_known(look["p_value"]) else math.nan for look in looks]
    look = _MODEL
    axes.plot(number, p, color=look.colour, marker=look.marker, linestyle=look.dashes, zorder=3)
    axes.axhline(math.log10(_target(run)), **sheet.LEVEL)
    axes.text(
        0.995, math.log10(_target(run)), f"stops at p = {_target(run):g} ", transform=axes.get_yaxis_transform(),
        ha="right", va="bottom", fontsize=7.5, color=sheet.INK,
    )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.set_xticks(number, minor=False)
    axes.xaxis.set_minor_locator(MaxNLocator(1))
    axes.set_xlabel("shuffles a shard")
    axes.set_title("What the sequential test says", loc="left", color=sheet.INK)
    axes.set_ylabel("p-value")
    axes.set_ylim(min(*p, math.log10(_target(run))) - 0.4, 0.15)
    _powers(axes.yaxis)


def _overview(run: Mapping[str, Any]) -> sheet.Sheet:
    """p-values of many data sets, those of the control beside them."""
    data, alpha = sorted(run["data"], key=_rank_key), run["selection"]["alpha"]
    control = any(one["control"] is not None for one in data)
    legend: dict[str, Any] = {
        "rejected": _dot(_MODEL.colour, "o"),
        "not rejected": _dot(_MODEL.colour, "o", hollow=True),
    }
    if control:
        legend["negative control"] = _dot(_CONTROL.colour, "x")
    named = len(data) <= _NAMED
    legend[f"level {alpha:g}" if named else "Benjamini and Hochberg's line"] = sheet.level_line()
    with sheet.style():
        drawn = sheet.sheet(
            f"Test of canonical order: {len(data)} data sets under {run['model']['name']}",
            f"{run['selection']['num_rejected']} rejected by Benjamini and Hochberg's procedure at level {alpha:g}. "
            + (f"Negative control: {run['control']['name']}." if control else "No negative control."),
            rows=1,
            columns=1,
            legend=legend,
            height=max(1.2, 0.17 * len(data) + 0.1) if named else 3.2,
        )
        axes = drawn.panels[0][0]
        places = np.arange(len(data))
        values = np.array([_log10(one) for one in data])
        rejected = np.array([one["rejected"] for one in data])
        across = (lambda p, at: (p, at)) if named else (lambda p, at: (at + 1, p))
        if control:
            also = np.array([math.nan if one["control"] is None else _log10(one["control"]) for one in data])
            axes.plot(*across(also, places), linestyle="none", marker="x", color=_CONTROL.colour, zorder=2)
        for chosen, face in ((rejected, _MODEL.colour), (~rejected, "white")):
            axes.plot(
                *across(values[chosen], places[chosen]), linestyle="none", marker="o", color=_MODEL.colour,
                markerfacecolor=face, zorder=3,
            )  # fmt: skip
        if named:
            axes.axvline(math.log10(alpha), **sheet.LEVEL)
            _names(drawn, axes, [one["name"] for one in data])
            axes.set_xlabel("p-value")
            _powers(axes.xaxis)
        else:
            axes.plot(places + 1, np.log10(alpha * (places + 1) / len(data)), **sheet.LEVEL)
            axes.set_xlabel("data sets, smallest p-value first")
            axes.set_ylabel("p-value")
            _powers(axes.yaxis)
    return drawn


def _names(drawn: sheet.Sheet, axes: Any, names: Sequence[str]) -> None:
    """Names down the side, with room for them; the first on top."""
    axes.set_yticks(range(len(names)), [_short(name, _LONGEST_NAME) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    box = axes.get_position()
    longest = max(min(len(name), _LONGEST_NAME) for name in names)
    left = min(0.42, max(box.x0, (0.075 * longest + 0.15) / drawn.figure.get_figwidth()))
    axes.set_position((left, box.y0, box.x1 - left, box.height))


def _powers(axis: Any) -> None:
    axis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axis.set_major_formatter(FuncFormatter(lambda x, _: "1" if x == 0 else f"$10^{{{x:.0f}}}$"))


def _dot(colour: str, marker: str, *, hollow: bool = False) -> Line2D:
    face = "white" if hollow else colour
    return Line2D([], [], color=colour, marker=marker, markerfacecolor=face, linestyle="none")


def _rows_of(shards: Mapping[str, np.ndarray], one: Mapping[str, Any]) -> np.ndarray:
    return np.flatnonzero(shards["data"] == one["name"])


def _log10(one: Mapping[str, Any]) -> float:
    log = one["log_p_value"]
    return log / math.log(10) if is_known(log) else math.nan


def _rank_key(one: Mapping[str, Any]) -> float:
    """Smallest p-value first, unknown ones last."""
    value = _log10(one)
    return math.inf if math.isnan(value) else value


def _p(one: Mapping[str, Any]) -> str:
    return p_words(one["p_value"], one["log_p_value"])


def _target(run: Mapping[str, Any]) -> float:
    return run["options"].get("target_p") or run["selection"]["alpha"] / len(run["data"])


def _short(name: str, longest: int) -> str:
    if len(name) <= longest:
        return name
    half = (longest - 1) // 2
    return f"{name[: longest - 1 - half]}…{name[-half:]}"
