"""A report as Markdown: texts from outside stay texts, pictures are named by what they show."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tdd.report.sections import Facts, Paragraph, Points, Report, Section, Table
from tdd.validate import printable

__all__ = ["markdown_table", "to_markdown"]

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")


def to_markdown(report: Report) -> str:
    """The report in GitHub's Markdown, without pictures.

    >>> print(to_markdown(Report("a run", "nothing was selected", ())))
    # a run
    <BLANKLINE>
    **nothing was selected**
    <BLANKLINE>
    """
    parts = [f"# {_plain(report.title)}"]
    if report.verdict:
        parts.append(f"**{_plain(report.verdict)}**")
    return "\n\n".join([*parts, *map(_section, report.sections)]) + "\n"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; bars in cells are escaped, other marks are not."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _section(section: Section) -> str:
    match section:
        case Paragraph(text):
            return _plain(text)
        case Points(title, points):
            return _titled(title, "\n".join(f"- {_plain(point)}" for point in points))
        case Facts(title, rows):
            return _titled(title, _table(("", ""), rows))
        case Table(title, columns, rows, note):
            table = _table([column.name for column in columns], [row.cells for row in rows])
            return _titled(title, f"{table}\n\n{_plain(note)}" if note else table)
        case _:
            return _titled(section.title, f"Picture: {_plain(section.alternative)}")


def _titled(title: str, text: str) -> str:
    return f"## {_plain(title)}\n\n{text}" if title else text


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [[_plain(cell) for cell in line] for line in (header, *rows)]
    lines.insert(1, ["---"] * len(header))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _plain(text: str) -> str:
    """Text in which no mark of Markdown or HTML means anything."""
    return _SPECIAL.sub(r"\\\1", printable(text))
