"""Error rate against the level, with the diagonal that it should not cross, and the power beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Patch

from tdd.report.plots import cells, sheet
from tdd.report.plots.cells import Pick
from tdd.study.named.record import Figure

__all__ = ["bands", "bars", "levels", "tradeoff"]

_MOST_BARS = 32


def levels(result: Any, figure: Figure, *, title: str, caption: str) -> sheet.Sheet:
    """One row a panel: on the left the error rate ± 2 standard errors, on the right the power, as bars if few."""
    rows = cells.picks(result, figure)
    few = len(rows[0][1]) * len(result.alphas) <= _MOST_BARS
    height = 2.35 if len(rows) == 1 else 1.9
    with sheet.style():
        drawn = _rate_and_power(figure, rows, title, caption, drawn="both" if few else "lines", height=height)
        for (_, picked), (left, right) in zip(rows, drawn.panels, strict=True):
            _lines(left, result, picked, "fdr")
            _diagonal(left, result)
            left.set_ylim(bottom=0)
            (_bars if few else _lines)(right, result, picked, "power")
            right.set_ylim(0, 1.02)
    return drawn


def bars(result: Any, figure: Figure, *, title: str, caption: str) -> sheet.Sheet:
    """Error rate and power as bars by level, with a mark at each level over the bars that belong to it."""
    rows = cells.picks(result, figure)
    height = 2.35 if len(rows) < 3 else 1.75
    with sheet.style():
        drawn = _rate_and_power(figure, rows, title, caption, drawn="bars", height=height)
        for (_, picked), (left, right) in zip(rows, drawn.panels, strict=True):
            for axes, field in ((left, "fdr"), (right, "power")):
                _bars(axes, result, picked, field)
                axes.set_ylim(0, 1.02)
            for i, alpha in enumerate(result.alphas):
                left.plot((i - 0.45, i + 0.45), (alpha, alpha), **{**sheet.LEVEL, "color": "#000000", "zorder": 4})
    return drawn


def bands(result: Any, figure: Figure, *, title: str, caption: str) -> sheet.Sheet:
    """One column a panel: mean and spread (5-95% and 25-75% of the repetitions) of error and power."""
    columns = cells.picks(result, figure)
    alphas = np.asarray(result.alphas)
    look = sheet.stroke(0)
    legend = {
        "mean": sheet.line(look),
        "middle half of the repetitions": Patch(facecolor=look.colour, alpha=0.4),
        "5 to 95%": Patch(facecolor=look.colour, alpha=0.16),
        f"{figure.error} = α": sheet.level_line(),
    }
    fields = (("fdr", "fdp_quantiles", figure.error), ("power", "power_quantiles", figure.power))
    with sheet.style():
        drawn = sheet.sheet(title, caption, rows=2, columns=len(columns), legend=legend, height=1.75, foot=0.34)
        for row, (field, spread, name) in zip(drawn.panels, fields, strict=True):
            for axes, (heading, picked) in zip(row, columns, strict=True):
                place = picked[0].cells[0], picked[0].method
                quantiles = cells.values(result, spread)[place]
                for low, high, strength in ((0, 4, 0.16), (1, 3, 0.3)):
                    axes.fill_between(
                        alphas, quantiles[:, low], quantiles[:, high], color=look.colour, alpha=strength, linewidth=0
                    )
                axes.plot(alphas, cells.values(result, field)[place], color=look.colour, marker=look.marker)
                axes.set_title(f"{name}, {heading}" if heading else name, loc="left", color=sheet.INK)
                axes.set_xticks(alphas)
                if field == "fdr":
                    _diagonal(axes, result)
        above, below = drawn.panels
        above[0].set_ylabel("FDP: mean and spread")
        above[0].set_ylim(bottom=0)
        below[0].set_ylabel(f"{figure.power}: mean and spread")
        below[0].set_ylim(0, 1.02)
        for axes in below:
            axes.set_xlabel("level α")
    return drawn


def tradeoff(result: Any, figure: Figure, *, title: str, caption: str) -> sheet.Sheet:
    """One column a panel: the power against the error rate, a mark at each level."""
    columns = cells.picks(result, figure)
    error, power = cells.values(result, "fdr"), cells.values(result, "power")
    legend = {pick.label: sheet.line(sheet.stroke(i)) for i, pick in enumerate(columns[0][1])}
    marks = f"Marks are the levels α = {', '.join(f'{alpha:g}' for alpha in result.alphas)}."
    with sheet.style():
        drawn = sheet.sheet(title, f"{caption} {marks}", rows=1, columns=len(columns), legend=legend, height=2.35)
        (row,) = drawn.panels
        for axes, (heading, picked) in zip(row, columns, strict=True):
            for i, pick in enumerate(picked):
                look, place = sheet.stroke(i), (pick.cells[0], pick.method)
                axes.plot(error[place], power[place], color=look.colour, marker=look.marker, linestyle=look.dashes)
            axes.set_title(heading, loc="left", color=sheet.INK)
            axes.set_xlabel(figure.error)
            axes.set_xlim(left=0)
            axes.set_ylim(0, 1.02)
        row[0].set_ylabel(figure.power)
    return drawn


def _rate_and_power(
    figure: Figure, rows: Sequence[tuple[str, list[Pick]]], title: str, caption: str, *, drawn: str, height: float
) -> sheet.Sheet:
    """Empty panels, the error rate on the left; `drawn` says what the legend shows: "lines", "bars" or "both"."""
    lines, legend = rows[0][1], {}
    if len(lines) > 1:
        for i, pick in enumerate(lines):
            look = sheet.stroke(i)
            line, bar = sheet.line(look), Patch(facecolor=_light(i), edgecolor=look.colour, hatch=look.hatch)
            legend[pick.label] = {"lines": line, "bars": bar, "both": (line, bar)}[drawn]
    legend[f"{figure.error} = α"] = sheet.level_line()
    page = sheet.sheet(
        title, caption, rows=len(rows), columns=2, legend=legend, height=height, foot=0.34, share_y=False
    )
    for (heading, _), panels in zip(rows, page.panels, strict=True):
        for axes, name in zip(panels, (figure.error, figure.power), strict=True):
            axes.set_title(f"{heading}: {name}" if heading else name, loc="left", color=sheet.INK)
            axes.set_ylabel(f"{name}, ± 2 s.e.")
    for axes in page.panels[-1]:
        axes.set_xlabel("level α")
    return page


def _lines(axes: Any, result: Any, picked: Sequence[Pick], field: str) -> None:
    alphas = np.asarray(result.alphas)
    for i, pick in enumerate(picked):
        place = pick.cells[0], pick.method
        mean, error = (cells.values(result, name)[place] for name in (field, f"{field}_se"))
        sheet.error_line(axes, alphas, mean, error, sheet.stroke(i))
    room = 0.06 * (alphas.max() - alphas.min() or alphas.max())
    axes.set_xlim(max(0.0, alphas.min() - room), alphas.max() + room)
    named = alphas[:: -(-len(alphas) // 6)]  # six at most
    axes.set_xticks(named, [f"{alpha:g}" for alpha in named])


def _bars(axes: Any, result: Any, picked: Sequence[Pick], field: str) -> None:
    num_levels, width = len(result.alphas), 0.84 / len(picked)
    for i, pick in enumerate(picked):
        look, place = sheet.stroke(i), (pick.cells[0], pick.method)
        mean, error = (cells.values(result, name)[place] for name in (field, f"{field}_se"))
        axes.bar(
            np.arange(num_levels) + (i - (len(picked) - 1) / 2) * width,
            mean,
            width * 0.92,
            yerr=2 * np.nan_to_num(error),
            color=_light(i),
            edgecolor=look.colour,
            hatch=look.hatch,
            linewidth=0.8,
            error_kw={"elinewidth": 0.8, "capsize": 1.5, "ecolor": sheet.INK},
        )
    axes.set_xticks(np.arange(num_levels), [f"{alpha:g}" for alpha in result.alphas])
    axes.set_xlim(-0.6, num_levels - 0.4)
    axes.grid(axis="x", visible=False)


def _diagonal(axes: Any, result: Any) -> None:
    """The level itself."""
    ends = (0.0, max(result.alphas) * 1.04)
    axes.plot(ends, ends, **sheet.LEVEL)


def _light(index: int) -> str:
    """The first series is a full bar; the others are pale under their hatching."""
    strength = 1.0 if index == 0 else 0.22
    red, green, blue = (1 - strength * (1 - channel) for channel in to_rgb(sheet.stroke(index).colour))
    return to_hex((red, green, blue))
