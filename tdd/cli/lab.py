"""`tdd lab`: models whose training data is known, and the papers' questions asked of them."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tdd.cli.common import command, console, print_json
from tdd.lab.examples import EXAMPLES
from tdd.lab.reproduce import REPRODUCTIONS

__all__ = ["add"]

_EPILOG = """\
examples:
  tdd lab example canaries > recipe.toml
  tdd lab train recipe.toml --out runs/canaries
  tdd lab reproduce
  tdd lab reproduce exchangeability --out reproductions/exchangeability
"""


def add(commands: Any) -> None:
    """Register the command and what is under it."""
    lab = command(commands, "lab", None, "plant texts, train models on them, and keep the ground truth")
    lab.formatter_class, lab.epilog = argparse.RawDescriptionHelpFormatter, _EPILOG
    lab.set_defaults(run=lambda arguments: lab.print_help())
    under = lab.add_subparsers(metavar="WHAT", title="what")
    _add_train(command(under, "train", _train, "carry out a recipe: corpus, planting, training, ground truth"))
    example = command(under, "example", _example, "print a commented recipe")
    example.add_argument(
        "design", nargs="?", default="canaries", metavar="DESIGN", help=f"{', '.join(EXAMPLES)} (default: %(default)s)"
    )
    _add_reproduce(command(under, "reproduce", _reproduce, "a paper's experiment on small models; alone: list them"))


def _add_train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="RECIPE.toml", help="`tdd lab example` prints one")
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="the run's folder; an interrupted run goes on there"
    )
    parser.add_argument(
        "--no-compilation-cache", action="store_true", help="keep no compiled programs for the next run"
    )


def _add_reproduce(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help=", ".join(REPRODUCTIONS))
    parser.add_argument("--out", metavar="DIR", help="results and figure; an interrupted run goes on there")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default: %(default)s)")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="X",
        help="1 takes minutes on two cores; more grows models, corpora and repetitions (default: %(default)s)",
    )
    parser.add_argument(
        "--no-compilation-cache", action="store_true", help="keep no compiled programs for the next run"
    )


def _example(arguments: argparse.Namespace) -> None:
    from tdd.validate.recipes import check_design

    text = EXAMPLES[check_design(arguments.design, tuple(EXAMPLES))]
    if arguments.json:
        print_json({"design": arguments.design, "recipe": text})
    else:
        sys.stdout.write(text)


def _train(arguments: argparse.Namespace) -> None:
    from tdd.cli.compilation_cache import keep_compiled
    from tdd.lab.memory import keep_memory

    keep_memory()
    from tdd.lab.recipe_file import load_recipe

    recipe = load_recipe(arguments.recipe)
    keep_compiled(not arguments.no_compilation_cache)
    from tdd.lab.recipe_run import run_recipe
    from tdd.report import lab as words

    run = run_recipe(recipe, arguments.out, progress=not arguments.quiet)
    if arguments.json:
        print_json({"folder": str(run.folder), **run.summary, "next": words.next_command(run)})
        return
    if arguments.quiet:
        return
    screen = console()
    screen.print(words.parts_table(run))
    screen.print(words.files_line(run), markup=False, soft_wrap=True)
    screen.print(f"Go on with: {words.next_command(run)}", markup=False, soft_wrap=True)


def _reproduce(arguments: argparse.Namespace) -> None:
    if arguments.name is None:
        _list(arguments)
        return
    import pathlib

    from tdd.cli.compilation_cache import keep_compiled
    from tdd.lab.memory import keep_memory
    from tdd.validate.errors import InputError
    from tdd.validate.recipes import check_reproduction

    check_reproduction(arguments.name, tuple(REPRODUCTIONS))
    if arguments.out is None:
        raise InputError("--out is needed: the folder for results and figure, where an interrupted run goes on")
    keep_memory()
    keep_compiled(not arguments.no_compilation_cache)
    from tdd.lab.reproduce.record import Options
    from tdd.report import lab as words
    from tdd.report.reproductions import carry_out

    folder = pathlib.Path(arguments.out)
    outcome = carry_out(arguments.name, Options(folder, arguments.seed, arguments.scale, not arguments.quiet))
    if arguments.json:
        print_json(outcome)
        return
    screen = console(wide=True)
    for table in words.outcome_tables(outcome):
        screen.print(table)
    screen.print(words.outcome_line(outcome, folder), markup=False, soft_wrap=True)


def _list(arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json([{"name": name, **title._asdict()} for name, title in REPRODUCTIONS.items()])
        return
    from tdd.report import lab as words

    console(wide=True).print(words.list_table())
