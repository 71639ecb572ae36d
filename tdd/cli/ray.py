"""The options of the commands that Ray can run."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_ray", "check_ray", "ray_options"]


def add_ray(parser: Any) -> None:
    """`--ray` and what a worker takes."""
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
    """Whether Ray is to run the command.

    Raises:
      InputError: options of workers without --ray; --ray beside --shard or options of `jax.distributed`.
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
    return {
        "address": arguments.ray or None,
        "num_workers": arguments.workers,
        "resources": _resources(arguments.worker_resources),
        "progress": not arguments.quiet,
    }


def _resources(given: str | None) -> dict[str, float] | None:
    from tdd.validate.errors import InputError

    if given is None:
        return None
    found = {}
    for part in given.split(","):
        name, _, amount = part.partition("=")
        try:
            found[name.strip()] = float(amount)
        except ValueError:
            raise InputError(f"--worker-resources {part!r} must be NAME=N, as in CPU=4 or GPU=1") from None
    return found
