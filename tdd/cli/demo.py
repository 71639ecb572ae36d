"""`tdd demo`."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from typing import Any

from tdd.cli.common import command, console, page_option, print_json, print_report, show_page
from tdd.cli.options import add_device


def add(commands: Any) -> None:
    """Register the command."""
    demo = command(commands, "demo", _run, "audit the packaged model against the known truth")
    demo.add_argument(
        "--retrain",
        nargs="?",
        const="tdd-demo",
        metavar="DIR",
        help="first train the packaged model again, into DIR (default: tdd-demo), and compare",
    )
    demo.add_argument(
        "--out",
        metavar="DIR",
        help="write the run folder of the audit here, with its report (default: the report alone, tdd-demo.html)",
    )
    add_device(demo)
    page_option(demo, needs_out=False)


def _run(arguments: argparse.Namespace) -> None:
    from tdd.cli.machine import keep_compiled
    from tdd.demo.run import run_demo
    from tdd.report.page import write_page
    from tdd.runs.display import PAGE

    keep_compiled()
    files = None
    if arguments.retrain is not None:
        from tdd.cores import keep_memory

        keep_memory()
        from tdd.demo.data import demo_files
        from tdd.demo.retrain import retrain

        files = retrain(arguments.retrain, progress=not arguments.quiet)
        same = _same_weights(files.checkpoint, demo_files().checkpoint)
        verdict = (
            "equal the packaged ones bit for bit" if same else "differ from the packaged ones (another machine rounds)"
        )
        print(f"retrained into {arguments.retrain}: the weights {verdict}", file=sys.stderr)
    demo = run_demo(files=files, out=arguments.out, device=arguments.device, progress=not arguments.quiet)
    if arguments.json:
        print_json({"run": demo.audit.run, "table": demo.rows})
        return
    report = demo.audit.report()
    print_report(arguments, report)
    place = pathlib.Path(arguments.out) / PAGE if arguments.out else pathlib.Path("tdd-demo.html")
    if os.access(place.parent, os.W_OK):
        write_page(report, place)
        show_page(arguments, place)
        if not arguments.quiet:
            console().print(f"Report with pictures: {place}", markup=False, soft_wrap=True)


def _same_weights(first: Any, second: Any) -> bool:
    import filecmp

    return filecmp.cmp(first / "model.safetensors", second / "model.safetensors", shallow=False)
