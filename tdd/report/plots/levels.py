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
    alphas = np.asarray(result.alphas)
    lines = rows[0][1]
    as_bars = len(lines) * len(alphas) <= _MOST_BARS
    with sheet.style():
        height = 2.35 if len(rows) == 1 else 1.9
        shown = "both" if as_bars else "lines"
        drawn = _open(figure, lines, title, caption, rows=len(rows), drawn=shown, height=height)
        for (heading, picked), (left, right) in zip(rows, drawn.panels, strict=True):
            _errors(left, result, picked, alphas, figure)
            (_power_bars if as_bars else _power_lines)(right, result, picked, alphas, "power")
            prefix = f"{heading}: " if heading else ""
            left.set_title(f"{prefix}{figure.error}", loc="left", color=sheet.INK)
            right.set_title(f"{prefix}{figure.power}", loc="left", color=sheet.INK)
        _label(drawn, figure)
    return drawn


def bars(result: Any, figure: Figure, *, title: str, caption: str) -> sheet.Sheet:
    """Error rate and power as bars by level, with a mark at each level over the bars that belong to it."""
    rows = cells.picks(result, figure)
    alphas = np.asarray(result.alphas)
    with sheet.style():
        height = 2.35 if len(rows) < 3 else 1.75
        drawn = _open(figure, rows[0][1], title, caption, rows=len(rows), drawn="bars", height=height)
        for (heading, picked), (left, right) in zip(rows, drawn.panels, strict=True):
            _power_bars(left, result, picked, alphas, "fdr")
            for i, alpha in enumerate(alphas):
                left.plot((i - 0.45, i + 0.45), (alpha, alpha), **{**sheet.LEVEL, "color": "#000000", "zorder": 4})
            _power_bars(right, result, picked, alphas, "power")
            prefix = f"{heading}: " if heading else ""
            left.set_title(f"{prefix}{figure.error}", loc="left", color=sheet.INK)
            right.set_title(f"{prefix}{figure.power}", loc="left", color=sheet.INK)
        _label(drawn, figure)
    return drawn


def bands(result: Any, figure: Figure, *, title: str, caption: str) -> sheet.Sheet:
    """One column a panel: mean and spread (5-95 % and 25-75 % of the repetitions) of error and power."""
    columns = cells.picks(result, figure)
    alphas = np.asarray(result.alphas)
    look = sheet.stroke(0)
    legend = {
        "mean": sheet.line(look),
        "middle half of the repetitions": Patch(facecolor=look.colour, alpha=0.4),
        "5 to 95 %": Patch(facecolor=look.colour, alpha=0.16),
        f"{figure.error} = α": sheet.level_line(),
    }
    with sheet.style():
        drawn = sheet.sheet(title, caption, rows=2, columns=len(columns), legend=legend, height=1.75, foot=0.34)
        for j, (heading, picked) in enumerate(columns):
            for i, (field, name) in enumerate((("fdr", figure.error), ("power", figure.power))):
                axes, pick = drawn.panels[i][j], picked[0]
                quantiles = cells.values(result, ("fdp", "power")[i] + "_quantiles")[pick.cells[0], pick.method]
                for low, high, strength in ((0, 4, 0.16), (1, 3, 0.3)):
                    axes.fill_between(
                        alphas, quantiles[:, low], quantiles[:, high], color=look.colour, alpha=strength, linewidth=0
                    )
                mean = cells.values(result, field)[pick.cells[0], pick.method]
                axes.plot(alphas, mean, color=look.colour, marker=look.marker)
                axes.set_title(f"{name}, {heading}" if heading else name, loc="left", color=sheet.INK)
                if field == "fdr":
                    _diagonal(axes, alphas)
                axes.set_xlabel("level α" if i else "")
                axes.tick_params(labelleft=j == 0)
                axes.set_xticks(alphas)
            drawn.panels[1][j].set_ylim(0, 1.02)
        drawn.panels[0][0].set_ylabel("FDP: mean and spread")
        drawn.panels[1][0].set_ylabel(f"{figure.power}: mean and spread")
        drawn.panels[0][0].set_ylim(bottom=0)
    return drawn


def tradeoff(result: Any, figure: Figure, *, title: str, caption: str) -> sheet.Sheet:
    """One column a panel: the power against the error rate, a mark at each level."""
    columns = cells.picks(result, figure)
    error, power = cells.values(result, "fdr"), cells.values(result, "power")
    legend = {pick.label: sheet.line(sheet.stroke(i)) for i, pick in enumerate(columns[0][1])}
    marks = f"Marks are the levels α = {', '.join(f'{alpha:g}' for alpha in result.alphas)}."
    with sheet.style():
        drawn = sheet.sheet(title, f"{caption} {marks}", rows=1, columns=len(columns), legend=legend, height=2.35)
        for j, (heading, picked) in enumerate(columns):
            axes = drawn.panels[0][j]
            for i, pick in enumerate(picked):
                look, place = sheet.stroke(i), (pick.cells[0], pick.method)
                axes.plot(error[place], power[place], color=look.colour, marker=look.marker, linestyle=look.dashes)
            axes.set_title(heading, loc="left", color=sheet.INK)
            axes.set_xlabel(figure.error)
            axes.set_xlim(left=0)
            axes.set_ylim(0, 1.02)
            axes.tick_params(labelleft=j == 0)
        drawn.panels[0][0].set_ylabel(figure.power)
    return drawn


