"""Marks side by side: a few places on the horizontal axis, at each one mark a series with two standard errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from benchmarks.reproductions.summary import standard_error
from tdd.report.plots import sheet

__all__ = ["dodged", "handles", "levels_at"]

_ROOM = 0.76


def handles(names: Sequence[str]) -> dict[str, Any]:
    """What the legend shows of each series: its mark."""
    looks = {name: sheet.stroke(i) for i, name in enumerate(names)}
    return {
        name: Line2D([], [], color=look.colour, marker=look.marker, linestyle="", markersize=5)
        for name, look in looks.items()
    }


def dodged(axes: Any, places: Sequence[str], series: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """Draw means and two standard errors.

    Args:
      axes: a panel.
      places: names of the places.
      series: name -> for each place the values of which the mean is shown; none leave the place empty.
    """
    step = _ROOM / max(1, len(series))
    for i, values in enumerate(series.values()):
        look = sheet.stroke(i)
        aside = (i - (len(series) - 1) / 2) * step
        for place, found in enumerate(values):
            if not len(found):
                continue
            error = 2 * np.nan_to_num(standard_error(found))
            axes.errorbar(
                place + aside, np.mean(found), error, color=look.colour, marker=look.marker, linestyle="",
                markersize=4.6, capsize=2, elinewidth=0.9, zorder=3,
            )  # fmt: skip
    axes.set_xticks(np.arange(len(places)), places)
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.grid(axis="x", visible=False)
    for edge in np.arange(len(places) - 1) + 0.5:
        axes.axvline(edge, color="#DDDDDD", linewidth=0.6, zorder=0)


def levels_at(axes: Any, levels: Sequence[float]) -> None:
    """Across each place, the level that the marks there should not exceed."""
    for place, level in enumerate(levels):
        axes.plot((place - 0.46, place + 0.46), (level, level), **sheet.LEVEL)
