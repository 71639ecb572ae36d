"""`tdd report`: a finished run again, for the terminal, as a page, as Markdown, as figures."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from tdd.cli.common import command, page_option, print_json, print_report, show_page


def add(commands: Any) -> None:
    """Register the command."""
    report = command(commands, "report", _run, "print the report of a finished run")
    report.add_argument(
        "folder",
        help="folder of an audit, a test of order or of a data owner, a probe, a study, a plan, paraphrases",
    )
    report.add_argument("--shard-table", action="store_true", help="list every shard of a run of tdd exchange")
    report.add_argument(
        "--html",
        nargs="?",
        const="",
        metavar="FILE",
        help="write the report as one HTML file (default: report.html in the folder)",
    )
    page_option(report, needs_out=False)
    report.add_argument("--markdown", action="store_true", help="print Markdown")
    report.add_argument(
        "--plot",
        metavar="FILE",
        help="write the figure to this .png or .svg file; of several each to a file with its title in the name",
    )


def _run(arguments: argparse.Namespace) -> None:
    from tdd.report import folder_report
    from tdd.runs.atomic import check_output_file
    from tdd.runs.display import PAGE

    folder = pathlib.Path(arguments.folder)
    page = pathlib.Path(arguments.html or folder / PAGE) if arguments.html is not None or arguments.open else None
    plot = pathlib.Path(arguments.plot) if arguments.plot else None
    if page is not None:
        check_output_file(page, (".html",))
    if plot is not None:
        check_output_file(plot, (".png", ".svg"))
    pictures = page is not None or plot is not None
    record, report = folder_report(folder, shard_table=arguments.shard_table, pictures=pictures)
    if plot is not None:
        _save_figures(report, plot, folder)
    if arguments.json:
        print_json(record)
    elif arguments.markdown:
        from tdd.report.page import to_markdown

        print(to_markdown(report), end="")
    else:
        print_report(arguments, report, wide=record.get("kind") not in ("audit", "select", "exchange", "probe"))
    if page is not None:
        from tdd.report.page import write_page

        write_page(report, page)
        show_page(arguments, page)


def _save_figures(report: Any, path: pathlib.Path, folder: pathlib.Path) -> None:
    from tdd.report.page import figures
    from tdd.report.plots.sheet import save
    from tdd.validate import InputError

    drawn = figures(report)
    if not drawn:
        raise InputError(f"--plot: there is nothing to draw in {folder}")
    for title, figure in drawn.items():
        name = "-".join(title.lower().split())
        save(figure, path if len(drawn) == 1 else path.with_stem(f"{path.stem}-{name}"))
