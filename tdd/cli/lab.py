"""`tdd lab`: models whose training data is known."""

from __future__ import annotations

import argparse
import importlib.resources
import sys
from typing import Any

from tdd.cli.common import command, console, print_json, print_line

_EXAMPLES = ("canaries", "members", "assignments", "blocks")
_EPILOG = """\
examples:
  tdd lab example canaries > recipe.toml
  tdd lab train recipe.toml --out runs/canaries
"""


def add(commands: Any) -> None:
    """Register the command and its subcommands."""
    lab = command(commands, "lab", None, "plant texts, train models on them, and keep the ground truth")
    lab.formatter_class, lab.epilog = argparse.RawDescriptionHelpFormatter, _EPILOG
    lab.set_defaults(run=lambda arguments: lab.print_help())
    under = lab.add_subparsers(metavar="WHAT", title="what")
    train = command(under, "train", _train, "run a recipe: corpus, planting, training, ground truth")
    train.add_argument("recipe", metavar="RECIPE.toml", help="`tdd lab example` prints one")
    train.add_argument("--out", required=True, metavar="DIR", help="the run's folder; an interrupted run continues")
    train.add_argument("--no-compilation-cache", action="store_true", help="keep no compiled programs for the next run")
    example = command(under, "example", _example, "print a commented recipe")
    example.add_argument(
        "design",
        nargs="?",
        default="canaries",
        metavar="DESIGN",
        help=f"{', '.join(_EXAMPLES)} (default: %(default)s)",
    )


def _example(arguments: argparse.Namespace) -> None:
    from tdd.lab.checks import check_named

    check_named("design", arguments.design, _EXAMPLES)
    recipe = importlib.resources.files("tdd.lab") / "data" / "recipes" / f"{arguments.design}.toml"
    text = recipe.read_text("utf-8")
    if arguments.json:
        print_json({"design": arguments.design, "recipe": text})
    else:
        sys.stdout.write(text)


def _train(arguments: argparse.Namespace) -> None:
    from tdd.cli.machine import keep_compiled
    from tdd.cores import keep_memory

    keep_memory()
    from tdd.lab.recipe_file import load_recipe

    recipe = load_recipe(arguments.recipe)
    keep_compiled(not arguments.no_compilation_cache)
    from tdd.lab.recipe_run import run_recipe
    from tdd.report.lab import lab_report, next_command
    from tdd.report.sections import to_terminal

    run = run_recipe(recipe, arguments.out, progress=not arguments.quiet)
    if arguments.json:
        print_json({"folder": str(run.folder), **run.summary, "next": next_command(run)})
        return
    if arguments.quiet:
        print_line(f"Laboratory run in {run.folder}: {next_command(run)}")
        return
    screen = console()
    screen.print(to_terminal(lab_report(run)))
    screen.print(f"Go on with: {next_command(run)}", markup=False, soft_wrap=True)
