"""The figures of a named study: error rate and power by level or parameter, or one against the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator
from matplotlib.transforms import ScaledTranslation

from tdd.report.plots import sheet, single_repetition
from tdd.study.named.record import Example, Figure
from tdd.validate import printable

_MOST_BARS = 32


def draw(result: Any, figure: Figure, *, title: str, caption: str = "") -> sheet.Sheet:
    """The figure of a `StudyResult`; the number of repetitions is added to the caption, which describes the design."""
    words = " ".join(part for part in (_sentence(caption), _repetitions(result)) if part)
    if figure.kind == "parameter":
        more = " The tables have every level." if len(result.alphas) > 1 else ""
        return _parameter(result, figure, title, f"{words}{more}")
    drawing = {"levels": _levels, "bands": _bands, "bars": _bars_by_level, "tradeoff": _tradeoff}[figure.kind]
    return drawing(result, figure, title, words)


def draw_example(example: Example) -> sheet.Sheet:
    """The figure of one repetition."""
    drawing = {"staircase": single_repetition.staircase, "envelope": single_repetition.envelope}[example.kind]
    return drawing(example.arrays, title=example.title, caption=_sentence(example.caption))


def _sentence(words: str) -> str:
    return words and words[0].upper() + words[1:].rstrip(".") + "."


def _repetitions(result: Any) -> str:
    counts = np.unique(np.atleast_1d(result.repetitions))
    where = " in each cell" if len(result.cells) > 1 else ""
    if len(counts) == 1:
        return f"{counts[0]:,} repetitions{where}."
    return f"{counts[0]:,} to {counts[-1]:,} repetitions{where}."


# --- series and panels ------------------------------------------------------------------------------------------------


class Pick(NamedTuple):
    """One line: its label, the cell or cells along which it runs, and the method."""

    label: str
    cells: tuple[int, ...]
    method: int


def values(result: Any, field: str) -> np.ndarray:
    """An array of a result with its axes [cell, method, alpha, ...], also where the study has no grid."""
    array = np.asarray(result.measures[field] if field in result.measures else getattr(result, field), np.float64)
    return array[None] if array.ndim == 2 + field.endswith("_quantiles") else array


def _measured(result: Any, field: str) -> tuple[np.ndarray, np.ndarray]:
    """Means and their standard errors, with the axes of `values`."""
    return values(result, field), values(result, f"{field}_se")


def picks(result: Any, figure: Figure) -> list[tuple[str, list[Pick]]]:
    """Panels, each a heading and its lines.

    A line stands for one method (the last, where neither panels nor series are methods), and for the cells that agree
    in the fields of its panel and of its series. A field that the cells do not have divides nothing.
    """
    panels, series = (
        field if field == "method" or field in result.cells[0] else "" for field in (figure.panels, figure.series)
    )
    drawn = []
    for panel in _distinct(result, panels):
        lines = []
        for value in _distinct(result, series):
            wanted = {panels: panel, series: value}
            fields = {field: str(value) for field, value in wanted.items() if field not in ("", "method")}
            matching = [
                i
                for i, cell in enumerate(result.cells)
                if fields.items() <= {name: str(value) for name, value in cell.items()}.items()
            ]
            method = result.methods.index(wanted["method"]) if "method" in wanted else len(result.methods) - 1
            lines.append(Pick(_label(figure.labels, series, value), tuple(matching), method))
        drawn.append((_label(figure.labels, panels, panel) if panels else "", lines))
    return drawn


def _label(labels: Mapping[str, str], field: str, value: Any) -> str:
    """The label of a method, or of a field at one of its values."""
    if field in ("method", ""):
        return printable(labels.get(str(value), str(value)))
    shown = f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
    return printable(f"{labels[field]} = {shown}" if field in labels else labels.get(shown, shown))


def _distinct(result: Any, field: str) -> Sequence[Any]:
    if not field:
        return ("",)
    return result.methods if field == "method" else [*{str(cell[field]): cell[field] for cell in result.cells}.values()]


# --- against the level ------------------------------------------------------------------------------------------------


def _levels(result: Any, figure: Figure, title: str, caption: str) -> sheet.Sheet:
    """One row a panel: the error rate ± 2 standard errors, then the power, as bars if few, and further numbers."""
    rows = picks(result, figure)
    few = len(rows[0][1]) * len(result.alphas) <= _MOST_BARS
    height = 2.35 if len(rows) == 1 else 1.9
    with sheet.style():
        drawn = _rate_and_power(figure, rows, title, caption, drawn="both" if few else "lines", height=height)
        for (_, picked), (left, *others) in zip(rows, drawn.panels, strict=True):
            _lines(left, result, picked, "fdr")
            _diagonal(left, result)
            left.set_ylim(bottom=0)
            for axes, field in zip(others, figure.fields[1:], strict=True):
                (_bars if few else _lines)(axes, result, picked, field)
                axes.set_ylim(0, 1.02 if field == "power" else None)
    return drawn


def _bars_by_level(result: Any, figure: Figure, title: str, caption: str) -> sheet.Sheet:
    """Error rate and power as bars by level, with a mark at each level over the bars that belong to it."""
    rows = picks(result, figure)
    height = 2.35 if len(rows) < 3 else 1.75
    with sheet.style():
        drawn = _rate_and_power(figure, rows, title, caption, drawn="bars", height=height)
        for (_, picked), panels in zip(rows, drawn.panels, strict=True):
            for axes, field in zip(panels, figure.fields, strict=True):
                _bars(axes, result, picked, field)
                axes.set_ylim(0, 1.02)
            for i, alpha in enumerate(result.alphas):
                panels[0].plot((i - 0.45, i + 0.45), (alpha, alpha), **{**sheet.LEVEL, "color": "#000000", "zorder": 4})
    return drawn


def _bands(result: Any, figure: Figure, title: str, caption: str) -> sheet.Sheet:
    """One column a panel: mean and spread (5-95% and 25-75% of the repetitions) of error and power."""
    columns = picks(result, figure)
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
                quantiles = values(result, spread)[place]
                for low, high, strength in ((0, 4, 0.16), (1, 3, 0.3)):
                    axes.fill_between(
                        alphas, quantiles[:, low], quantiles[:, high], color=look.colour, alpha=strength, linewidth=0
                    )
                axes.plot(alphas, values(result, field)[place], color=look.colour, marker=look.marker)
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


def _tradeoff(result: Any, figure: Figure, title: str, caption: str) -> sheet.Sheet:
    """One column a panel: the power against the error rate, a mark at each level."""
    columns = picks(result, figure)
    error, power = values(result, "fdr"), values(result, "power")
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
    names = [_name(figure, field) for field in figure.fields]
    page = sheet.sheet(
        title, caption, rows=len(rows), columns=len(names), legend=legend, height=height, foot=0.34, share_y=False
    )
    for (heading, _), panels in zip(rows, page.panels, strict=True):
        for axes, name in zip(panels, names, strict=True):
            axes.set_title(f"{heading}: {name}" if heading else name, loc="left", color=sheet.INK)
            axes.set_ylabel(f"{name}, ± 2 s.e.")
    for axes in page.panels[-1]:
        axes.set_xlabel("level α")
    return page


def _lines(axes: Any, result: Any, picked: Sequence[Pick], field: str) -> None:
    alphas = np.asarray(result.alphas)
    mean, error = _measured(result, field)
    for i, pick in enumerate(picked):
        place = pick.cells[0], pick.method
        sheet.error_line(axes, alphas, mean[place], error[place], sheet.stroke(i))
    room = 0.06 * (alphas.max() - alphas.min() or alphas.max())
    axes.set_xlim(max(0.0, alphas.min() - room), alphas.max() + room)
    named = alphas[:: -(-len(alphas) // 6)]  # six at most
    axes.set_xticks(named, [f"{alpha:g}" for alpha in named])


def _bars(axes: Any, result: Any, picked: Sequence[Pick], field: str) -> None:
    num_levels, width = len(result.alphas), 0.84 / len(picked)
    mean, error = _measured(result, field)
    for i, pick in enumerate(picked):
        look, place = sheet.stroke(i), (pick.cells[0], pick.method)
        axes.bar(
            np.arange(num_levels) + (i - (len(picked) - 1) / 2) * width,
            mean[place],
            width * 0.92,
            yerr=2 * np.nan_to_num(error[place]),
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


# --- against a parameter ----------------------------------------------------------------------------------------------


def _parameter(result: Any, figure: Figure, title: str, caption: str) -> sheet.Sheet:
    """Measures over a parameter at one level, side by side, or one above the other if there are several panels."""
    alpha = int(np.argmin(np.abs(np.asarray(result.alphas) - figure.level)))
    panels = picks(result, figure)
    level = result.alphas[alpha]
    looks = [sheet.stroke(i) for i in range(len(panels[0][1]))]
    legend = {pick.label: sheet.line(look) for look, pick in zip(looks, panels[0][1], strict=True)}
    names = [_name(figure, field) for field in figure.fields]
    rates, beside, last = "fdr" in figure.fields or "power" in figure.fields, len(panels) == 1, len(names) - 1
    if "fdr" in figure.fields:
        legend[f"{figure.error} = α"] = sheet.level_line()
    elif not rates:
        legend["0"] = sheet.level_line()
    legend |= {
        figure.labels.get(f"{field}_bound", f"bound on the {name}"): sheet.line(_BOUND)
        for field, name in zip(figure.fields, names, strict=True)
        if f"{field}_bound" in result.measures
    }
    at = f" at α = {level:g}" if rates else ""
    with sheet.style():
        drawn = sheet.sheet(
            title,
            caption,
            rows=1 if beside else len(names),
            columns=len(names) if beside else len(panels),
            legend=legend,
            height=2.35 if beside else 1.75,
            foot=0.14,
            share_y=not beside,
        )
        for j, (heading, picked) in enumerate(panels):
            for i, (field, name) in enumerate(zip(figure.fields, names, strict=True)):
                axes = drawn.panels[0][i] if beside else drawn.panels[i][j]
                _lines_over(axes, result, figure, picked, field, alpha)
                axes.set_title(f"{name}, {heading}" if heading else name, loc="left", color=sheet.INK)
                axes.tick_params(labelbottom=beside or i == last)
                if j == 0:
                    axes.set_ylabel(f"{name}{at}, ± 2 s.e.")
                if beside or i == last:
                    axes.set_xlabel(figure.labels.get(f"x: {heading}", figure.x_label or figure.x))
                if field == "fdr" or (i == 0 and not rates):
                    axes.axhline(level if field == "fdr" else 0, **sheet.LEVEL)
                axes.set_ylim(*_ends(result, field, alpha, level))
    return drawn


_BOUND = sheet.Stroke("#777777", "", (0, (2, 2)), "")


def _name(figure: Figure, field: str) -> str:
    return {"fdr": figure.error, "power": figure.power}.get(field) or figure.labels.get(field, field)


def _ends(result: Any, field: str, alpha: int, level: float) -> tuple[float, float]:
    """Ends of the vertical axis."""
    if field == "power":
        return 0, 1.02
    if field != "fdr":
        return _room(result, field, alpha)
    mean, error = _measured(result, "fdr")
    ends = mean + 2 * np.nan_to_num(error)
    return 0, min(1.02, max(1.06 * np.nanmax(ends[..., alpha]), 1.25 * level))


def _room(result: Any, field: str, alpha: int) -> tuple[float, float]:
    """Ends of a vertical axis that holds 0 and all means with two standard errors."""
    mean, error = (array[..., alpha] for array in _measured(result, field))
    spread = 2 * np.nan_to_num(error)
    low, high = min(0.0, np.nanmin(mean - spread)), max(0.0, np.nanmax(mean + spread))
    room = 0.06 * (high - low) or 1.0
    return low - room * (low < 0), high + room


def _lines_over(axes: Any, result: Any, figure: Figure, picked: Sequence[Pick], field: str, alpha: int) -> None:
    """One line a series, with two standard errors up and down."""
    mean, error = _measured(result, field)
    numbers: list[float] = []
    for i, pick in enumerate(picked):
        place = np.asarray(pick.cells, int), pick.method, alpha
        numbers = [float(result.cells[cell][figure.x]) for cell in pick.cells]
        aside = (i - (len(picked) - 1) / 2) * 1.2 / 72  # so that error bars at one place do not hide each other
        moved = axes.transData + ScaledTranslation(aside, 0, axes.figure.dpi_scale_trans)
        sheet.error_line(axes, numbers, mean[place], error[place], sheet.stroke(i), transform=moved)
        if f"{field}_bound" in result.measures:
            bound = values(result, f"{field}_bound")[place]
            axes.plot(numbers, bound, color=_BOUND.colour, linestyle=_BOUND.dashes)
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
