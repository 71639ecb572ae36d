"""The table of a named study: means, standard errors, and whether the bounds hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from tdd.report.sections import plain_text
from tdd.study.named.record import Figure

__all__ = ["VERDICTS", "list_table", "study_header", "study_rows", "study_table", "time_line"]


VERDICTS = 'Verdict: is the error rate within its bound? "Above" takes three standard errors.'


def study_header(figure: Figure, fields: Sequence[str]) -> tuple[str, ...]:
    """The columns: the fields of the grid, method, level, error, power, further measures, selected, verdict."""
    named = (figure.labels.get(field, field) for field in fields)
    counts = ("selected",) if figure.counts else ()
    measured = (figure.error, figure.power, *(figure.labels.get(name, name) for name in figure.measures))
    return (*named, "method", "α", *(f"{name} ± s.e." for name in measured), *counts, "verdict")


def study_rows(figure: Figure, fields: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The cells of the table as text; `rows` are those of `StudyResult.rows` with a "verdict" each."""
    return [
        (
            *(_words(figure, row[field]) for field in fields),
            figure.labels.get(row["method"], row["method"]),
            f"{row['alpha']:g}",
            *(_measured(row[name], row[f"{name}_se"]) for name in ("fdr", "power", *figure.measures)),
            *((f"{row['num_selected']:.1f}",) if figure.counts else ()),
            row["verdict"],
        )
        for row in rows
    ]


def study_table(title: str, figure: Figure, fields: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """The table for the terminal; a line between cells, and between methods where each has many levels."""
    fields = figure.columns or fields
    header = study_header(figure, fields)
    table = Table(title=plain_text(title), title_justify="left", header_style="bold")
    for i, name in enumerate(header):
        number = len(fields) + 1 <= i < len(header) - 1
        table.add_column(name, justify="right" if number else "left", no_wrap=number)
    before: Any = None
    levels = len({row["alpha"] for row in rows})
    long = levels > 3 or (levels > 1 and not fields)
    for row, cells in zip(rows, study_rows(figure, fields, rows), strict=True):
        place = [row[field] for field in (*fields, *(("method",) if long else ()))]
        if before is not None and place != before:
            table.add_section()
        before = place
        style = "bold red" if row["verdict"] == "ABOVE" else "yellow" if "above" in row["verdict"] else None
        table.add_row(*(plain_text(cell) for cell in cells), style=style)
    return table


def list_table(rows: Sequence[tuple[str, str, str]]) -> Table:
    """(name, subject, figure of a paper) of every study."""
    table = Table(title="Named studies: tdd study NAME --out DIR", title_justify="left", header_style="bold")
    for name in ("study", "shows", "regenerates"):
        table.add_column(name, no_wrap=name == "study")
    for row in rows:
        table.add_row(*row)
    return table


def time_line(result: Any, *, computed: bool) -> str:
    """The number of repetitions and the time they took."""
    counts = np.broadcast_to(result.repetitions, (len(result.cells),))
    total = int(counts.sum())
    cells = f"{len(result.cells)} cells, " if len(result.cells) > 1 else ""
    if not computed:
        return f"{cells}{total:,} repetitions in all, read from an earlier run that took {result.seconds:.1f} s."
    rate = total / max(result.seconds, 1e-9)
    return f"{cells}{total:,} repetitions in all, {result.seconds:.1f} s: {rate:,.0f} a second, compilation included."


def _measured(mean: float, error: float) -> str:
    """A mean with two digits of its standard error, four decimals at least and six at most."""
    digits = 4 if not 0 < error < 1 else min(6, max(4, 1 - math.floor(math.log10(error))))
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def _words(figure: Figure, value: Any) -> str:
    shown = f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
    return figure.labels.get(shown, shown)
