"""A report as one HTML file (no script, nothing from outside, every text escaped) and as Markdown."""

from __future__ import annotations

import base64
import functools
import io
import pathlib
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import jinja2

from tdd import __version__
from tdd.report.plots.sheet import style
from tdd.report.sections import Facts, Figure, Help, Paragraph, Points, Report, Section, Table
from tdd.runs.atomic import write_atomically
from tdd.validate import printable


def to_html(report: Report, *, whole: bool = True) -> str:
    """The page, or without `whole` what stands in its body; equal reports give equal pages."""
    pictures = [_svg(section) if isinstance(section, Figure) else "" for section in report.sections]
    sections = [(type(section).__name__, section) for section in report.sections]
    return _template().render(report=report, sections=sections, pictures=pictures, version=__version__, whole=whole)


def figures(report: Report) -> dict[str, Any]:
    """Title -> matplotlib figure."""
    with style():
        return {section.title: section.draw() for section in report.sections if isinstance(section, Figure)}


def write_page(report: Report, path: pathlib.Path) -> None:
    """Write the page whole or not at all."""
    write_atomically(path, to_html(report).encode())


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_inert
    )
    return environment.from_string(resources.files("tdd.report").joinpath("page.html.j2").read_text("utf-8"))


def _inert(value: Any) -> Any:
    """Control characters spelled out, those that reorder text among them."""
    return printable(value) if type(value) is str else value


def _svg(section: Figure) -> str:
    """The picture as base64, without dates and random identifiers."""
    buffer = io.BytesIO()
    with style():
        section.draw().savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return base64.b64encode(buffer.getvalue()).decode()


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
        case Table():
            shown = section.shortened()
            table = _table([column.name for column in shown.columns], [row.cells for row in shown.rows])
            title = shown.heading(len(shown.rows))
            return _titled(title, f"{table}\n\n{_plain(shown.note)}" if shown.note else table)
        case Help(title, rows):
            return _titled(title, "\n".join(f"- {_plain(': '.join(filter(None, row)))}" for row in rows))
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
