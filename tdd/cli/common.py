"""Shared by the commands: parsers, lists of names, logging, the console."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import difflib
import io
import json
import logging
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from tdd.validate import InputError, printable

DETECTED, CHECK_FAILED = 1, 3
"""Exit statuses: something was found and --fail-on-detection asks for it; finished, and a check failed."""


class CommandParser(argparse.ArgumentParser):
    """A parser whose --help shows the usual options, and whose --help-all shows all of them."""

    usual: frozenset[str] = frozenset()
    rare_epilog = False
    """Whether the epilog is for --help-all alone."""

    def format_help(self) -> str:  # noqa: D102
        rare = [
            action
            for action in self._actions
            if self.usual and action.option_strings and not self.usual & {*action.option_strings}
        ]
        epilog = self.epilog
        unused = [group for group in self._action_groups if rare and not {*group._group_actions} - {*rare}]
        texts, descriptions = [action.help for action in rare], [group.description for group in unused]
        try:
            for action in rare:
                action.help = argparse.SUPPRESS
            for group in unused:
                group.description = None
            if rare and self.rare_epilog:
                self.epilog = None
            shown = super().format_help()
        finally:
            for action, text in zip(rare, texts, strict=True):
                action.help = text
            for group, text in zip(unused, descriptions, strict=True):
                group.description = text
            self.epilog = epilog
        return shown + (f"\n{len(rare)} more options: {self.prog} --help-all\n" if rare else "")

    def error(self, message: str) -> NoReturn:
        """End with status 2, one line of error, and what was probably meant."""
        super().error(message + _meant(message))

    def nearest(self, unknown: Sequence[str]) -> str:
        """The options that were probably meant by words that are none of them, to add to a message; "" if none."""
        known = [name for action in self._actions for name in action.option_strings]
        near = (difflib.get_close_matches(word.partition("=")[0], known, 1, 0.7) for word in unknown if word[:1] == "-")
        return _asked([name for found in near for name in found])

    def in_options(self, message: str) -> str:
        """A message about arguments of a function in the words of the command: `--shards 30` for `num_shards=30`.

        Arguments are found at the beginning of a message, and wherever a value or the option follows them.
        """
        options: dict[str, tuple[str, bool]] = {}  # argument -> option, and whether it is a flag
        spelt = [(option, action) for action in self._actions for option in action.option_strings if option[:2] == "--"]
        for form in (str, "num_{}".format, "{}s".format, lambda name: name.removesuffix("s")):
            for option, action in spelt:
                for name in (option[2:].replace("-", "_"), action.dest):
                    options.setdefault(form(name), (option, action.nargs == 0))

        def typed(found: re.Match[str]) -> str:
            option, flag = options.get(found[1], ("", False))
            if not option or (flag and found[2] != "True"):
                return found[0]
            return option if flag else f"{option} {found[2]}"

        message = re.sub(r"\b\w+(?:=\S*)? \((--[\w-]+)\)", r"\1", message)
        message = re.sub(r"(?<![\w:,.'\"\[({/\\?&-])(\w+?)(?:\[\d+\])?=(True\b|(?!\.\.\.|[\[({])\S)", typed, message)
        first = rf"^(\w+)(?:\[\d+\])?(?=:| (?:{_VERBS})\b)"
        message = re.sub(first, lambda found: options.get(found[1], (found[0], False))[0], message)
        exact = {action.dest for action in self._actions}
        value = rf"^({'|'.join(map(re.escape, sorted(exact)))})(?= ['\"\d])"
        return re.sub(value, lambda found: options.get(found[1], (found[0], False))[0], message)


_VERBS = "must|is|are|was|were|has|have|names?|holds?|needs?|already"
"""What follows an argument with which a message begins: "out of memory" begins with none."""


def _meant(message: str) -> str:
    """What was probably meant by what argparse refuses, to add to its message."""
    if found := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
        return _asked(difflib.get_close_matches(found[1], re.findall(r"[\w.-]+", found[2]), 1, 0.7))
    if found := re.search(r"invalid float value: '([\d.]+)%'", message):
        with contextlib.suppress(ValueError):
            return f"; {float(found[1]) / 100:g} stands for {found[1]}%"
    return ""


def _asked(names: Sequence[str]) -> str:
    return f"; did you mean {' and '.join(dict.fromkeys(names))}?" if names else ""


class _HelpAll(argparse.Action):
    def __call__(self, parser: Any, *ignored: Any) -> None:
        parser._print_message(argparse.ArgumentParser.format_help(parser), sys.stdout)
        parser.exit()


def command(commands: Any, name: str, run: Any, summary: str, *, usual: Sequence[str] = ()) -> CommandParser:
    """The parser of a command, with the options that all of them have; `run` takes the parsed arguments.

    --help shows the `usual` options, --help-all the others too; both show all where none are named.
    """
    sentence = summary[:1].upper() + summary[1:] + ("" if summary.endswith("?") else ".")
    parser = commands.add_parser(name, help=summary, description=sentence)
    parser.set_defaults(run=run, parser=parser)
    if usual:
        parser.usual = frozenset(("-h", "--help-all", "--json", *usual))
        parser.add_argument("--help-all", action=_HelpAll, nargs=0, help="show all options and exit")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.add_argument("-q", "--quiet", action="store_true", help="print the result in one line, and nothing else")
    parser.add_argument("-v", "--verbose", action="store_true", help="log what is being done")
    return parser


def split(values: list[str] | None) -> list[str]:
    """Join repeated and comma-separated names in one list."""
    return [name.strip() for value in values or () for name in value.split(",") if name.strip()]


def names(text: str) -> list[str]:
    """ "loss,min_k:k=0.1;..." → names; semicolons, or commas before an option, separate the options of one score.

    What follows a comma is an option where it has "=" and no colon: "epoch=2:loss" is a name.
    """
    return [name.strip().replace(";", ",") for name in re.split(r",(?![^,:]*=[^,:]*(?:,|$))", text) if name.strip()]


def numbers(option: str, values: list[str] | None, kind: Any = float, what: str = "numbers") -> Any:
    """Numbers from repeated and comma-separated words; None where there are none."""
    try:
        return [kind(word) for word in split(values)] or None
    except ValueError as error:
        raise InputError(f"{option} must be {what}, got {', '.join(split(values))}") from error


def one_or_all(names: list[str]) -> Any:
    """Unpack a list of a single name."""
    return names[0] if len(names) == 1 else names


@contextlib.contextmanager
def logging_on_stderr(arguments: argparse.Namespace) -> Iterator[None]:
    """Log to the error stream as -q and -v ask for; afterwards all loggers are as they were.

    The program that calls `main` may log elsewhere: then its handlers are used, and none is added.
    """
    level = logging.ERROR if arguments.quiet else logging.INFO if arguments.verbose else logging.WARNING
    root, package = logging.getLogger(), logging.getLogger("tdd")
    findings = logging.getLogger("tdd.findings")
    handler = None if root.handlers else logging.StreamHandler(sys.stderr)
    before = {logger: logger.level for logger in (root, package, findings)}
    if handler is not None:
        handler.setFormatter(_OneLine("%(levelname)s: %(message)s"))
        root.addHandler(handler)
        root.setLevel(logging.WARNING)
    package.setLevel(level)
    findings.setLevel(logging.CRITICAL)  # the report says them
    try:
        yield
    finally:
        for logger, earlier in before.items():
            logger.setLevel(earlier)
        if handler is not None:
            root.removeHandler(handler)


class _OneLine(logging.Formatter):
    """Names of files and fields come from outside: their control characters are spelled out."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


