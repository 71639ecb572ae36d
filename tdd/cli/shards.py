"""Options of the commands whose work is divided: `--shard`, for n copies of one command, and `--ray`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

__all__ = ["add_ray", "add_shard", "check_ray", "ray_options", "say_done"]


def add_shard(parser: Any) -> None:
    """Add `--shard I/N`."""
    parser.add_argument(
        "--shard",
        metavar="I/N",
        help="compute the part I (from 0) of N alone and end: for job arrays, which start the same command N times; "
        "afterwards the command without --shard joins the parts, and computes what is missing; all of them share a "
        "folder, and who can write that folder must be trusted",
    )


def say_done(arguments: argparse.Namespace, folder: Any) -> None:
    """Report the end of a shard."""
    arguments.follows = True
    if not arguments.quiet:
        print(
            f"tdd {arguments.command}: shard {arguments.shard} is done, in {folder}; the command without --shard joins "
            "the shards",
            file=sys.stderr,
        )


def add_ray(parser: Any) -> None:
    """Add `--ray` and the options of its workers."""
    group = parser.add_argument_group("Ray", "pip install 'tdd[ray]'; tdd/runs/README.md has recipes")
    group.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="run on the workers of the Ray cluster at HOST:PORT; without an address, of a local Ray that is started "
        "for the run",
    )
    group.add_argument("--workers", type=int, metavar="N", help="workers (default: as many as fit)")
    group.add_argument(
        "--worker-resources",
        metavar="NAME=N",
        help="what each worker takes, comma-separated: CPU=4, GPU=1, TPU=4 (default: CPU=1)",
    )


def check_ray(arguments: argparse.Namespace) -> bool:
    """True if Ray is to run the command.

    Raises:
      InputError: Options of workers without --ray; --ray beside --shard or options of `jax.distributed`.
    """
    from tdd.validate.errors import InputError

    if arguments.ray is None:
        for name in ("workers", "worker_resources"):
            if getattr(arguments, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} has no use without --ray; add --ray, or leave it out")
        return False
    if arguments.shard is not None:
        raise InputError("--shard and --ray both share out the work; give one of them")
    for name in ("distributed", "coordinator", "num_processes", "process_id"):
        if getattr(arguments, name, None) not in (None, False):
            raise InputError(
                f"--{name.replace('_', '-')} has no use with --ray: each of its workers holds a whole model"
            )
    return True


def ray_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options as keywords of `tdd.on_ray.run_shards`."""
    from tdd.validate.errors import InputError

    resources: dict[str, float] | None = None
    if arguments.worker_resources is not None:
        resources = {}
        for part in arguments.worker_resources.split(","):
            name, _, amount = part.partition("=")
            try:
                resources[name.strip()] = float(amount)
            except ValueError:
                raise InputError(f"--worker-resources {part!r} must be NAME=N, as in CPU=4 or GPU=1") from None
    return {
        "address": arguments.ray or None,
        "num_workers": arguments.workers,
        "resources": resources,
        "progress": not arguments.quiet,
    }
