"""p-values of every planted set by test and number of copies, and the size of each test where nothing was planted; the
mean ln p over numbers of shards and shuffles (the paper's figure 3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from benchmarks.reproductions.exchangeability import BY_SHARDS, BY_SHUFFLES, LEVELS, ROUNDING
from benchmarks.reproductions.figures.offset_bars import log_p_axis
from benchmarks.reproductions.order_tests import ORDER_TESTS
from benchmarks.reproductions.record import Outcome, Row
from tdd.report.plots import sheet

__all__ = ["draw"]

_SHOWN = ("combined", "rank_sum", "exact", "t", "permutation")
_APART = 0.15  # of the room of a number of copies, between two tests


def draw(outcome: Outcome) -> dict[str, sheet.Sheet]:
    """`figure`: p-values of the sets by copies, and sizes; `figure-shards-and-shuffles`: mean ln p."""
    return {"figure": _sets(outcome), "figure-shards-and-shuffles": _varied(outcome)}


def _sets(outcome: Outcome) -> sheet.Sheet:
    """Above, one mark a set and test, and a line through the medians; below, the sizes with two standard errors."""
    design, training = outcome.provenance["settings"], outcome.provenance["training"]
    tests = [test for test in _SHOWN if test in ORDER_TESTS]
    legend: dict[str, Any] = {}
    for i, test in enumerate(tests):
        look = sheet.stroke(i)
        legend[test] = Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.dashes)
    legend["α = .05, .01"] = sheet.level_line()
    with sheet.style():
        drawn = sheet.sheet(
            outcome.title,
            _caption(outcome, design, training),
            rows=2,
            columns=1,
            legend=legend,
            height=2.3,
            foot=0.55,
            share_x=False,
            share_y=False,
        )
        _p_values(drawn.panels[0][0], outcome.rows, tests)
        _sizes(drawn.panels[1][0], outcome.rows, tests)
    return drawn


def _varied(outcome: Outcome) -> sheet.Sheet:
    """Mean ln p, a line a test, with two standard errors: by shards on the left, by shuffles on the right."""
    design, tests = outcome.provenance["settings"], [test for test in _SHOWN if test in ORDER_TESTS]
    looks = {test: sheet.stroke(i) for i, test in enumerate(tests)}
    copies = [name.split()[1] for name in outcome.tables[BY_SHARDS][0] if name.startswith("t, ")]
    listed = f"{', '.join(copies[:-1])} or {copies[-1]}" if len(copies) > 1 else copies[0]
    with sheet.style():
        drawn = sheet.sheet(
            "Mean ln p by the numbers of shards and shuffles",
            f"{outcome.tables[BY_SHARDS][0]['sets']} sets planted {listed} times, all under the model of the figure by "
            f"copies; ± 2 standard errors over the sets. Left: k = {design['num_shuffles']} shuffles. Right: "
            f"r = {design['num_shards']} shards. Seed {outcome.provenance['seed']}, scale "
            f"{outcome.provenance['scale']:g}.",
            rows=1,
            columns=2,
            legend={test: sheet.line(look) for test, look in looks.items()} | {"α = .05": sheet.level_line()},
            share_x=False,
        )
        for axes, what, letter, title in zip(
            drawn.panels[0], ("shards", "shuffles"), "rk", (BY_SHARDS, BY_SHUFFLES), strict=True
        ):
            rows = outcome.tables[title]
            numbers = [row[what] for row in rows]
            for test, look in looks.items():
                told = [[float(part) for part in str(row[test]).split(" ± ")] for row in rows]
                mean, error = (np.array([(*each, math.nan)[i] for each in told]) for i in (0, 1))
                sheet.error_line(axes, numbers, mean, error, look)
            axes.axhline(math.log(LEVELS[1]), **sheet.LEVEL)
            axes.set_xscale("log")
            axes.set_xticks(numbers, [f"{number}" for number in numbers])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xlabel(f"{what}, {letter}")
        drawn.panels[0][0].set_ylabel("mean ln p over planted sets")
    return drawn


def _p_values(axes: Any, rows: Sequence[Row], tests: Sequence[str]) -> None:
    counts = sorted({row["copies"] for row in rows if row["copies"] > 0})
    floor = 0.0
    for i, test in enumerate(tests):
        look, medians = sheet.stroke(i), []
        aside = (i - (len(tests) - 1) / 2) * _APART
        for place, count in enumerate(counts):
            log_p = [_log10(row) for row in rows if row["copies"] == count and row["test"] == test]
            axes.plot(
                np.full(len(log_p), place + aside), log_p, linestyle="", marker=look.marker, markersize=3.6,
                color=look.colour, markerfacecolor="none", markeredgewidth=0.8, zorder=3,
            )  # fmt: skip
            medians.append(float(np.median(log_p)))
            floor = min(floor, *log_p)
        places = np.arange(len(counts)) + aside
        axes.plot(places, medians, color=look.colour, linestyle=look.dashes, linewidth=1, alpha=0.75, zorder=2)
    for level in LEVELS:
        axes.axhline(math.log10(level), **sheet.LEVEL)
    log_p_axis(axes, floor)
    axes.set_xticks(np.arange(len(counts)), [f"{count}" for count in counts])
    axes.set_xlim(-0.55, len(counts) - 0.45)
    axes.grid(axis="x", visible=False)
    for edge in np.arange(len(counts) - 1) + 0.5:
        axes.axvline(edge, color="#DDDDDD", linewidth=0.5, zorder=0)
    axes.set_xlabel("copies of a set in the training data")
    axes.set_ylabel("p-value")
    axes.set_title("Planted sets: a mark a set, a line through the medians", loc="left", color=sheet.INK)


def _sizes(axes: Any, rows: Sequence[Row], tests: Sequence[str]) -> None:
    """The distribution of the p-values of sets that were not planted, against the diagonal that it may not cross."""
    low, number = 1.0, 1
    for i, test in enumerate(tests):
        look = sheet.stroke(i)
        p_values = np.sort([row["p_value"] for row in rows if row["copies"] == 0 and row["test"] == test])
        number = len(p_values)
        low = min(low, float(p_values[0]))
        axes.step(
            np.append(p_values, 1.0), np.append(np.arange(1, number + 1), number) / number, where="post",
            color=look.colour, linestyle=look.dashes, linewidth=1.1, zorder=3,
        )  # fmt: skip
        for level in LEVELS:
            share = float(np.mean(p_values <= level * ROUNDING))
            if share:
                axes.plot(level, share, marker=look.marker, color=look.colour, markersize=4.2, zorder=4)
    low = 10.0 ** math.floor(math.log10(min(low, 1 / number)))
    line = np.geomspace(low, 1, 200)
    error = 2 * np.sqrt(line * (1 - line) / number)
    axes.fill_between(line, np.maximum(line - error, low / 10), line + error, color="#000000", alpha=0.07, linewidth=0)
    axes.plot(line, line, **sheet.LEVEL)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, 1)
    axes.set_ylim(0.5 / number, 1.1)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(10))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    axes.set_xlabel("level")
    axes.set_ylabel("share of p-values at most that")
    axes.set_title(
        f"{number} sets that were not planted; grey: the level, ± 2 standard errors", loc="left", color=sheet.INK
    )


def _caption(outcome: Outcome, design: Any, training: Any) -> str:
    shape = design["shape"]
    return (
        f"A GPT-2 of {training['parameters']:,} parameters (width {shape['width']}, {shape['num_layers']} layers) "
        f"trained from random parameters in one pass over {training['tokens']:,} tokens, "
        f"{100 * training['planted_share']:.0f}% of them in planted sets. "
        f"Sets of {design['num_examples']} examples, r = {design['num_shards']} shards, "
        f"k = {design['num_shuffles']} shuffles: the smallest p-value of the permutation test is "
        f"{1 / (design['num_shuffles'] + 1):.2g}. All sets are tested under the one model. "
        f"Seed {outcome.provenance['seed']}, scale {outcome.provenance['scale']:g}."
    )


def _log10(row: Row) -> float:
    return row["log_p_value"] / math.log(10)
