"""False discoveries and power of PTDI and KTD over the level q, by audited text and score; KTD's figures 1, 4 and 5."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.reproductions.ptdi_ktd import CURVES, DESIGNS, METHODS, SCORES, SHOWN
from benchmarks.reproductions.record import Outcome, Row
from tdd.report.plots import sheet

__all__ = ["draw"]

_DESIGNS = {"original": "text = the original", "drawn": "text = a version at random"}

_DRAWN = [rule for rule in METHODS if rule != "PTDI, subtraction"]  # whose line lies on that of Storey's estimate


def draw(outcome: Outcome) -> dict[str, sheet.Sheet]:
    """`figure`: rules against q, a row for each design and score; `figure-knockoffs` and `figure-sizes`: `CURVES`."""
    rows, sizes = outcome.rows, outcome.provenance["settings"]
    largest, most = sizes["widths"][-1], sizes["knockoffs"][-1]
    own = [row for row in rows if row["score"] == SCORES[0] and row["rule"] in CURVES]
    parameters = {row["width"]: row["parameters"] for row in rows}
    return {
        "figure": _levels(outcome, [row for row in rows if row["width"] == largest and row["knockoffs"] in (0, most)]),
        "figure-knockoffs": _curves(
            outcome,
            f"By number of knockoffs: FDP against q, power against FDP ({SCORES[0]})",
            [row for row in own if row["width"] == largest],
            {f"k = {k}": lambda row, k=k: row["knockoffs"] == k for k in sizes["knockoffs"]},
        ),
        "figure-sizes": _curves(
            outcome,
            f"By model size: FDP against q, power against FDP ({SCORES[0]}, k = {most})",
            [row for row in own if row["knockoffs"] == most],
            {
                f"width {width}, {parameters[width]:,} parameters": lambda row, width=width: row["width"] == width
                for width in sizes["widths"]
            },
        ),
    }


def _levels(outcome: Outcome, rows: Sequence[Row]) -> sheet.Sheet:
    """FDP on the left and power on the right against q, a line a rule."""
    looks = {rule: sheet.stroke(i) for i, rule in enumerate(_DRAWN)}
    legend = {rule: sheet.line(look) for rule, look in looks.items()} | {"FDP = q": sheet.level_line()}
    with sheet.style():
        drawn = sheet.sheet(
            outcome.title, _caption(outcome), rows=len(DESIGNS) * len(SCORES), columns=2, legend=legend,
            height=1.6, foot=0.3, share_y=False,
        )  # fmt: skip
        panels = iter(drawn.panels)
        for design in DESIGNS:
            for score in SCORES:
                left, right = next(panels)
                mine = [row for row in rows if (row["design"], row["score"]) == (design, score)]
                for rule, look in looks.items():
                    of_rule = [row for row in mine if row["rule"] == rule]
                    _line(left, of_rule, "alpha", "fdp", look)
                    _line(right, of_rule, "alpha", "power", look)
                for axes in (left, right):
                    axes.set_title(f"{_DESIGNS[design]}, {score}", loc="left", color=sheet.INK)
                    axes.set_xlim(0, 1)
                _against_q(left, rows)
                right.set_ylim(-0.03, 1.03)
                right.set_ylabel("power")
        for axes in drawn.panels[-1]:
            axes.set_xlabel("level q")
    return drawn


def _curves(outcome: Outcome, title: str, rows: Sequence[Row], series: dict[str, Callable[[Row], bool]]) -> sheet.Sheet:
    """For each design FDP against q and below it power against FDP, a column a rule, a line a series."""
    looks = {name: sheet.stroke(i) for i, name in enumerate(series)}
    legend = {name: sheet.line(look) for name, look in looks.items()} | {"FDP = q": sheet.level_line()}
    with sheet.style():
        drawn = sheet.sheet(
            title, _caption(outcome), rows=2 * len(DESIGNS), columns=len(CURVES), legend=legend,
            height=1.6, foot=0.3, share_x=False,
        )  # fmt: skip
        for i, design in enumerate(DESIGNS):
            for j, rule in enumerate(CURVES):
                above, below = drawn.panels[2 * i][j], drawn.panels[2 * i + 1][j]
                mine = [row for row in rows if (row["design"], row["rule"]) == (design, rule)]
                for name, wanted in series.items():
                    of_series = [row for row in mine if wanted(row)]
                    _line(above, of_series, "alpha", "fdp", looks[name])
                    _line(below, of_series, "fdp", "power", looks[name])
                above.set_title(f"{rule}\n{_DESIGNS[design]}", loc="left", color=sheet.INK)
                _against_q(above, rows)
                above.set_xlim(0, 1)
                above.set_xlabel("level q")
                below.set_xlabel("FDP")
                below.set_xlim(-0.02, _most(rows))
                below.set_ylim(-0.03, 1.03)
                for axes, words in ((above, "FDP"), (below, "power")):
                    axes.set_ylabel(words if j == 0 else "")
    return drawn


def _line(axes: Any, rows: Sequence[Row], x: str, y: str, look: sheet.Stroke) -> None:
    """A line over the levels with marks at those of the tables, and against the level two standard errors there."""
    rows = sorted(rows, key=lambda row: row["alpha"])
    places, values = (np.array([row[name] for row in rows], float) for name in (x, y))
    marked = [i for i, row in enumerate(rows) if row["alpha"] in SHOWN]
    axes.plot(
        places, values, color=look.colour, linestyle=look.dashes, marker=look.marker, markevery=marked, markersize=3.6,
        linewidth=1.2, zorder=3,
    )  # fmt: skip
    if x == "alpha":
        errors = np.array([row[f"{y}_se"] for row in rows], float)
        sheet.error_line(axes, places[marked], values[marked], errors[marked], look, linestyle="", markersize=3.6)


def _against_q(axes: Any, rows: Sequence[Row]) -> None:
    """The diagonal that an error rate should not cross."""
    axes.axline((0, 0), slope=1, **sheet.LEVEL)
    axes.set_ylim(-0.02, _most(rows))
    axes.set_ylabel("FDP")


def _most(rows: Sequence[Row]) -> float:
    return 0.04 + max(row["fdp"] for row in rows)


def _caption(outcome: Outcome) -> str:
    sizes = outcome.provenance["settings"]
    return (
        f"{sizes['models']} fine-tuned models a design and width: {sizes['members']} members, {sizes['nonmembers']} "
        f"non-members, of which half calibrate; {sizes['knockoffs'][-1]} paraphrases of each text; "
        f"{sizes['repetitions']:,} random divisions a model; marks at q = "
        f"{', '.join(f'{level:g}' for level in SHOWN)}, with two standard errors over models. Seed "
        f"{outcome.provenance['seed']}. FDR ≤ q is promised for PTDI, and for PTDI on W; for the rules that compare a "
        "text with its paraphrases (KTD) only where the text is drawn, and there not for KTD (the paper) with several."
    )
