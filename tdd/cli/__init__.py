"""The command line, `tdd COMMAND`. Heavy imports happen inside the commands."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import shtab

from tdd import __version__
from tdd.cli.common import CommandParser, any_encoding, check_page_asked, logging_on_stderr
from tdd.cli.machine import (
    check_limits,
    check_output_open,
    check_still_there,
    drop_output,
    of_jax_settings,
    of_the_machine,
)

_COMMANDS = {
    "demo": "demo",
    "score": "score",
    "score-logprobs": "logprobs",
    "paraphrase": "paraphrase",
    "audit": "audit",
    "select": "audit",
    "exchange": "exchange",
    "versions": "owner",
    "dataset": "owner",
    "checkpoints": "owner",
    "study": "study",
    "power": "power",
    "report": "report",
    "lab": "lab",
    "guarantees": "guarantees",
    "info": "info",
}
"""Command -> the module here that holds it."""

_EXAMPLES = """\
examples:
  tdd demo
  tdd score ./gpt2 texts.jsonl --score loss,min_k_plus_plus --out scores.csv
  tdd score-logprobs dump.jsonl --score loss,min_k --out scores.csv
  tdd audit ./gpt2 --candidates suspects.jsonl --calibration fresh.jsonl \\
      --alpha 0.1 --out runs/first
  tdd select scores.csv --role-field role --score min_k --alpha 0.1
  tdd select scores.csv --method td4eval --score loss --score min_k --alpha 0.1
  tdd select gradients.csv --method ktd --score original --knockoffs b,c,d
  tdd exchange ./gpt2 boolq.jsonl --template '{question} {answer}'
  tdd report runs/first
  tdd guarantees
  tdd power scores.csv --truth truth.csv --score loss --n 500 --m 1000
  tdd study ptdi-alpha --repetitions 1000000 --out studies/ptdi-alpha

Scores are loss-like: LOWER = MORE member-like. To find members (ptdi),
calibration items are known NOT to be in the training data; to find clean items
(td4eval, jmcs, jecs) they are known to be in it.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status.

    0 done, 1 something was found and --fail-on-detection was given, 2 bad input or a system that refuses, 3 done and a
    check failed, so that no verdict is given, 130 interrupted, 143 ended by SIGTERM.
    """
    typed = sys.argv[1:] if argv is None else argv
    return execute(_parser(typed), typed)


def execute(parser: CommandParser, typed: Sequence[str]) -> int:
    """Run the command of `parser` that was typed; returns the exit status. Errors and signals end in one line."""
    with any_encoding():
        return _execute(parser, typed)


def _execute(parser: CommandParser, typed: Sequence[str]) -> int:
    arguments, unknown = parser.parse_known_args([*typed])
    command: CommandParser = getattr(arguments, "parser", parser)
    if unknown:
        known = _of_a_score(unknown) or command.nearest(unknown)
        command.error(f"unrecognized arguments: {' '.join(unknown)}{known}")
    arguments.typed = [*typed]
    if not hasattr(arguments, "run"):
        parser.print_help()
        return 0
    from tdd.runs.portable import typed_command
    from tdd.validate import InputError, printable

    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that torch is absent is no news here
    if sys.stderr is None:  # closed: a file that the command opens would get its number, and what is meant for it
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        with logging_on_stderr(arguments), _ends_in_order(), typed_command((*parser.prog.split(), *typed)):
            check_output_open(sys.stdout)
            check_page_asked(arguments)
            check_limits()
            status = arguments.run(arguments)
            sys.stdout.flush()
            check_still_there(arguments)
    except InputError as error:
        said = command.in_options(error.said)
        print(f"{parser.prog} {arguments.command}: error: {printable(said)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as end:
        kept = getattr(arguments, "out", None) or getattr(arguments, "store", None)
        hint = "; run the same command again to continue" if kept else ""
        print(f"{parser.prog} {arguments.command}: interrupted{hint}", file=sys.stderr)
        return 143 if "SIGTERM" in end.args else 130
    except BrokenPipeError:
        drop_output()
        return 0
    except (OSError, MemoryError, RuntimeError, TypeError, ValueError, AssertionError, FloatingPointError) as error:
        if not (words := of_jax_settings(error) or of_the_machine(error)):
            raise
        print(f"{parser.prog} {arguments.command}: error: {printable(words)}", file=sys.stderr)
        return 2
    return status or 0


def _of_a_score(unknown: Sequence[str]) -> str:
    """How to write what a score needs, where it was given as an option of its own; else nothing."""
    from tdd.scoring.scores.score import check_no_fields
    from tdd.validate import InputError

    try:
        check_no_fields(word.partition("=")[0].removeprefix("--").removesuffix("-dump").replace("-", "_")
                        for word in unknown if word.startswith("--"))  # fmt: skip
    except InputError as error:
        said = str(error).partition(": write scores=")
        return f"; {said[0]}: write --score {said[2].partition(', or ')[0]}"
    return ""


@contextlib.contextmanager
def _ends_in_order() -> Iterator[None]:
    """SIGTERM, with which schedulers end jobs, and Ctrl-C end the command; what is finished is written down before.

    Python drops an exception that is raised inside a callback of the garbage collector or of another library. The end
    is therefore asked for again, every tenth of a second, until it is on its way through the command.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    over = False

    def end(number: int, frame: Any) -> None:
        if over:
            return  # a timer that ran out while it was stopped
        if number in (signal.SIGINT, signal.SIGTERM) and not asked:
            asked.append(number)
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
        if not _on_its_way():
            raise KeyboardInterrupt(signal.Signals(asked[0]).name)

    again = [signal.SIGALRM] if hasattr(signal, "SIGALRM") else []
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT, *again)}
    try:
        yield
        if asked:  # dropped by whoever caught it: nothing more is to be done, but it is no success
            raise KeyboardInterrupt(signal.Signals(asked[0]).name)
    finally:
        over = True
        if again:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, earlier in before.items():
            signal.signal(number, earlier or signal.SIG_DFL)


def _on_its_way() -> bool:
    """Whether a KeyboardInterrupt is being handled now: cleaning up is not to be interrupted."""
    error = sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1]
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _parser(typed: Sequence[str] = ()) -> CommandParser:
    """The parser of the command that was typed first, or of all commands where that is none of them."""
    parser = CommandParser(
        prog="tdd",
        description="Which texts was a language model trained on? Answers with a controlled\nerror rate.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tdd {__version__}")
    shtab.add_argument_to(parser, ["--print-completion"], help="print completions for a shell: bash, zsh or tcsh")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=CommandParser)
    chosen = [_COMMANDS[typed[0]]] if typed and typed[0] in _COMMANDS else dict.fromkeys(_COMMANDS.values())
    for name in chosen:
        importlib.import_module(f"tdd.cli.{name}").add(commands)
    return parser
