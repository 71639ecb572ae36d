"""What the commands share: their parser, words out of arguments, the console."""

from __future__ import annotations

import argparse
import sys
from typing import Any

__all__ = ["command", "console", "names", "one_or_all", "print_json", "set_logging", "split"]


def command(commands: Any, name: str, run: Any, summary: str) -> argparse.ArgumentParser:
    """The parser of a command, with the options that all of them have."""
    parser = commands.add_parser(name, help=summary, description=summary[:1].upper() + summary[1:] + ".")
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar, errors only")
    parser.add_argument("-v", "--verbose", action="store_true", help="log what is being done")
    return parser


def split(values: list[str] | None) -> list[str]:
    """Repeated and comma-separated names in one list."""
    return [name.strip() for value in values or () for name in value.split(",") if name.strip()]


def names(text: str) -> list[str]:
    """ "loss,min_k:k=0.1;..." → names; semicolons separate the options of one score."""
    return [name.strip().replace(";", ",") for name in text.split(",") if name.strip()]


def one_or_all(names: list[str]) -> Any:
    """A single name by itself."""
    return names[0] if len(names) == 1 else names


def set_logging(arguments: argparse.Namespace) -> None:
    """What -q and -v ask for, on the error stream."""
    import logging

    level = logging.ERROR if arguments.quiet else logging.INFO if arguments.verbose else logging.WARNING
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    logging.getLogger("tdd").setLevel(level)
    logging.getLogger("tdd.findings").setLevel(logging.CRITICAL)  # the report says them


def console(wide: bool = False) -> Any:
    """Where tables are printed: as wide as the terminal, else 100 or 160 columns."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160 if wide else 100, highlight=False)


def print_json(value: Any) -> None:
    """JSON on the output, NaN as null."""
    from tdd.audit.run_folder import to_json

    sys.stdout.write(to_json(value))
