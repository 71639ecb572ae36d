"""A report as sections: one description for the terminal, the HTML page and Markdown."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from tdd.validate import printable

Tone = Literal["plain", "good", "warning", "bad", "strong"]
_SYMBOLS = {
    "FDR": "false discovery rate",
    "GCR": "global contamination rate",
    "alpha": "the level",
    "m": "number of null hypotheses",
    "m0": "how many of them hold",
    "n": "size of the calibration sample",
    "V": "number of false items among the R that are selected",
    "k": "number of knockoffs of an item",
    "P": "probability",
    "p": "the p-value",
    "finite-sample": "at any number of items",
    "asymptotic": "in the limit of many items",
}
_HIGHEST = 4
_EXCERPT = 40
_STYLES = {"plain": "", "good": "green", "warning": "yellow", "bad": "bold red", "strong": "bold"}


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str  # heading
    number: bool = False  # whether cells are numbers, which are aligned right and never broken
    excerpt: bool = False  # whether cells are parts of texts from outside, of which the terminal shows the beginning


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table."""

    cells: tuple[str, ...]  # one text for each column
    tone: Tone = "plain"  # tone of the whole row
    ruled: bool = False  # whether a line separates it from the row above


@dataclasses.dataclass(frozen=True)
class Table:
    """A table with a title, and a note below it."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    brief: int = 0  # rows that the terminal and Markdown show; 0 for all
    total: int = 0  # rows that there are, where `rows` are the most extreme of them

    def heading(self, shown: int) -> str:
        """The title over some of the rows."""
        total = max(self.total, len(self.rows))
        return self.title if shown >= total else f"{self.title}, the {shown} most extreme of {total}"

    def shortened(self) -> Table:
        """The rows that the terminal and Markdown show."""
        rows = self.rows[: self.brief or None]
        return dataclasses.replace(self, rows=rows, total=max(self.total, len(self.rows)), brief=0)


@dataclasses.dataclass(frozen=True)
class Facts:
    """Names and their values."""

    title: str
    rows: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Points:
    """Sentences below a title."""

    title: str
    points: tuple[str, ...]
    tone: Tone = "plain"


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """A sentence or two."""

    text: str
    tone: Tone = "plain"


@dataclasses.dataclass(frozen=True)
class Figure:
    """A picture; the terminal leaves it out."""

    title: str  # heading
    alternative: str  # what the picture shows, for readers who do not see it
    draw: Callable[[], Any]  # returns a matplotlib figure


@dataclasses.dataclass(frozen=True)
class Thumbnails:
    """Small photographs side by side; the terminal leaves them out."""

    title: str
    images: tuple[tuple[str, str], ...]  # caption, and a JPEG file in base64
    alternative: str  # what they show, for readers who do not see them


@dataclasses.dataclass(frozen=True)
class Help:
    """What helps to read a page; the terminal leaves it out."""

    title: str
    rows: tuple[tuple[str, str], ...]  # (term, what it means), or ("", a sentence)
    folded: bool = False  # whether the page shows it when it is asked for


Section = Table | Facts | Points | Paragraph | Figure | Thumbnails | Help


@dataclasses.dataclass(frozen=True)
class Report:
    """What a run says."""

    title: str  # name of the run
    verdict: str  # the result in one sentence; "" where there is none, as for a list
    sections: tuple[Section, ...]  # the rest, in the order of reading
    stands: bool = True  # False where a check failed and no verdict is given


def guide(lines: Iterable[str]) -> Help:
    """How to read a page, in a few sentences."""
    return Help("How to read this", tuple(("", line) for line in lines))


def caveats(
    assumes: Iterable[str], open_points: Sequence[str], warnings: Sequence[str] = (), lines: Iterable[str] = ()
) -> list[Section]:
    """What every report of a run begins with: warnings, how to read it (`lines`), assumptions, what is left open."""
    return [
        *([Points("Warnings", tuple(warnings), "warning")] if warnings else ()),
        guide(lines),
        Points("Assumptions of the guarantee", capital(dict.fromkeys(assumes))),
        Points("What this run does not establish", capital(open_points)),
    ]


def capital(sentences: Iterable[str]) -> tuple[str, ...]:
    """The sentences with a capital at the beginning of each."""
    return tuple(sentence[:1].upper() + sentence[1:] for sentence in sentences)


def in_words(guarantee: Mapping[str, Any]) -> str:
    """What a guarantee controls, in which sense, who proved it, and what the symbols mean."""
    named = set(re.findall(r"finite-sample|[A-Za-z]+0?", f"{guarantee['controls']} {guarantee['kind']}"))
    meant = "; ".join(f"{symbol}: {words}" for symbol, words in _SYMBOLS.items() if symbol in named)
    said = f"{guarantee['controls']}, {guarantee['kind']} ({guarantee['source']})"
    return said + (f". {meant}" if meant else "")


_SEEDED = re.compile(r"(^| )--seed[ =]|^tdd demo\b")
"""Commands that name their seed; that of the demonstration is fixed."""


def to_repeat(record: Mapping[str, Any], call: str, file: str = "run.json") -> str:
    """The command that makes a run again, from the folder that holds its files; in Python the `call`.

    `record` has the seed, where there is one, and, where it was typed, the command; `file` holds the options.
    """
    seed = record.get("seed")
    if not record.get("command"):
        seeded = "" if seed is None else f", seed={seed}"
        return f"{call}(...) with the options and files that {file} names{seeded}"
    typed = seed is None or _SEEDED.search(record["command"])
    seeded = "" if typed else f" --seed {seed}"
    return f"{record['command']}{seeded}, in the folder of the files that it names"


def drawn(module: str, function: str, *arguments: Any, **options: Any) -> Callable[[], Any]:
    """The figure that a function of a module of this room draws, when it is asked for: matplotlib is loaded then."""

    def draw() -> Any:
        sheet = getattr(importlib.import_module(f"tdd.report.{module}"), function)(*arguments, **options)
        return getattr(sheet, "figure", sheet)

    return draw


def to_terminal(report: Report) -> RenderableType:
    """The report for a rich console."""
    tone = "strong" if report.stands else "warning"
    heading: list[RenderableType] = [plain_text(report.title, "bold underline")]
    if report.verdict:
        heading.append(Padding(plain_text(report.verdict, _STYLES[tone]), (1, 0)))
    return Group(*heading, *(shown for section in report.sections for shown in _shown(section)))


def plain_text(value: str, style: str = "") -> Text:
    """Text without markup or emoji codes; control characters are spelled out, so that none reaches the terminal."""
    return Text(printable(value), style=style)


def _shown(section: Section) -> Sequence[RenderableType]:
    match section:
        case Paragraph(text, tone):
            return [Padding(plain_text(text, _STYLES[tone]), (0, 0, 1, 0))]
        case Facts(title, rows):
            table = RichTable(show_header=False)
            table.add_column(style="bold", no_wrap=True)
            table.add_column(overflow="fold")
            for name, value in rows:
                table.add_row(plain_text(name), plain_text(value))
            return _titled(title, table)
        case Points(title, points, tone):
            style = _STYLES[tone]
            table = RichTable(show_header=False, box=None, padding=(0, 1))
            table.add_column(no_wrap=True, style=style)
            table.add_column(overflow="fold", style=style)
            for point in points:
                table.add_row("!" if tone == "warning" else "·", plain_text(point))
            return _titled(title, table)
        case Table():
            note = [plain_text(section.note, "italic")] if section.note else []
            shown = section.shortened()
            return _titled(shown.heading(len(shown.rows)), _Fitted(_cut(shown)), *note)
        case Figure() | Thumbnails() | Help():
            return []


def _titled(title: str, *shown: RenderableType) -> Sequence[RenderableType]:
    return [Padding(Group(plain_text(title, "italic"), *shown), (0, 0, 1, 0))]


def _cut(table: Table) -> Table:
    """The table with its excerpts cut to what stands on a line beside numbers."""

    def cell(text: str, column: Column) -> str:
        return f"{text[: _EXCERPT - 1]}…" if column.excerpt and len(text) > _EXCERPT else text

    rows = (tuple(map(cell, row.cells, table.columns)) for row in table.rows)
    return dataclasses.replace(table, rows=tuple(map(_with_cells, table.rows, rows)))


def _with_cells(row: Row, cells: tuple[str, ...]) -> Row:
    return dataclasses.replace(row, cells=cells)


@dataclasses.dataclass(frozen=True)
class _Fitted:
    """A table with lines around its cells where they fit into the console, else without lines, else row by row.

    Cells of sentences go row by row too, where they would take more than about `_HIGHEST` lines each.
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        framed, open_ = self._drawn(box.HEAVY_HEAD), self._drawn(box.SIMPLE_HEAD)
        wide = options.update(width=10_000)
        if console.measure(framed, options=wide).maximum <= options.max_width:
            yield framed
            return
        size = console.measure(open_, options=wide)
        if size.minimum > options.max_width or size.maximum > _HIGHEST * options.max_width:
            yield self._row_by_row()
            return
        least = self._widths(str.split)
        widths, spare = self._widths(str.splitlines), options.max_width - (size.minimum - sum(least))
        while sum(widths) > spare and widths != least:  # the widest that can be narrower
            widest = max((width, place) for place, width in enumerate(widths) if width > least[place])[1]
            widths[widest] -= 1
        for column, width in zip(open_.columns, widths, strict=True):
            column.width = width
        yield open_

    def _widths(self, parts: Callable[[str], Sequence[str]]) -> list[int]:
        """Of each column, the longest part of its name and cells; numbers are whole."""
        found = []
        for place, column in enumerate(self.table.columns):
            cells = [printable(row.cells[place]) for row in self.table.rows]
            pieces = cells if column.number else [piece for cell in cells for piece in parts(cell)]
            found.append(max(map(cell_len, [*parts(printable(column.name)), *pieces]), default=0))
        return found

    def _row_by_row(self) -> RichTable:
        table = RichTable(show_header=False, box=None)
        table.add_column(style="bold", overflow="fold")
        table.add_column(overflow="fold")
        for row in self.table.rows:
            for column, cell in zip(self.table.columns, row.cells, strict=True):
                table.add_row(plain_text(column.name), plain_text(cell), style=_STYLES[row.tone])
            table.add_row("", "")
        return table

    def _drawn(self, lines: box.Box) -> RichTable:
        table = RichTable(
            header_style="bold",
            box=lines,
            padding=(0, 1) if lines is box.HEAVY_HEAD else (0, 1, 0, 0),
            pad_edge=lines is box.HEAVY_HEAD,
        )
        for column, least in zip(self.table.columns, self._widths(str.split), strict=True):
            table.add_column(
                plain_text(column.name),
                justify="right" if column.number else "left",
                overflow="fold",
                min_width=least,
            )
        for row in self.table.rows:
            if row.ruled:
                table.add_section()
            table.add_row(*map(plain_text, row.cells), style=_STYLES[row.tone])
        return table
