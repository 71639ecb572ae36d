"""A study's result as series and panels: which line is which, and what people call it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.study.named.record import Figure

__all__ = ["Pick", "grid", "name_of", "picks", "values"]


class Pick(NamedTuple):
    """One line: the cell and the method it shows (of all cells, where it runs along them)."""

    label: str
    cells: tuple[int, ...]
    method: int


def values(result: Any, field: str) -> np.ndarray:
    """An array of a result with its axes [cell, method, alpha, ...], also where the study has no grid."""
    array = np.asarray(result.measures[field] if field in result.measures else getattr(result, field), np.float64)
    return array[None] if array.ndim == 2 + field.endswith("_quantiles") else array


def grid(result: Any, field: str) -> list[Any]:
    """The values of a field of the cells, in the order of appearance."""
    return list(dict.fromkeys(cell[field] for cell in result.cells))


def picks(result: Any, figure: Figure) -> list[tuple[str, list[Pick]]]:
    """Panels, each a heading and its lines.

    A line stands for one method (the last, where neither panels nor series are methods), and for the cells that agree
    in the fields of its panel and of its series. A field that the cells do not have divides nothing.
    """
    panels, series = (field if _is_there(result, field) else "" for field in (figure.panels, figure.series))
    found = []
    for panel in _values(result, panels):
        lines = []
        for one in _values(result, series):
            wanted = {panels: panel, series: one}
            fields = {field: value for field, value in wanted.items() if field not in ("", "method")}
            matching = [i for i, cell in enumerate(result.cells) if fields.items() <= cell.items()]
            method = result.methods.index(wanted["method"]) if "method" in wanted else len(result.methods) - 1
            lines.append(Pick(name_of(figure.labels, series, one), tuple(matching), method))
        found.append((name_of(figure.labels, panels, panel) if panels else "", lines))
    return found


def name_of(labels: Mapping[str, str], field: str, value: Any) -> str:
    """What people call a method, or a field at one of its values."""
    if field == "method" or field == "":
        return labels.get(str(value), str(value))
    shown = f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
    return f"{labels[field]} = {shown}" if field in labels else labels.get(shown, shown)


def _is_there(result: Any, field: str) -> bool:
    return field == "method" or field in result.cells[0]


def _values(result: Any, field: str) -> Sequence[Any]:
    if not field:
        return ("",)
    return result.methods if field == "method" else grid(result, field)
