"""Error rate and power, or two other measures, against a parameter of the design, one level at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import NullLocator
from matplotlib.transforms import ScaledTranslation

from tdd.report.plots import cells, sheet
from tdd.report.plots.cells import Pick
from tdd.study.named.record import Figure

__all__ = ["parameter"]


def parameter(result: Any, figure: Figure, *, title: str, caption: str, alpha: int = 0) -> sheet.Sheet:
    """Error rate and power over the parameter; one above the other if there are several panels of each.

    Args:
      result: `StudyResult` with a grid over `figure.x`.
      figure: layout.
      title: title of the design.
      caption: below the panels.
      alpha: index of the level.
    """
    panels = cells.picks(result, figure)
    level = result.alphas[alpha]
    looks = [sheet.stroke(i) for i in range(len(panels[0][1]))]
    legend = {pick.label: sheet.line(look) for look, pick in zip(looks, panels[0][1], strict=True)}
    rates = figure.fields == ("fdr", "power")
    legend[f"{figure.error} = α" if rates else "0"] = sheet.level_line()
    names = (figure.error, figure.power) if rates else tuple(figure.labels.get(name, name) for name in figure.fields)
    at = f" at α = {level:g}" if rates else ""
    beside = len(panels) == 1
    with sheet.style():
        drawn = sheet.sheet(
            title,
            caption,
            rows=1 if beside else 2,
            columns=2 if beside else len(panels),
            legend=legend,
            height=2.35 if beside else 1.75,
            foot=0.14,
            share_y=not beside,
        )
        for j, (heading, picked) in enumerate(panels):
            above, below = drawn.panels[0] if beside else (drawn.panels[0][j], drawn.panels[1][j])
            for axes, field, name in zip((above, below), figure.fields, names, strict=True):
                _lines(axes, result, figure, picked, field, alpha)
                axes.set_title(f"{name}, {heading}" if heading else name, loc="left", color=sheet.INK)
                axes.tick_params(labelbottom=beside or axes is below)
                if j == 0:
                    axes.set_ylabel(f"{name}{at}, ± 2 s.e.")
                if beside or axes is below:
                    axes.set_xlabel(figure.labels.get(f"x: {heading}", figure.x_label or figure.x))
            above.axhline(level if rates else 0, **sheet.LEVEL)
            below.set_ylim(0, 1.02)
        if not rates:
            for axes, field in zip((above, below), figure.fields, strict=True):
                axes.set_ylim(*_room(result, field, alpha))
            return drawn
        ends = cells.values(result, "fdr") + 2 * np.nan_to_num(cells.values(result, "fdr_se"))
        drawn.panels[0][0].set_ylim(0, min(1.02, max(1.06 * np.nanmax(ends[..., alpha]), 1.25 * level)))
    return drawn


def _room(result: Any, field: str, alpha: int) -> tuple[float, float]:
    """Ends of a vertical axis that holds 0 and all means with two standard errors."""
    mean, error = (cells.values(result, name)[..., alpha] for name in (field, f"{field}_se"))
    spread = 2 * np.nan_to_num(error)
    low, high = min(0.0, np.nanmin(mean - spread)), max(0.0, np.nanmax(mean + spread))
    room = 0.06 * (high - low) or 1.0
    return low - room * (low < 0), high + room


def _lines(axes: Any, result: Any, figure: Figure, picked: Sequence[Pick], field: str, alpha: int) -> None:
    """One line a series, with two standard errors up and down."""
    mean, error = cells.values(result, field), cells.values(result, f"{field}_se")
    numbers: list[float] = []
    for i, pick in enumerate(picked):
        place = np.asarray(pick.cells, int), pick.method, alpha
        numbers = [float(result.cells[cell][figure.x]) for cell in pick.cells]
        aside = (i - (len(picked) - 1) / 2) * 1.2 / 72  # so that error bars at one place do not hide each other
        moved = axes.transData + ScaledTranslation(aside, 0, axes.figure.dpi_scale_trans)
        sheet.error_line(axes, numbers, mean[place], error[place], sheet.stroke(i), transform=moved)
    low, high = min(numbers), max(numbers)
    if low > 0 and high / low >= 10:
        axes.set_xscale("log")
        room = (high / low) ** 0.06
        axes.set_xlim(low / room, high * room)
    else:
        room = 0.06 * (high - low) or 0.5
        axes.set_xlim(low - room, high + room)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(numbers, [f"{number:g}" for number in numbers])