def console(wide: bool = False) -> Any:
    """The console for tables: as wide as the terminal or as COLUMNS says, else 100 or 160 columns."""
    import os

    from rich.console import Console

    fits = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    return Console(width=None if fits else 160 if wide else 100, highlight=False)


def print_json(value: Any) -> None:
    """JSON on the output, NaN as null; characters that its encoding lacks are escaped, which is the same JSON."""
    from tdd.runs.folder import to_json

    text = to_json(value)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(json.loads(text), indent=2) + "\n"
    sys.stdout.write(text)


def print_line(text: str) -> None:
    """One line on the output, whatever the width of the terminal."""
    sys.stdout.write(f"{printable(text)}\n")


def page_option(parser: CommandParser, *, needs_out: bool = True) -> None:
    """Add --open to a command that writes a page: into --out alone, if it needs that."""
    parser.add_argument("--open", action="store_true", help="show the report in a browser")
    parser.set_defaults(open_needs_out=needs_out)


def check_page_asked(arguments: argparse.Namespace) -> None:
    """Refuse --open where no page would be written.

    Raises:
      InputError: --open without --out, where the page is.
    """
    if getattr(arguments, "open", False) and arguments.open_needs_out and not arguments.out:
        raise InputError("--open shows report.html of the run's folder; add --out DIR, or leave it out")


