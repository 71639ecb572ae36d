"""Power of both kinds of question over copies, a line a number of epochs, a column a model size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from benchmarks.reproductions.figures.offset_bars import log_p_axis
from benchmarks.reproductions.power_grid import ALPHA
from benchmarks.reproductions.record import Outcome, Row
from tdd.report.plots import sheet

__all__ = ["draw"]

_APART = 0.14


def draw(outcome: Outcome) -> sheet.Sheet:
    """Above, power and FDP of PTDI over the copies of an item; below, the p-values of data sets, a mark each."""
    widths = sorted({row["width"] for row in outcome.rows})
    epochs = sorted({row["epochs"] for row in outcome.rows})
    copies = sorted({row["copies"] for row in outcome.rows})
    legend: dict[str, Any] = {}
    for i, number in enumerate(epochs):
        legend["1 epoch" if number == 1 else f"{number} epochs"] = sheet.line(sheet.stroke(i))
    legend["FDP (open marks)"] = Line2D([], [], color=sheet.INK, marker="o", markerfacecolor="none", linestyle="")
    legend["level"] = sheet.level_line()
    with sheet.style():
        drawn = sheet.sheet(
            outcome.title, _caption(outcome), rows=2, columns=len(widths), legend=legend, height=2.1, foot=0.14,
        )  # fmt: skip
        for j, width in enumerate(widths):
            above, below = drawn.panels[0][j], drawn.panels[1][j]
            mine = [row for row in outcome.rows if row["width"] == width]
            for i, number in enumerate(epochs):
                look, aside = sheet.stroke(i), (i - (len(epochs) - 1) / 2) * _APART
                _items(above, [row for row in mine if row["epochs"] == number], copies, look, aside)
                _sets(below, [row for row in mine if row["epochs"] == number], copies, look, aside)
            above.set_title(f"width {width}, {mine[0]['parameters']:,} parameters", loc="left", color=sheet.INK)
            above.axhline(ALPHA, **sheet.LEVEL)
            below.axhline(math.log10(0.05), **sheet.LEVEL)
            above.tick_params(labelbottom=False, labelleft=j == 0)
            below.tick_params(labelleft=j == 0)
            below.set_xticks(np.arange(len(copies)), [str(count) for count in copies])
            below.set_xlim(-0.5, len(copies) - 0.5)
            below.xaxis.set_minor_locator(NullLocator())
            below.set_xlabel("copies in the training data")
        drawn.panels[0][0].set_ylim(-0.03, 1.03)
        drawn.panels[0][0].set_ylabel(f"items: power and FDP at {ALPHA:g}")
        drawn.panels[1][0].set_ylabel("data sets: p-value")
        log_p = [row["log_p_value"] for row in outcome.rows if row["question"] == "data set"]
        log_p_axis(drawn.panels[1][0], min(-2, min(log_p) / math.log(10)))
    return drawn


def _items(axes: Any, rows: Sequence[Row], copies: Sequence[int], look: sheet.Stroke, aside: float) -> None:
    mine = [row for row in rows if row["question"] == "items"]
    places = [copies.index(row["copies"]) + aside for row in mine]
    shape = {"color": look.colour, "marker": look.marker}
    axes.plot(places, [row["power"] for row in mine], linestyle=look.dashes, zorder=3, **shape)
    axes.plot(
        places, [row["fdp"] for row in mine], linestyle="", markerfacecolor="none", markersize=3.4, zorder=2, **shape
    )


def _sets(axes: Any, rows: Sequence[Row], copies: Sequence[int], look: sheet.Stroke, aside: float) -> None:
    mine = [row for row in rows if row["question"] == "data set"]
    medians = []
    for place, count in enumerate(copies):
        log_p = [row["log_p_value"] / math.log(10) for row in mine if row["copies"] == count]
        axes.plot(
            np.full(len(log_p), place + aside), log_p, linestyle="", color=look.colour, marker=look.marker,
            markerfacecolor="none", markersize=3.4, markeredgewidth=0.8, zorder=3,
        )  # fmt: skip
        medians.append(float(np.median(log_p)))
    axes.plot(
        np.arange(len(copies)) + aside, medians, color=look.colour, linestyle=look.dashes, linewidth=1, alpha=0.75
    )


def _caption(outcome: Outcome) -> str:
    design = outcome.provenance["settings"]
    return (
        f"Each model is a GPT-2 trained from random parameters. Above: PTDI with Storey's estimate on the mean loss, "
        f"{design['items']} members of each number of copies against {design['nonmembers']} non-members, means over "
        f"{design['repetitions']:,} random divisions of one model's scores into halves. "
        f"Below: the combined test of canonical order, {design['sets']} sets of each number of copies, "
        f"{5 * design['num_shards']} examples in {design['num_shards']} shards, {design['num_shuffles']} shuffles; "
        f"a mark a set, a line through the medians. "
        f"Sets of 0 copies were not planted. Seed {outcome.provenance['seed']}, scale {outcome.provenance['scale']:g}."
    )