# --- parts of panels --------------------------------------------------------------------------------------------------


def _open(
    figure: Figure, lines: Sequence[Pick], title: str, caption: str, *, rows: int, drawn: str, height: float
) -> sheet.Sheet:
    legend = {pick.label: _handle(i, drawn) for i, pick in enumerate(lines)} if len(lines) > 1 else {}
    legend[f"{figure.error} = α"] = sheet.level_line()
    return sheet.sheet(title, caption, rows=rows, columns=2, legend=legend, height=height, foot=0.34, share_y=False)


def _handle(index: int, drawn: str) -> Any:
    """What the legend shows of a series, drawn as "lines", as "bars" or as "both"."""
    look = sheet.stroke(index)
    line = sheet.line(look)
    bar = Patch(facecolor=_light(look.colour, index), edgecolor=look.colour, hatch=look.hatch)
    return {"lines": line, "bars": bar, "both": (line, bar)}[drawn]


def _errors(axes: Any, result: Any, picked: Sequence[Pick], alphas: np.ndarray, figure: Figure) -> None:
    mean, error = cells.values(result, "fdr"), cells.values(result, "fdr_se")
    for i, pick in enumerate(picked):
        look, cell = sheet.stroke(i), pick.cells[0]
        axes.errorbar(
            alphas,
            mean[cell, pick.method],
            2 * np.nan_to_num(error[cell, pick.method]),
            color=look.colour,
            marker=look.marker,
            linestyle=look.dashes,
            capsize=2,
            elinewidth=0.8,
            zorder=3,
        )
    _diagonal(axes, alphas)
    axes.set_ylim(bottom=0)
    _level_axis(axes, alphas)


def _power_lines(axes: Any, result: Any, picked: Sequence[Pick], alphas: np.ndarray, field: str) -> None:
    mean, error = cells.values(result, field), cells.values(result, f"{field}_se")
    for i, pick in enumerate(picked):
        look, cell = sheet.stroke(i), pick.cells[0]
        axes.errorbar(
            alphas,
            mean[cell, pick.method],
            2 * np.nan_to_num(error[cell, pick.method]),
            color=look.colour,
            marker=look.marker,
            linestyle=look.dashes,
            capsize=2,
            elinewidth=0.8,
        )
    axes.set_ylim(0, 1.02)
    _level_axis(axes, alphas)


def _power_bars(axes: Any, result: Any, picked: Sequence[Pick], alphas: np.ndarray, field: str) -> None:
    mean, error = cells.values(result, field), cells.values(result, f"{field}_se")
    width = 0.84 / len(picked)
    for i, pick in enumerate(picked):
        look, cell = sheet.stroke(i), pick.cells[0]
        axes.bar(
            np.arange(len(alphas)) + (i - (len(picked) - 1) / 2) * width,
            mean[cell, pick.method],
            width * 0.92,
            yerr=2 * np.nan_to_num(error[cell, pick.method]),
            color=_light(look.colour, i),
            edgecolor=look.colour,
            hatch=look.hatch,
            linewidth=0.8,
            error_kw={"elinewidth": 0.8, "capsize": 1.5, "ecolor": sheet.INK},
        )
    axes.set_xticks(np.arange(len(alphas)), [f"{alpha:g}" for alpha in alphas])
    axes.set_xlim(-0.6, len(alphas) - 0.4)
    axes.set_ylim(0, 1.02)
    axes.grid(axis="x", visible=False)


def _diagonal(axes: Any, alphas: np.ndarray) -> None:
    """The level itself."""
    ends = (0.0, alphas.max() * 1.04)
    axes.plot(ends, ends, **sheet.LEVEL)


def _label(drawn: sheet.Sheet, figure: Figure) -> None:
    for left, right in drawn.panels:
        left.set_ylabel(f"{figure.error}, ± 2 s.e.")
        right.set_ylabel(f"{figure.power}, ± 2 s.e.")
    for axes in drawn.panels[-1]:
        axes.set_xlabel("level α")


def _level_axis(axes: Any, alphas: np.ndarray) -> None:
    """Levels on the horizontal axis, six named at most."""
    room = 0.06 * (alphas.max() - alphas.min() or alphas.max())
    axes.set_xlim(max(0.0, alphas.min() - room), alphas.max() + room)
    named = alphas[:: -(-len(alphas) // 6)]
    axes.set_xticks(named, [f"{alpha:g}" for alpha in named])


def _light(colour: str, index: int) -> str:
    """The first series is a full bar; the others are pale under their hatching."""
    share = 1.0 if index == 0 else 0.22
    red, green, blue = (1 - share * (1 - channel) for channel in to_rgb(colour))
    return to_hex((red, green, blue))
