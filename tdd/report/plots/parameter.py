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
    """Error rate and power, the parameter to the right; one above the other where there are several panels of each.

    Args:
      result: `StudyResult` with a grid over `figure.x`.
      figure: layout.
      title: of the design.
      caption: below.
      alpha: which of the levels.
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
            where = f", {heading}" if heading else ""
            for axes, field, name in zip((above, below), figure.fields, names, strict=True):
                _lines(axes, result, figure, picked, field, alpha)
                axes.set_title(f"{name}{where}", loc="left", color=sheet.INK)
                axes.tick_params(labelleft=j == 0, labelbottom=beside or axes is below)
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
    """Ends of a vertical axis that holds 0 and all means with two standard errors; lines that stand aside tell none."""
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
        look, chosen = sheet.stroke(i), np.asarray(pick.cells, int)
        numbers = [float(result.cells[cell][figure.x]) for cell in pick.cells]
        axes.errorbar(
            numbers,
            mean[chosen, pick.method, alpha],
            2 * np.nan_to_num(error[chosen, pick.method, alpha]),
            color=look.colour,
            marker=look.marker,
            linestyle=look.dashes,
            capsize=2,
            elinewidth=0.8,
            zorder=3,
            transform=axes.transData + _aside(axes, i, len(picked)),
        )
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


def _aside(axes: Any, i: int, count: int) -> ScaledTranslation:
    """Series beside one another, a little apart, so that error bars at one place do not hide each other."""
    return ScaledTranslation((i - (count - 1) / 2) * 1.2 / 72, 0, axes.figure.dpi_scale_trans)
