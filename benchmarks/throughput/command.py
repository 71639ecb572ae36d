"""`python -m benchmarks throughput`: kernels, studies and scoring beside their peers, in one run."""

from __future__ import annotations

import argparse
from typing import Any

from tdd.cli.common import command

__all__ = ["add"]


def add(commands: Any) -> None:
    """Register the command."""
    bench = command(commands, "throughput", _run, "measure kernels, studies and scoring beside their peers")
    bench.add_argument(
        "suite", nargs="?", default="all", metavar="SUITE", help="kernels, studies, scoring or all (default: all)"
    )
    bench.add_argument("--only", metavar="NAMES", help="cases whose names begin so, comma-separated")
    bench.add_argument("--list", action="store_true", help="name the cases and stop")
    bench.add_argument("--rounds", type=int, metavar="N", help="interleaved rounds (default: 5, with --quick 3)")
    bench.add_argument(
        "--sizes", nargs="+", metavar="SIZE", help="items, or data sets x items: 1000 64x1000 (default: the cases' own)"
    )
    bench.add_argument("--texts", type=int, metavar="N", help="texts of the cases that score texts (default: 24)")
    bench.add_argument("--out", metavar="FILE", help="write the results as JSON, after every case")
    bench.add_argument("--quick", action="store_true", help="small sizes, three rounds: does it work at all?")
    bench.add_argument("--markdown", action="store_true", help="print the tables in Markdown")


def _run(arguments: argparse.Namespace) -> None:
    import os
    import pathlib
    import sys

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # studies run in processes beside this one

    from benchmarks.throughput import report, suites
    from benchmarks.throughput.cases import parse_size
    from benchmarks.throughput.measure import Options
    from tdd.runs.atomic import check_output_file
    from tdd.validate import InputError

    if arguments.rounds is not None and arguments.rounds < 1:
        raise InputError(f"rounds must be at least 1, got {arguments.rounds}")
    if arguments.texts is not None and arguments.texts < 2:
        raise InputError(f"texts must be at least 2, got {arguments.texts}")
    sizes = [parse_size(text) for text in arguments.sizes or ()]
    only = [name.strip() for name in (arguments.only or "").split(",") if name.strip()]
    wanted = suites.chosen(arguments.suite, only)
    if arguments.out is not None:
        check_output_file(pathlib.Path(arguments.out), (".json",))
    if arguments.list:
        for cases in wanted.values():
            for case in cases:
                print(f"{case.name:28s} {case.about}")
        return
    rounds = arguments.rounds or (3 if arguments.quick else 5)
    say = (lambda text: None) if arguments.quiet else (lambda text: print(text, file=sys.stderr, flush=True))
    options = Options(rounds=rounds, quick=arguments.quick, texts=arguments.texts)
    result = report.collect(wanted, options, sizes, say, arguments.out)
    if arguments.json:
        report.print_json(result)
    else:
        report.print_tables(result, markdown=arguments.markdown)
    if result["failed"]:
        raise SystemExit(f"failed, and not timed: {', '.join(result['failed'])}")
