"""The tables of guarantees and of measured claims: for the terminal, and as Markdown for the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from tdd.report.sections import plain_text

__all__ = ["guarantee_rows", "guarantee_table", "markdown", "validity_rows", "validity_table"]

GUARANTEE_HEADER = ("procedure", "controls", "assumes", "holds", "source")
VALIDITY_HEADER = ("procedure", "setting", "error", "claimed", "measured ± s.e.", "")


def guarantee_rows(rows: Sequence[Any]) -> list[tuple[str, ...]]:
    """(procedure, controls, assumes, holds, source) of each guarantee record."""
    return [
        (
            f"{row.call}({row.option})" if row.option else row.call,
            row.guarantee.controls,
            "; ".join(row.guarantee.assumes) or "nothing",
            "no guarantee" if row.guarantee.kind == "none" else row.guarantee.kind,
            row.guarantee.source,
        )
        for row in rows
    ]


def validity_rows(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """(procedure, setting, error, claimed, measured, verdict) of each measured claim."""
    return [
        (
            row["procedure"],
            row["setting"],
            row["error"],
            f"{row['level']:.3g}",
            f"{row['mean']:.4f} ± {row['se']:.4f}",
            _verdict(row),
        )
        for row in rows
    ]


def guarantee_table(rows: Sequence[Any]) -> Table:
    """Guarantees for the terminal."""
    return _table("What each procedure guarantees", GUARANTEE_HEADER, guarantee_rows(rows))


def validity_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Measured claims for the terminal."""
    return _table("What is valid and what is not", VALIDITY_HEADER, validity_rows(rows))


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; bars in cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _verdict(row: Mapping[str, Any]) -> str:
    if row["holds"]:
        return "CONTRADICTED" if row["exceeds"] else "holds"
    return "not valid" if row["exceeds"] else "not shown"


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", show_lines=True)
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(plain_text(cell) for cell in row))
    return table
