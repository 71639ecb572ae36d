"""A study's result as series and panels, and the names of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.study.named.record import Figure
from tdd.validate import printable

__all__ = ["Pick", "picks", "values"]


class Pick(NamedTuple):
    """One line: its label, the cell or cells along which it runs, and the method."""

    label: str
    cells: tuple[int, ...]
    method: int


def values(result: Any, field: str) -> np.ndarray:
    """An array of a result with its axes [cell, method, alpha, ...], also where the study has no grid."""
    array = np.asarray(result.measures[field] if field in result.measures else getattr(result, field), np.float64)
    return array[None] if array.ndim == 2 + field.endswith("_quantiles") else array


def picks(result: Any, figure: Figure) -> list[tuple[str, list[Pick]]]:
    """Panels, each a heading and its lines.

    A line stands for one method (the last, where neither panels nor series are methods), and for the cells that agree
    in the fields of its panel and of its series. A field that the cells do not have divides nothing.
    """
    panels, series = (
        field if field == "method" or field in result.cells[0] else "" for field in (figure.panels, figure.series)
    )
    drawn = []
    for panel in _values(result, panels):
        lines = []
        for value in _values(result, series):
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


def _values(result: Any, field: str) -> Sequence[Any]:
    if not field:
        return ("",)
    return result.methods if field == "method" else [*{str(cell[field]): cell[field] for cell in result.cells}.values()]
