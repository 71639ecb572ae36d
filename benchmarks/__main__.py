"""`python -m benchmarks COMMAND`, from a checkout."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import pretrained
from benchmarks.aot import on_device
from benchmarks.reproductions import command as reproductions
from benchmarks.throughput import command as throughput
from tdd.cli import execute
from tdd.cli.common import CommandParser

_EXAMPLES = """\
examples:
  python -m benchmarks throughput studies
  python -m benchmarks reproduce
  python -m benchmarks reproduce exchangeability --out reproductions/exchangeability
  python -m benchmarks device --out device.json
  python -m benchmarks pretrained --quick

Every other measurement is a script of its own: python -m benchmarks.rules, python -m benchmarks.on_ray, ...
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status, as `tdd.cli.main`."""
    parser = CommandParser(
        prog="python -m benchmarks",
        description="Throughput beside peers, the papers' experiments on small models, planted truth in a real one.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    throughput.add(commands)
    reproductions.add(commands)
    on_device.add(commands)
    pretrained.add(commands)
    return execute(parser, sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
