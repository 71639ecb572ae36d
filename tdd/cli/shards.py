"""The option of the commands whose work n copies of one command can share."""

from __future__ import annotations

import argparse
import sys
from typing import Any

__all__ = ["add_shard", "say_done"]


def add_shard(parser: Any) -> None:
    """`--shard I/N`."""
    parser.add_argument(
        "--shard",
        metavar="I/N",
        help="compute the part I (from 0) of N alone and end: for job arrays, which start the same command N times; "
        "afterwards the command without --shard joins the parts, and computes what is missing; all of them share a "
        "folder, and who can write that folder must be trusted",
    )


def say_done(arguments: argparse.Namespace, folder: Any) -> None:
    """What a shard says when it has ended."""
    arguments.follows = True
    if not arguments.quiet:
        print(
            f"tdd {arguments.command}: shard {arguments.shard} is done, in {folder}; the command without --shard joins "
            "the shards",
            file=sys.stderr,
        )
