"""Figures of the test of canonical order: shard by shard, look by look, and many data sets at a glance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from tdd.exchange.words import is_known, p_words
from tdd.report.exchange_overview import dot, overview, powers, rank_key, short
from tdd.report.plots import sheet

__all__ = ["draw", "draw_shards"]

_PANELS = 12
_ALL, _SOME = sheet.stroke(1), sheet.stroke(0)


def draw(run: Mapping[str, Any], shards: Mapping[str, np.ndarray]) -> sheet.Sheet:
    """The figure of a run: of one data set its shards (and looks), of several their p-values.

    Args:
      run: content of run.json.
      shards: columns of shards.csv.
    """
    data = run["data"]
    if len(data) > 1:
        return overview(run)
    one = data[0]
    looks = one["sequential"]["looks"] if one["sequential"] else []
    looks = looks if len(looks) > 1 else []
    each = "1 shuffle" if one["shuffles_used"] == 1 else f"{one['shuffles_used']} shuffles"
    title = f"{short(one['name'], 40)} under {short(run['model']['name'], 40)}"
    with sheet.style():
        drawn = sheet.sheet(
            f"Test of canonical order: {title}, p = {_p(one)} ({one['test']})",
            f"{_rows_of(shards, one).size} shards in the order of the file, {each} each. "
            "Difference: log-probability of the published order minus the mean of the shuffles, in standard "
            "deviations of the shuffles of that shard (in nats where these do not vary). "
            + ("The p-values hold at every look." if looks and one["test"] != "besag_clifford" else ""),
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
    data = sorted(run["data"], key=rank_key)[:_PANELS]
    columns = min(2, len(data))
    more = len(run["data"]) - len(data)
    with sheet.style():
        drawn = sheet.sheet(
            f"Shards of {len(data)} data sets under {short(run['model']['name'], 40)}",
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
                f"{short(one['name'], 30 if columns == 2 else 60)}, p = {_p(one)}", loc="left", color=sheet.INK
            )
        for axes in panels[len(data) :]:
            axes.set_visible(False)
    return drawn


def _shard_legend() -> dict[str, Any]:
    return {
        "beats all of its shuffles": dot(_ALL.colour, "s"),
        "does not": dot(_SOME.colour, "o", hollow=True),
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
    look = sheet.stroke(0)
    axes.plot(number, p, color=look.colour, marker=look.marker, linestyle=look.dashes, zorder=3)
    stops = one["sequential"]["rule"] != "besag_clifford"
    target = _target(run) if stops else run["selection"]["alpha"] / len(run["data"])
    axes.axhline(math.log10(target), **sheet.LEVEL)
    axes.text(
        0.995, math.log10(target), f"{'stops at p =' if stops else 'level'} {target:g} ", ha="right", va="bottom",
        transform=axes.get_yaxis_transform(), fontsize=7.5, color=sheet.INK,
    )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.set_xticks(number, minor=False)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("shuffles a shard")
    axes.set_title("What the sequential test says", loc="left", color=sheet.INK)
    axes.set_ylabel("p-value")
    axes.set_ylim(min(*p, math.log10(target)) - 0.4, 0.15)
    powers(axes.yaxis)


def _rows_of(shards: Mapping[str, np.ndarray], one: Mapping[str, Any]) -> np.ndarray:
    return np.flatnonzero(shards["data"] == one["name"])


def _p(one: Mapping[str, Any]) -> str:
    return p_words(one["p_value"], one["log_p_value"])


def _target(run: Mapping[str, Any]) -> float:
    return run["options"].get("target_p") or run["selection"]["alpha"] / len(run["data"])
