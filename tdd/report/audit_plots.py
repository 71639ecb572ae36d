"""Pictures of an audit: scores with the cut, knockoff statistics, p-values with the step-up line, bounds of cuts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tdd.report.plots.sheet import INK, short, stroke

_MOST_POINTS = 600
_LONGEST = 60
_SIZE = (7.2, 2.9)


def scores(items: Mapping[str, Any], calibration: Mapping[str, Any], column: str, cut: float | None) -> Figure:
    """Distribution functions of the deciding score among calibration items and candidates."""
    figure, axes = _panel(short(column, _LONGEST) + " (lower = more member-like)", "fraction of items at or below")
    for place, (name, table) in enumerate((("calibration items", calibration), ("candidates", items))):
        values = _finite(table[column])
        look = stroke(place)
        axes.step(
            *_ecdf(values), where="post", color=look.colour, linestyle=look.dashes, label=f"{name} ({values.size:,})"
        )
    if cut is not None:
        axes.axvline(cut, color=INK, linewidth=1, linestyle=":", label="least extreme selected score")
    axes.legend(frameon=False, loc="best")
    return figure


def p_values(items: Mapping[str, Any], decision: Mapping[str, Any], line: bool) -> Figure:
    """Distribution function of the p-values, beside the line of the step-up procedure where there is one."""
    figure, axes = _panel("p-value t", "fraction of candidates with p ≤ t")
    values = _finite(items["p_value"])
    look, reference = stroke(0), stroke(1)
    axes.step(*_ecdf(values), where="post", color=look.colour, label=f"p-values of {values.size:,} candidates")
    if line:
        scale = 1 - decision["proportion"]
        end = min(1.0, decision["alpha"] / scale) if scale > 0 else 1.0
        label = "α-line" + ("" if scale == 1 else f", null proportion {scale:.2f}")
        axes.plot([0, end], [0, end * scale / decision["alpha"]], color=reference.colour, linestyle="--", label=label)
    if decision["num_selected"] and decision["threshold"]:
        axes.axvline(decision["threshold"], color=INK, linewidth=1, linestyle=":", label="largest selected p-value")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    axes.legend(frameon=False, loc="lower right")
    return figure


def statistics(items: Mapping[str, Any], decision: Mapping[str, Any]) -> Figure:
    """Numbers of candidates with a knockoff statistic of at least t and of at most -t, which the rule compares."""
    figure, axes = _panel("t", "candidates")
    values = _finite(items["statistic"])
    sizes = np.unique(np.abs(values[values != 0]))
    what = "W" if decision["method"] == "ktd/ktd" else "gap"
    for place, (side, name) in enumerate(((values, f"{what} ≥ t"), (-values, f"{what} ≤ -t"))):
        count = values.size - np.searchsorted(np.sort(side), sizes, side="left")
        look = stroke(place)
        axes.step(*_thinned(sizes, count), where="pre", color=look.colour, linestyle=look.dashes, label=name)
    chosen = np.asarray(items["selected"], bool) & ~np.isnan(_numbers(items["statistic"]))
    if decision["num_selected"] and chosen.any():
        cut = _numbers(items["statistic"])[chosen].min()
        axes.axvline(cut, color=INK, linewidth=1, linestyle=":", label=f"smallest selected {what}")
    axes.set(xlim=(0, None), ylim=(0, None))
    axes.legend(frameon=False, loc="upper right")
    return figure


def bounds(items: Mapping[str, Any], decision: Mapping[str, Any]) -> Figure:
    """The simultaneous bound of the list that is cut at each candidate."""
    figure, axes = _panel("length of the list, most extreme first", "upper bound of the FDP")
    bound = _numbers(items["fdp_bound"])
    extreme = _numbers(items["p_value"])
    if np.isnan(extreme).all():
        extreme = -_numbers(items["statistic"])
    known = ~np.isnan(bound) & ~np.isnan(extreme)
    length = np.searchsorted(np.sort(extreme[known]), extreme[known], side="right")
    lengths, first = np.unique(length, return_index=True)
    look = stroke(0)
    axes.step(*_thinned(lengths, bound[known][first]), where="post", color=look.colour, label="bound")
    if decision["num_selected"]:
        axes.axvline(decision["num_selected"], color=INK, linewidth=1, linestyle=":", label="the selection")
    axes.set(xlim=(0, None), ylim=(0, 1.02))
    axes.legend(frameon=False, loc="best")
    return figure


def _panel(x: str, y: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=x, ylabel=y)
    return figure, axes


def _ecdf(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values = np.sort(values)
    return _thinned(np.concatenate([values[:1], values]), np.arange(values.size + 1) / max(values.size, 1))


def _thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most some hundred points, evenly spaced, the ends among them."""
    if len(x) <= _MOST_POINTS:
        return x, y
    chosen = np.linspace(0, len(x) - 1, _MOST_POINTS).round().astype(int)
    return x[chosen], y[chosen]


def _numbers(values: Any) -> np.ndarray:
    """A column in single precision, an empty cell as NaN: the same from memory and from its file."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu":
        values = np.array([float(value) if value != "" else np.nan for value in values])
    return values.astype(np.float32).astype(float)


def _finite(values: Any) -> np.ndarray:
    numbers = _numbers(values)
    return numbers[np.isfinite(numbers)]
