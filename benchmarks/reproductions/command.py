"""`python -m benchmarks reproduce`: a paper's experiment on small models."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.reproductions import REPRODUCTIONS
from tdd.cli.common import command, console, print_json

__all__ = ["add"]


def add(commands: Any) -> None:
    """Register the command."""
    parser = command(commands, "reproduce", _run, "a paper's experiment on small models; alone: list them")
    parser.add_argument("name", nargs="?", metavar="NAME", help=", ".join(REPRODUCTIONS))
    parser.add_argument("--out", metavar="DIR", help="results and figure; an interrupted run goes on there")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="X",
        help="1 is that of the published results; more grows models, corpora and repetitions (default: %(default)s)",
    )
    parser.add_argument(
        "--no-compilation-cache", action="store_true", help="keep no compiled programs for the next run"
    )


def _run(arguments: argparse.Namespace) -> None:
    if arguments.name is None:
        _list(arguments)
        return
    from tdd.cli.machine import keep_compiled
    from tdd.cores import keep_memory
    from tdd.lab.checks import check_named
    from tdd.validate import InputError

    check_named("reproduction", arguments.name, tuple(REPRODUCTIONS))
    if arguments.out is None:
        raise InputError("--out is needed: the folder for results and figure, where an interrupted run goes on")
    keep_memory()
    keep_compiled(not arguments.no_compilation_cache)
    from benchmarks.reproductions.record import Options
    from benchmarks.reproductions.run import run_reproduction

    folder = pathlib.Path(arguments.out)
    outcome = run_reproduction(arguments.name, Options(folder, arguments.seed, arguments.scale, not arguments.quiet))
    if arguments.json:
        print_json(outcome)
        return
    screen = console(wide=True)
    for title, rows in outcome.tables.items():
        screen.print(_table(title, rows))
    figures = ", ".join(sorted(place.name for place in folder.glob("figure*.png")))
    files = f"results.csv, tables.md, {figures}, results.json"
    line = f"{outcome.title}. {outcome.seconds:.0f} s. Written to {folder}: {files}"
    screen.print(line, markup=False, soft_wrap=True)


def _list(arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json([{"name": name, **title._asdict()} for name, title in REPRODUCTIONS.items()])
        return
    rows = [{"name": name, "shows": title.shows, "paper": title.paper} for name, title in REPRODUCTIONS.items()]
    console(wide=True).print(_table("Reproductions: python -m benchmarks reproduce NAME --out DIR", rows))


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Rows for people: numbers with four digits, at the right."""
    from rich.table import Table

    from benchmarks.reproductions.run import number_or_words
    from tdd.report.sections import plain_text

    table = Table(title=plain_text(title), title_justify="left", header_style="bold")
    for column in rows[0] if rows else ():
        numbers = all(isinstance(row[column], (int, float)) for row in rows)
        table.add_column(plain_text(column), justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*(plain_text(number_or_words(value)) for value in row.values()))
    return table
