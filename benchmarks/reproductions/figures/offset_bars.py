"""Marks side by side: a few places on the horizontal axis, in each a mark per series with two standard errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from benchmarks.reproductions.record import Outcome, Row
from benchmarks.reproductions.summary import standard_error
from tdd.report.plots import sheet

__all__ = ["dodged", "error_and_power", "handles", "levels_at", "log_p_axis"]

_ROOM = 0.76
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")  # sheets read no mathematics


def error_and_power(
    outcome: Outcome,
    caption: str,
    panels: Mapping[str, Sequence[Row]],
    names: Sequence[str],
    name_of: Callable[[Row], str],
    *,
    error: str,
    bottom: float,
) -> sheet.Sheet:
    """Draw one row of panels for each title: an error rate by level and series on the left, power on the right.

    Args:
      outcome: Gives the title.
      caption: The caption.
      panels: Title -> rows with alpha, power and the error rate.
      names: The series.
      name_of: Row -> its series.
      error: Column of the error rate.
      bottom: Lower end of its axis.
    """
    alphas = sorted({row["alpha"] for row in outcome.rows})
    with sheet.style():
        drawn = sheet.sheet(
            outcome.title,
            caption,
            rows=len(panels),
            columns=2,
            legend={**handles(names), "level": sheet.level_line()},
            height=1.35,
            foot=0.3,
            share_y=False,
        )
        for (title, rows), (left, right) in zip(panels.items(), drawn.panels, strict=True):
            for axes, column in ((left, error), (right, "power")):
                series = {
                    name: [[row[column] for row in rows if name_of(row) == name and row["alpha"] == a] for a in alphas]
                    for name in names
                }
                dodged(axes, [f"α = {alpha:g}" for alpha in alphas], series)
                axes.set_title(title, loc="left", color=sheet.INK)
            levels_at(left, alphas)
            left.set_ylim(bottom=bottom)
            right.set_ylim(-0.03, 1.03)
            left.set_ylabel(f"{error.upper()}, ± 2 s.e.")
            right.set_ylabel("power")
    return drawn


def handles(names: Sequence[str]) -> dict[str, Any]:
    """Legend entries: the mark of each series."""
    looks = {name: sheet.stroke(i) for i, name in enumerate(names)}
    return {
        name: Line2D([], [], color=look.colour, marker=look.marker, linestyle="", markersize=5)
        for name, look in looks.items()
    }


def dodged(axes: Any, places: Sequence[str], series: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """Draw means and two standard errors.

    Args:
      axes: A panel.
      places: Names of the places.
      series: Name -> for each place the values whose mean is shown; none leave the place empty.
    """
    step = _ROOM / max(1, len(series))
    for i, by_place in enumerate(series.values()):
        look = sheet.stroke(i)
        aside = (i - (len(series) - 1) / 2) * step
        for place, values in enumerate(by_place):
            if not len(values):
                continue
            error = 2 * np.nan_to_num(standard_error(values))
            axes.errorbar(
                place + aside, np.mean(values), error, color=look.colour, marker=look.marker, linestyle="",
                markersize=4.6, capsize=2, elinewidth=0.9, zorder=3,
            )  # fmt: skip
    axes.set_xticks(np.arange(len(places)), places)
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.grid(axis="x", visible=False)
    for edge in np.arange(len(places) - 1) + 0.5:
        axes.axvline(edge, color="#DDDDDD", linewidth=0.6, zorder=0)


def levels_at(axes: Any, levels: Sequence[float]) -> None:
    """Draw across each place the level that the marks there should not exceed."""
    for place, level in enumerate(levels):
        axes.plot((place - 0.46, place + 0.46), (level, level), **sheet.LEVEL)


def log_p_axis(axes: Any, smallest: float) -> None:
    """Label a vertical axis of log10 p-values down to `smallest` with powers of ten."""
    low = math.floor(smallest)
    ticks = np.arange(0, low - 1, -max(1, -low // 6))
    axes.set_yticks(ticks, ["1" if tick == 0 else f"10{str(tick).translate(_RAISED)}" for tick in ticks])
    axes.set_ylim(low - 0.3, 0.3)
