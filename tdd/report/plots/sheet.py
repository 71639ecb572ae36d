"""A sheet of panels: title and legend above them, caption below.

Series are told apart by colour (Okabe & Ito's palette, which colour-blind readers can tell apart), by marker and line
style, and bars by hatching: a copy in grey loses nothing. Files hold neither dates nor random identifiers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D

from tdd.runs.atomic import atomic_path
from tdd.validate import printable

INK = "#333333"
LEVEL: dict[str, Any] = {"color": "#777777", "linewidth": 1.1, "linestyle": (0, (1, 2)), "zorder": 1}

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1)), (0, (8, 2)), "-.")
_HATCHES = ("", "////", "++++", "\\\\\\\\", "xxxx", "----", "||||")

_WIDTH = 7.2
_PANEL_TITLE, _AXIS = 0.24, 0.6  # inches above each panel and below the last row
_METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}  # nothing that changes between runs

_STYLE = {
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.2,
    "hatch.linewidth": 0.6,
    "savefig.dpi": 200,
    "svg.hashsalt": "tdd",
    "text.parse_math": False,  # names come from outside
}


@dataclasses.dataclass(frozen=True)
class Stroke:
    """Colour, marker, line style and hatching of a series."""

    colour: str
    marker: str
    dashes: Any
    hatch: str


@dataclasses.dataclass(frozen=True)
class Sheet:
    """A figure and its panels, [rows][columns]."""

    figure: Figure
    panels: list[list[Any]]


def stroke(index: int) -> Stroke:
    """The look of a series; colours repeat after seven, with another marker, line style and hatching."""
    i, j = index % len(_COLOURS), (index + index // len(_COLOURS)) % len(_COLOURS)
    return Stroke(_COLOURS[i], _MARKERS[j], _DASHES[j], _HATCHES[j])


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Fonts, lines and salts while drawing; matplotlib's own settings are restored afterwards."""
    settings: Any = {**matplotlib.rcParamsDefault, "backend": matplotlib.rcParams["backend"], **_STYLE}
    with matplotlib.rc_context(settings):
        yield


def sheet(
    title: str,
    caption: str,
    *,
    rows: int,
    columns: int,
    legend: Mapping[str, Any] | None = None,
    height: float = 2.2,
    foot: float = 0.5,
    share_x: bool = True,
    share_y: bool = True,
) -> Sheet:
    """Make panels to draw on inside `style()`; matplotlib lays them out when they are drawn.

    Args:
      title: above the legend, and the caption below the panels; both are wrapped.
      rows: rows and columns of panels, `height` inches high, with `foot` inches for the axis below all rows but the
        last.
      legend: labels and their artists (a tuple of artists is drawn as one), in rows below the title.
      share_x: the same horizontal axis in every panel of a column.
      share_y: the same vertical axis in every panel of a row, with tick labels at the first.
    """
    figure = Figure((_WIDTH, 1.0), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06))
    FigureCanvasAgg(figure)
    below = figure.supxlabel(
        "\n".join(textwrap.wrap(printable(caption), 130, break_on_hyphens=False)),
        x=0.02,
        ha="left",
        fontsize=7,
        color=INK,
    )
    around = [_heading(figure, title, legend or {}), below]
    height_of_words = sum(artist.get_window_extent().height for artist in around) / figure.dpi
    figure.set_size_inches(_WIDTH, height_of_words + rows * (_PANEL_TITLE + height) + (rows - 1) * foot + _AXIS)
    panels = figure.subplots(
        rows, columns, sharex="col" if share_x else "none", sharey="row" if share_y else "none", squeeze=False
    )
    for axes in panels.flat:
        axes.tick_params(labelbottom=True)
    return Sheet(figure, panels.tolist())


def error_line(axes: Any, x: Any, mean: np.ndarray, error: np.ndarray, look: Stroke, **options: Any) -> None:
    """Draw means as a line with two standard errors up and down; unknown errors are not drawn."""
    style = {"color": look.colour, "marker": look.marker, "linestyle": look.dashes, **options}
    axes.errorbar(x, mean, 2 * np.nan_to_num(error), capsize=2, elinewidth=0.8, zorder=3, **style)


def line(look: Stroke) -> Line2D:
    """The legend's entry for a line."""
    return Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.dashes)


def level_line() -> Line2D:
    """The legend's entry for the level that an error rate should not cross; draw it with `LEVEL`."""
    return Line2D([], [], **LEVEL)


def short(name: str, longest: int) -> str:
    """A name that can be drawn: control characters spelled out, long names without their middle."""
    name = printable(name)
    if len(name) > longest:
        half = (longest - 1) // 2
        name = f"{name[: longest - 1 - half]}…{name[-half:]}"
    return name


def save(drawn: Sheet | Figure, path: pathlib.Path) -> pathlib.Path:
    """Write a figure whole or not at all, in the format of the path's ending; the same figure gives the same bytes."""
    figure = drawn.figure if isinstance(drawn, Sheet) else drawn
    kind = path.suffix[1:]
    with atomic_path(path) as temporary, style():
        figure.savefig(temporary, format=kind, metadata=_METADATA[kind])
    return path


def _heading(figure: Figure, title: str, legend: Mapping[str, Any]) -> Legend:
    """The title and below it the legend, as many entries side by side as fit."""
    columns = max(1, len(legend))
    while True:
        heading = figure.legend(
            [*legend.values()],
            [*map(printable, legend)],
            title="\n".join(textwrap.wrap(printable(title), 84, break_on_hyphens=False)),
            title_fontproperties={"size": 9.5, "weight": "bold"},
            alignment="left",
            handler_map={tuple: HandlerTuple(ndivide=None, pad=0.3)},
            loc="outside upper left",
            ncols=columns,
            frameon=False,
            handlelength=3.0,
            columnspacing=1.6,
            labelspacing=0.35,
        )
        if columns == 1 or heading.get_window_extent().width <= figure.bbox.width:
            return heading
        heading.remove()
        columns -= 1