def show_page(arguments: argparse.Namespace, page: pathlib.Path) -> None:
    """Show a page in a browser if --open asks for it; say where it is if there is none."""
    if not getattr(arguments, "open", False):
        return
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        print(f"no browser was found; open {page}", file=sys.stderr)


_PLAIN = str.maketrans({
    "\u00b7": "-", "\u2192": "->", "\u2026": "...", "\u2013": "-", "\u2014": "-", "\u2212": "-", "\u2264": "<=",
    "\u2265": ">=", "\u00b1": "+/-", "\u00d7": "x", "\u03b1": "alpha", "\u2018": "'", "\u2019": "'", "\u201c": '"',
    "\u201d": '"', "\u00a0": " ",
})  # fmt: skip
"""Characters of reports, as they are spelled where the encoding lacks them."""


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """What is written for characters that an encoding lacks: a common spelling, or a question mark for each."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    spelled = (c.translate(_PLAIN) for c in lacking)
    return "".join(c if c.isascii() else "?" for c in spelled), error.end


codecs.register_error("tdd_spelled", _spelled)


@contextlib.contextmanager
def any_encoding() -> Iterator[None]:
    """While it lasts, what the encoding of the output lacks is replaced: a table is no reason to lose a run."""
    changed = []
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            changed.append((stream, stream.errors))
            stream.reconfigure(errors="tdd_spelled")
    try:
        yield
    finally:
        for stream, errors in changed:
            with contextlib.suppress(OSError, ValueError):  # closed, or a pipe that nobody reads
                stream.reconfigure(errors=errors)


def present(
    arguments: argparse.Namespace,
    report: Any,
    *,
    record: Any,
    folder: pathlib.Path | None = None,
    files: Sequence[pathlib.Path] | None = None,
    wide: bool = False,
) -> None:
    """Print a `Report` and the files that were written, or the record as JSON, with `files` of a command that writes.

    A run's `folder` holds its report.html; `wide` reports have wide tables.
    """
    from tdd.runs.display import PAGE

    page = None if folder is None else folder / PAGE
    if page is not None:
        show_page(arguments, page)
    if arguments.json:
        written = [str(path) for path in (*(files or ()), *([page] if page else []))]
        print_json(record if files is None else {**record, "files": written})
        return
    print_report(arguments, report, wide=wide)
    if not arguments.quiet:
        screen = console(wide)
        if files:
            screen.print(f"Written: {', '.join(map(str, files))}", markup=False, soft_wrap=True)
        if page:
            screen.print(f"Report: {page}", markup=False, soft_wrap=True)


def print_report(arguments: argparse.Namespace, report: Any, *, wide: bool = False) -> None:
    """A report on the terminal; with --quiet its result in one line. A list is its own result, and is printed."""
    if arguments.quiet and report.verdict:
        print_line(report.verdict)
        return
    from tdd.report.sections import to_terminal

    console(wide).print(to_terminal(report))
