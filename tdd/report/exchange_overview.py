"""p-values of many data sets at a glance, those of the negative control beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tdd.exchange.words import is_known
from tdd.report.plots import sheet
from tdd.report.terminal import plain_text

__all__ = ["dot", "log10_of", "overview", "powers", "rank_key", "short"]

_NAMED = 40
"""More data sets than this are drawn by rank, without their names."""

_LONGEST_NAME = 34
_MODEL, _CONTROL = sheet.stroke(0), sheet.stroke(1)


def overview(run: Mapping[str, Any]) -> sheet.Sheet:
    """p-values of many data sets, those of the control beside them."""
    data, alpha = sorted(run["data"], key=rank_key), run["selection"]["alpha"]
    control = any(one["control"] is not None for one in data)
    legend: dict[str, Any] = {
        "rejected": dot(_MODEL.colour, "o"),
        "not rejected": dot(_MODEL.colour, "o", hollow=True),
    }
    if control:
        legend["negative control"] = dot(_CONTROL.colour, "x")
    named = len(data) <= _NAMED
    legend[f"level {alpha:g}" if named else "Benjamini and Hochberg's line"] = sheet.level_line()
    with sheet.style():
        drawn = sheet.sheet(
            f"Test of canonical order: {len(data)} data sets under {short(run['model']['name'], 40)}",
            f"{run['selection']['num_rejected']} rejected by Benjamini and Hochberg's procedure at level {alpha:g}. "
            + (f"Negative control: {short(run['control']['name'], 60)}." if control else "No negative control."),
            rows=1,
            columns=1,
            legend=legend,
            height=max(1.2, 0.17 * len(data) + 0.1) if named else 3.2,
        )
        axes = drawn.panels[0][0]
        places = np.arange(len(data))
        values = np.array([log10_of(one) for one in data])
        rejected = np.array([one["rejected"] for one in data])
        across = (lambda p, at: (p, at)) if named else (lambda p, at: (at + 1, p))
        if control:
            also = np.array([math.nan if one["control"] is None else log10_of(one["control"]) for one in data])
            axes.plot(*across(also, places), linestyle="none", marker="x", color=_CONTROL.colour, zorder=2)
        for chosen, face in ((rejected, _MODEL.colour), (~rejected, "white")):
            axes.plot(
                *across(values[chosen], places[chosen]), linestyle="none", marker="o", color=_MODEL.colour,
                markerfacecolor=face, zorder=3,
            )  # fmt: skip
        if named:
            axes.axvline(math.log10(alpha), **sheet.LEVEL)
            _names(axes, [one["name"] for one in data])
            axes.set_xlabel("p-value")
            powers(axes.xaxis)
        else:
            axes.plot(places + 1, np.log10(alpha * (places + 1) / len(data)), **sheet.LEVEL)
            axes.set_xlabel("data sets, smallest p-value first")
            axes.set_ylabel("p-value")
            powers(axes.yaxis)
    return drawn


def powers(axis: Any) -> None:
    """Ticks of an axis of base-10 logarithms, as powers of ten."""
    axis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axis.set_major_formatter(FuncFormatter(lambda x, _: "1" if x == 0 else f"$10^{{{x:.0f}}}$"))


def dot(colour: str, marker: str, *, hollow: bool = False) -> Line2D:
    """What the legend shows of points."""
    face = "white" if hollow else colour
    return Line2D([], [], color=colour, marker=marker, markerfacecolor=face, linestyle="none")


def log10_of(one: Mapping[str, Any]) -> float:
    """Base-10 logarithm of a p-value; NaN where it is unknown."""
    log = one["log_p_value"]
    return log / math.log(10) if is_known(log) else math.nan


def rank_key(one: Mapping[str, Any]) -> float:
    """Smallest p-value first, unknown ones last."""
    value = log10_of(one)
    return math.inf if math.isnan(value) else value


def short(name: str, longest: int) -> str:
    """A name without its middle, where it is long, as it can be drawn: control characters spelled out, no formulas."""
    name = plain_text(name).plain
    if len(name) > longest:
        half = (longest - 1) // 2
        name = f"{name[: longest - 1 - half]}…{name[-half:]}"
    return name.replace("$", r"\$")


def _names(axes: Any, names: Sequence[str]) -> None:
    """Names down the side, the first on top."""
    axes.set_yticks(range(len(names)), [short(name, _LONGEST_NAME) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
