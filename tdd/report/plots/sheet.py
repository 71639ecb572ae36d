"""One sheet: panels in a grid, the title and the legend above them, the caption below, all off the data.

Series are told apart by colour (Okabe & Ito's palette, which colour-blind readers can tell apart), by marker and line
style, and bars by hatching: a copy in grey loses nothing. Files hold neither dates nor random identifiers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import pathlib
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from PIL import Image

from tdd.runs.atomic import atomic_path

__all__ = ["FORMATS", "INK", "LEVEL", "Sheet", "Stroke", "level_line", "line", "save", "sheet", "stroke", "style"]

FORMATS = ("png", "svg")
INK = "#333333"
LEVEL: dict[str, Any] = {"color": "#777777", "linewidth": 1.1, "linestyle": (0, (1, 2)), "zorder": 1}

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1)), (0, (8, 2)), "-.")
_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "||||")

_WIDTH = 7.2
_LEFT, _RIGHT, _GAP, _BETWEEN = 0.68, 0.2, 0.78, 0.42  # inches around and between panels
_EDGE = _LEFT / 4 / _WIDTH
_TITLE, _LEGEND, _CAPTION, _AXIS, _HEAD = 0.21, 0.2, 0.145, 0.5, 0.24  # height of a line of each, in inches

_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.5,
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
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "svg.fonttype": "path",
    "svg.hashsalt": "tdd",
    "text.usetex": False,
    "path.simplify": True,
}


@dataclasses.dataclass(frozen=True)
class Stroke:
    """How one series looks."""

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
    """Fonts, lines and salts for the time of drawing; matplotlib's own settings are as they were afterwards."""
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
    """Lay out panels with room for everything around them.

    Args:
      title: of the design; wrapped.
      caption: below, wrapped.
      rows: of panels.
      columns: of panels.
      legend: labels and their artists (a tuple of artists is drawn as one), in rows below the title.
      height: of a panel, in inches.
      foot: room for the horizontal axis below a row that is not the last, in inches.
      share_x: the same horizontal axis in every panel of a column.
      share_y: the same vertical axis in every panel of a row.

    Returns:
      `Sheet`; draw on its panels inside `style()`.
    """
    titles = textwrap.wrap(title, 84, break_on_hyphens=False)
    captions = textwrap.wrap(caption, 130, break_on_hyphens=False)
    legend = legend or {}
    per_row = _per_row(list(legend))
    legend_rows = -(-len(legend) // per_row)
    top = 0.1 + _TITLE * len(titles) + _LEGEND * legend_rows + 0.06
    bottom = 0.12 + _CAPTION * len(captions)
    total = top + rows * (_HEAD + height) + (rows - 1) * foot + _AXIS + bottom
    figure = Figure(figsize=(_WIDTH, total))
    FigureCanvasAgg(figure)
    figure.text(_EDGE, 1 - 0.1 / total, "\n".join(titles), va="top", ha="left", fontsize=9.5, weight="bold")
    figure.text(_EDGE, 0.09 / total, "\n".join(captions), va="bottom", ha="left", fontsize=7, color=INK)
    if legend:
        figure.legend(
            list(legend.values()),
            list(legend),
            handler_map={tuple: HandlerTuple(ndivide=None, pad=0.3)},
            loc="upper left",
            bbox_to_anchor=(_EDGE - 0.006, 1 - (0.1 + _TITLE * len(titles)) / total),
            ncols=per_row,
            frameon=False,
            borderpad=0.2,
            borderaxespad=0,
            handlelength=3.0,
            columnspacing=1.6,
            labelspacing=0.35,
        )
    gap = _BETWEEN if share_y else _GAP
    width = (_WIDTH - _LEFT - _RIGHT - (columns - 1) * gap) / columns
    panels: list[list[Any]] = []
    for i in range(rows):
        line: list[Any] = []
        low = total - top - (i + 1) * (_HEAD + height) - i * foot
        for j in range(columns):
            box = ((_LEFT + j * (width + gap)) / _WIDTH, low / total, width / _WIDTH, height / total)
            shared_x = panels[0][j] if share_x and i else None
            shared_y = line[0] if share_y and j else None
            axes = figure.add_axes(box, sharex=shared_x, sharey=shared_y)
            line.append(axes)
        panels.append(line)
    return Sheet(figure, panels)


def line(look: Stroke) -> Line2D:
    """What the legend shows of a line."""
    return Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.dashes)


def level_line() -> Line2D:
    """What the legend shows of the level that an error rate should not cross; draw it with `LEVEL`."""
    return Line2D([], [], **LEVEL)


def save(drawn: Sheet, path: pathlib.Path) -> None:
    """Write a sheet whole or not at all; the same sheet gives the same bytes.

    Args:
      drawn: the sheet.
      path: its ending, .png or .svg, chooses the format.
    """
    with atomic_path(path) as temporary, style():
        if path.suffix == ".svg":
            drawn.figure.savefig(temporary, format="svg", metadata={"Date": None, "Creator": None})
        else:
            _save_png(drawn.figure, temporary)


def _save_png(figure: Figure, path: pathlib.Path) -> None:
    """256 colours: a few lines and their smoothed edges need no more, and the file is a third as large."""
    raw = io.BytesIO()
    figure.savefig(raw, format="png")
    with Image.open(raw) as image:
        few = image.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        few.save(path, format="png", optimize=True, dpi=image.info["dpi"])


def _per_row(labels: list[str]) -> int:
    """How many legend entries fit side by side; columns are filled from the top, each as wide as its longest label."""
    for columns in range(len(labels), 1, -1):
        rows = -(-len(labels) // columns)
        widths = [max(map(len, labels[i : i + rows])) * 0.068 + 0.66 for i in range(0, len(labels), rows)]
        if len(widths) == columns and sum(widths) <= _WIDTH - 0.3:
            return columns
    return 1
