"""The figure of a probe: evidence, scores, flagged items, canaries and gradients over the steps of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from tdd.report.exchange_plots import dot, powers
from tdd.report.plots import sheet
from tdd.report.probe import of_order

_SUSPECT, _REFERENCE, _CANARY, _GRADIENT = (sheet.stroke(i) for i in (1, 0, 2, 4))
_ALARM: dict[str, Any] = {"color": "#000000", "linewidth": 1.0, "linestyle": (0, (6, 2)), "zorder": 2}
_DENSE = 40
"""With more looks than this, lines have no markers."""


def draw(run: Mapping[str, Any], history: Mapping[str, np.ndarray]) -> sheet.Sheet:
    """The figure of a run (content of run.json and columns of history.csv): its looks, over the steps of training."""
    panels = [_evidence, _scores, *([] if of_order(run) else [_counts])]
    panels += [_exposure] if "canary_exposure_max" in history else []
    panels += [_gradients] if _gradient_columns(history) else []
    first = run["first_alarm"]
    place = "checkpoint" if run.get("checkpoints") else "step"
    alarm = "no alarm" if first is None else f"alarm at {place} {first:,}"
    without = "nothing depends on the published order" if of_order(run) else "no suspect was trained on"
    with sheet.style():
        drawn = sheet.sheet(
            f"{sheet.short(run['name'], 40)}: {alarm}",
            f"{run['looks']:,} looks. The anytime p-value holds at all of them together: if the assumptions hold and "
            f"{without}, it falls to the level at some look in at most that fraction of training runs."
            + ("" if of_order(run) else " Flagged suspects are those of all looks so far."),
            rows=len(panels),
            columns=1,
            legend=_legend(run, history),
            height=1.25,
            foot=0.12,
        )
        column = [row[0] for row in drawn.panels]
        last = column[-1]
        for panel, axes in zip(panels, column, strict=True):
            if first is not None:
                axes.axvline(first, **_ALARM)
            panel(axes, run, history)
            axes.tick_params(labelbottom=axes is last)
        drawn.figure.align_ylabels(column)
        last.set_xlabel("checkpoint" if run.get("checkpoints") else "step of training")
        last.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9))
        margin = 0.02 * max(1, history["step"][-1] - history["step"][0])
        last.set_xlim(history["step"][0] - margin, history["step"][-1] + margin)
        last.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    return drawn


def _legend(run: Mapping[str, Any], history: Mapping[str, np.ndarray]) -> dict[str, Any]:
    legend: dict[str, Any] = {
        "anytime p-value": Line2D([], [], color=_SUSPECT.colour, linewidth=1.6),
        "p-value of one look": dot(_REFERENCE.colour, "o", hollow=True),
        f"level {run['options']['alpha']:g}": sheet.level_line(),
    }
    if run["first_alarm"] is not None:
        legend["first alarm"] = Line2D([], [], **_ALARM)
    names = ("published order", "other orders") if of_order(run) else ("suspects", "references")
    legend |= dict(zip(names, map(sheet.line, (_SUSPECT, _REFERENCE)), strict=True))
    if "canary_exposure_max" in history:
        legend["canaries, largest"] = sheet.line(_CANARY)
        legend["canaries, median"] = Line2D(
            [], [], color=_CANARY.colour, marker=_CANARY.marker, markerfacecolor="white", ls=":"
        )
    if _gradient_columns(history):
        band = Patch(facecolor=_GRADIENT.colour, alpha=0.3)
        legend["gradient norms, median and range"] = (band, sheet.line(_GRADIENT))
    return legend


def _evidence(axes: Any, run: Mapping[str, Any], history: Mapping[str, np.ndarray]) -> None:
    steps, level = history["step"], np.log10(run["options"]["alpha"])
    anytime, alone = (_log10(history[name]) for name in ("anytime_p_value", "p_value"))
    axes.axhline(level, **sheet.LEVEL)
    axes.plot(
        steps, alone, linestyle="none", marker="o", color=_REFERENCE.colour, markerfacecolor="white",
        markersize=3.2 if steps.size <= _DENSE else 2, zorder=2,
    )  # fmt: skip
    axes.plot(steps, anytime, color=_SUSPECT.colour, linewidth=1.6, drawstyle="steps-post", zorder=3)
    axes.set_ylim(min(level, np.nanmin([0, *anytime, *alone])) - 0.35, 0.2)
    axes.set_ylabel("p-value")
    powers(axes.yaxis)


def _scores(axes: Any, run: Mapping[str, Any], history: Mapping[str, np.ndarray]) -> None:
    for look, name in ((_SUSPECT, "mean_suspect"), (_REFERENCE, "mean_reference")):
        _line(axes, history, name, look)
    axes.set_ylabel("mean score")


def _counts(axes: Any, run: Mapping[str, Any], history: Mapping[str, np.ndarray]) -> None:
    _line(axes, history, "num_flagged", _SUSPECT)
    most = np.nanmax([1, *history["num_flagged"]])
    axes.set_ylim(-0.04 * most, 1.08 * most)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    axes.set_ylabel("flagged")


def _exposure(axes: Any, run: Mapping[str, Any], history: Mapping[str, np.ndarray]) -> None:
    _line(axes, history, "canary_exposure_max", _CANARY)
    _line(axes, history, "canary_exposure_median", _CANARY, markerfacecolor="white", linestyle=":")
    axes.set_ylim(bottom=-0.2)
    axes.set_ylabel("exposure, bits")


def _gradients(axes: Any, run: Mapping[str, Any], history: Mapping[str, np.ndarray]) -> None:
    """The range in two shades, the middle one as a line, on a logarithmic scale where that can be."""
    columns = _gradient_columns(history)
    for low, high, alpha in zip(columns, columns[::-1], (0.15, 0.3), strict=False):
        if low < high:
            axes.fill_between(history["step"], history[low], history[high], color=_GRADIENT.colour, alpha=alpha, lw=0)
    _line(axes, history, columns[len(columns) // 2], _GRADIENT)
    if np.nanmin([1, *history[columns[0]]]) > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=6))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("gradient norm")


def _line(axes: Any, history: Mapping[str, np.ndarray], name: str, look: sheet.Stroke, **other: Any) -> None:
    style = {"marker": look.marker, "linestyle": look.dashes, "markersize": 3.4, **other}
    if history["step"].size > _DENSE:
        style["marker"] = ""
    axes.plot(history["step"], history[name], color=look.colour, zorder=3, **style)


def _gradient_columns(history: Mapping[str, np.ndarray]) -> list[str]:
    """Quantiles of gradient norms, the least first."""
    return sorted((name for name in history if name.startswith("grad_norm_q")), key=lambda name: int(name[11:]))


def _log10(values: np.ndarray) -> np.ndarray:
    return np.log10(np.maximum(values, 1e-300))
