"""A report as one HTML file: no script, no resource from outside, every text escaped."""

from __future__ import annotations

import base64
import functools
import io
import pathlib
from importlib import resources
from typing import Any

import jinja2

from tdd import __version__
from tdd.report.plots.sheet import style
from tdd.report.sections import Figure, Report
from tdd.runs.atomic import write_atomically
from tdd.validate import printable

__all__ = ["figures", "to_html", "write_page"]


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
