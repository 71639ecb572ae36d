"""Measure detection under a published model whose training data is known: `python -m benchmarks.recipes NAME MODEL`."""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence

from benchmarks.recipes import RECIPES
from tdd.cli import execute
from tdd.cli.common import CommandParser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one recipe; returns the exit status, as `tdd.cli.main`."""
    parser = CommandParser(prog="python -m benchmarks.recipes", description=str(__doc__).partition("\n")[0])
    commands = parser.add_subparsers(dest="command", metavar="NAME", required=True)
    for name, recipe in RECIPES.items():
        command = commands.add_parser(name, help=recipe.title, description=f"{recipe.title}. Truth: {recipe.truth}.")
        command.set_defaults(run=_run, parser=command, json=False, quiet=False, verbose=False)
        command.add_argument("model", help=f"checkpoint folder or hub id, as {recipe.model}")
        command.add_argument("--texts", nargs="+", required=True, metavar="FILE", help="texts with their copies")
        command.add_argument(
            "--copies-field", default="copies", metavar="FIELD", help="copies in the training data, 0 for non-members"
        )
        command.add_argument("--text-field", metavar="FIELD", help="(default: as in tdd audit)")
        if recipe.null:
            command.add_argument("--null-model", metavar="MODEL", help="the twin that was trained on none of the texts")
        command.add_argument(
            "--checkpoints", nargs="+", default=(), metavar="MODEL",
            help=f"models in the order of training, as {' '.join(recipe.checkpoints)}: when were the texts seen?",
        )  # fmt: skip
        command.add_argument(
            "--score", nargs="+", default=(), metavar="NAME", help=f"(default: {' '.join(recipe.scores)})"
        )
        command.add_argument("--alpha", type=float, default=0.1, help="(default: %(default)s)")
        command.add_argument("--repetitions", type=int, default=200, help="random divisions (default: %(default)s)")
        command.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
        command.add_argument("--store", metavar="DIR", help="score store, for runs that are interrupted")
        command.add_argument("--device", metavar="NAME", help="cpu, gpu, tpu, gpu:1 (default: JAX's first)")
        command.add_argument("--dtype", help="dtype of the parameters (default: as stored)")
        command.add_argument("--out", required=True, metavar="DIR", help="folder for results.json and tables.md")
    return execute(parser, sys.argv[1:] if argv is None else argv)


def _run(arguments: argparse.Namespace) -> None:
    from benchmarks.recipes.run import read_known, run, tables
    from tdd.runs.atomic import write_atomically
    from tdd.runs.folder import to_json

    recipe, out = RECIPES[arguments.command], pathlib.Path(arguments.out)
    known = read_known(arguments.texts, arguments.copies_field, arguments.text_field, deduplicate=recipe.deduplicate)
    result = run(
        recipe, arguments.model, known, null_model=getattr(arguments, "null_model", None),
        checkpoints=arguments.checkpoints, scores=arguments.score, alpha=arguments.alpha,
        repetitions=arguments.repetitions, seed=arguments.seed, out=out / "time", store=arguments.store,
        device=arguments.device, dtype=arguments.dtype,
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "results.json", to_json(result).encode())
    write_atomically(out / "tables.md", tables(result).encode())
    print(tables(result))


if __name__ == "__main__":
    sys.exit(main())
