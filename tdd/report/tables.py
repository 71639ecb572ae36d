"""The tables of guarantees and of measured claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tdd.report.sections import Column, Report, Row, Table

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


def guarantee_report(rows: Sequence[Any]) -> Report:
    """What each procedure controls, under which assumptions."""
    return _report("What each procedure guarantees", GUARANTEE_HEADER, guarantee_rows(rows))


def validity_report(rows: Sequence[Mapping[str, Any]]) -> Report:
    """The measurement of each claim."""
    return _report("What is valid and what is not", VALIDITY_HEADER, validity_rows(rows))


def _verdict(row: Mapping[str, Any]) -> str:
    if row["holds"]:
        return "CONTRADICTED" if row["exceeds"] else "holds"
    return "not valid" if row["exceeds"] else "not shown"


def _report(title: str, header: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Report:
    shown = tuple(Row(cells, "bad" if cells[-1] == "CONTRADICTED" else "plain", ruled=True) for cells in rows)
    return Report(title, "", (Table("A row for each procedure and setting", tuple(map(Column, header)), shown),))
