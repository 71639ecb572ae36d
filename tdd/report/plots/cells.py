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
    array = np.asarray(getattr(result, field), np.float64)
    return array[None] if array.ndim == 2 + field.endswith("_quantiles") else array


def grid(result: Any, field: str) -> list[Any]:
    """The values of a field of the cells, in the order of appearance."""
    return list(dict.fromkeys(cell[field] for cell in result.cells))


def picks(result: Any, figure: Figure) -> list[tuple[str, list[Pick]]]:
    """Panels, each a heading and its lines.

    A line stands for one method, and for the cells that agree in the fields of its panel and of its series.
    """
    found = []
    for panel in _values(result, figure.panels):
        lines = []
        for series in _values(result, figure.series):
            cells = [
                i
                for i, cell in enumerate(result.cells)
                if all(field in ("", "method") or cell[field] == value
                       for field, value in ((figure.panels, panel), (figure.series, series)))
            ]  # fmt: skip
            chosen = [value for field, value in ((figure.panels, panel), (figure.series, series)) if field == "method"]
            method = result.methods.index(chosen[0]) if chosen else len(result.methods) - 1
            lines.append(Pick(name_of(figure.labels, figure.series, series), tuple(cells), method))
        found.append((name_of(figure.labels, figure.panels, panel) if figure.panels else "", lines))
    return found


def name_of(labels: Mapping[str, str], field: str, value: Any) -> str:
    """What people call a method, or a field at one of its values."""
    if field == "method" or field == "":
        return labels.get(str(value), str(value))
    shown = f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
    return f"{labels[field]} = {shown}" if field in labels else labels.get(shown, shown)


def _values(result: Any, field: str) -> Sequence[Any]:
    if not field:
        return ("",)
    return result.methods if field == "method" else grid(result, field)
